/* The command line of weir-server. */
#ifndef WEIR_SERVER_OPTIONS_H
#define WEIR_SERVER_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/rpc/tls.h"
#include "server/quota_file.h"

struct server_options {
  bool is_coordinator, is_parameters; /* at least one */
  const char *listen;                 /* HOST:PORT */
  const char *advertise;              /* HOST:PORT or NULL */
  const char *coordinator;            /* HOST:PORT, or several separated by commas */
  const char *tls_folder;             /* --tls, or NULL */
  bool wants_insecure;                /* --insecure */
  struct rpc_security security;       /* what follows from both and the environment */
  char *store;                        /* URL, perhaps with a password; owned */
  struct rpc_tls *tls;                /* NULL: plaintext; owned */
  const char *http;                   /* HOST:PORT of /metrics, or NULL */
  bool has_names;                     /* --http-names */
  int wait_store_s;                   /* how long to try to open it; 0: for ever, below: not */
  int server_grace_s;                 /* how long a run waits for a lost server; 0: as usual */
  int follow_limit_s;                 /* a worker that follows a run for longer is named; 0: as usual */
  int leave_limit_s;            /* how long blocks may take to move away at the end; 0: not waited for */
  int announce_fd;              /* -1: none */
  int threads;                  /* 0: as the machine suggests */
  uint64_t memory_bytes;        /* that runs may take; 0: no bound */
  struct quotas quotas;         /* of tenants; owned */
  struct quota_file quota_file; /* from which they are; path NULL: none */
};

/* Fills options from arguments and environment. True if the program is to run; else *status is its exit
   status: it has printed the help or the version on stdout, or one line on stderr that says what is wrong. */
bool server_options_parse(int argc, char **argv, struct server_options *options, int *status);
void server_options_fini(struct server_options *options);

/* The address that others reach us at: options->advertise, or where we listen, with the bound port in place
   of none or 0 and the host's name in place of "any". Freed by the caller. */
char *server_options_address(const struct server_options *options, int port);

/* Where a role of this same process is reached. Freed by the caller. */
char *server_options_own_address(const struct server_options *options, int port);

#endif
