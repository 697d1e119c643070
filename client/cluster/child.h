/* One child process of the launcher. */
#ifndef WEIR_CLIENT_CLUSTER_CHILD_H
#define WEIR_CLIENT_CLUSTER_CHILD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/err.h"

enum { CHILD_ARGUMENTS_MAX = 24 };

enum child_role { CHILD_COORDINATOR, CHILD_SERVER, CHILD_WORKER };

struct child {
  enum child_role role;
  char *name; /* "worker-2": of its log, and for people */
  char *log;  /* path; appended to */
  char *argv[CHILD_ARGUMENTS_MAX + 1];
  int n_argv;
  char **environment;  /* of the process; NULL: ours. The caller's */
  bool has_listened;   /* servers: it has said where */
  int port;            /* servers: that it listened on when it was started first; 0: not known, or a socket */
  pid_t pid;           /* 0: not running */
  int status;          /* of waitpid, when it died */
  uint64_t started_ns; /* clock of the last start */
  int quick_deaths;    /* in a row, each soon after its start */
};

/* program: argv[0], a path. Released with child_fini. */
void child_init(struct child *child, enum child_role role, const char *name, const char *log,
                const char *program);
void child_fini(struct child *child);
/* Forgets all arguments but the program. */
void child_clear_arguments(struct child *child);
void child_argument(struct child *child, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Forks and executes: a process group of its own, no blocked signals, stdin from /dev/null, output to its
   log, SIGTERM from the kernel when the thread that called this ends. keep_fd: a descriptor that it inherits;
   -1: none. Errors: IO. A failed exec is a line in the log and exit status 127. */
int child_start(struct child *child, int keep_fd, struct err *err);

/* A worker that has ended because this machine lacks what it was asked to work on (exit status 2). */
bool child_cannot_work(const struct child *child);

/* "worker-2 died (killed by signal 9): LAST LINE (see LOG)" into err, as INTERNAL; of one that cannot work
   the line alone, as INVALID. */
int child_explain(const struct child *child, struct err *err);

/* Where the program `name` is: beside this executable, else on PATH. Freed by the caller. Errors: NOT_FOUND.
 */
int program_find(const char *name, char **path, struct err *err);

#endif
