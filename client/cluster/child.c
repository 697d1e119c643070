/* One child process of the launcher. */
#include "client/cluster/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/memory.h"

static void child_become(const struct child *child, pid_t parent, int log_fd, int keep_fd)
    __attribute__((noreturn));
static void log_last_line(const char *path, char *line, size_t size);

void child_init(struct child *child, enum child_role role, const char *name, const char *log,
                const char *program) {
  *child = (struct child){.role = role, .name = mem_strdup(name), .log = mem_strdup(log)};
  child_argument(child, "%s", program);
}

void child_fini(struct child *child) {
  for (int i = 0; i < child->n_argv; i++)
    free(child->argv[i]);
  free(child->name);
  free(child->log);
  *child = (struct child){0};
}

void child_clear_arguments(struct child *child) {
  while (child->n_argv > 1) {
    free(child->argv[--child->n_argv]);
    child->argv[child->n_argv] = NULL;
  }
}

void child_argument(struct child *child, const char *format, ...) {
  char text[4096];
  va_list args;
  CHECK(child->n_argv < CHILD_ARGUMENTS_MAX);
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  child->argv[child->n_argv++] = mem_strdup(text);
}

int child_start(struct child *child, int keep_fd, struct err *err) {
  pid_t parent = getpid(), pid;
  int log_fd = open(child->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (log_fd < 0)
    return err_errno(err, errno, "cannot write the log '%s'", child->log);
  pid = fork();
  if (pid == 0)
    child_become(child, parent, log_fd, keep_fd);
  if (pid < 0)
    err_errno(err, errno, "cannot start %s", child->name);
  else
    child->pid = pid;
  child->started_ns = clock_now_ns();
  close(log_fd);
  return pid < 0 ? err->code : ERR_OK;
}

/* In the child of a process with threads: nothing here but what is safe in a signal handler. */
static void child_become(const struct child *child, pid_t parent, int log_fd, int keep_fd) {
  static const char failed[] = "cannot execute the program\n";
  struct sigaction standard = {.sa_handler = SIG_DFL};
  sigset_t none;
  int null_fd = open("/dev/null", O_RDONLY);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent)
    _exit(127);
  setpgid(0, 0);
  sigaction(SIGPIPE, &standard, NULL);
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
  dup2(null_fd, STDIN_FILENO);
  dup2(log_fd, STDOUT_FILENO);
  dup2(log_fd, STDERR_FILENO);
  if (keep_fd >= 0)
    fcntl(keep_fd, F_SETFD, 0);
  execve(child->argv[0], child->argv, child->environment ? child->environment : environ);
  if (write(STDERR_FILENO, failed, sizeof failed - 1) < 0)
    _exit(126);
  _exit(127);
}

bool child_cannot_work(const struct child *child) {
  return child->role == CHILD_WORKER && WIFEXITED(child->status) && WEXITSTATUS(child->status) == 2;
}

int child_explain(const struct child *child, struct err *err) {
  static const char prefix[] = "weir-worker: ";
  char line[1024], how[64];
  if (WIFSIGNALED(child->status))
    snprintf(how, sizeof how, "killed by signal %d", WTERMSIG(child->status));
  else
    snprintf(how, sizeof how, "exit status %d", WEXITSTATUS(child->status));
  log_last_line(child->log, line, sizeof line);
  if (child_cannot_work(child) && strncmp(line, prefix, strlen(prefix)) == 0)
    return err_set(err, ERR_INVALID, "%s", line + strlen(prefix));
  return err_set(err, ERR_INTERNAL, "%s died (%s): %s (see %s)", child->name, how,
                 line[0] ? line : "its log is empty", child->log);
}

static void log_last_line(const char *path, char *line, size_t size) {
  char tail[2048];
  char *end, *begin;
  ssize_t length = 0;
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  line[0] = '\0';
  if (fd < 0)
    return;
  if (lseek(fd, -(off_t)(sizeof tail - 1), SEEK_END) < 0)
    lseek(fd, 0, SEEK_SET);
  length = read(fd, tail, sizeof tail - 1);
  close(fd);
  if (length <= 0)
    return;
  end = tail + length;
  while (end > tail && (end[-1] == '\n' || end[-1] == ' '))
    end--;
  *end = '\0';
  begin = strrchr(tail, '\n');
  snprintf(line, size, "%.*s", (int)size - 1, begin ? begin + 1 : tail);
}

int program_find(const char *name, char **path, struct err *err) {
  char self[4096];
  const char *rest = getenv("PATH");
  ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
  if (length > 0) {
    self[length] = '\0';
    *path = mem_printf("%.*s/%s", (int)(strrchr(self, '/') - self), self, name);
    if (access(*path, X_OK) == 0)
      return ERR_OK;
    free(*path);
  }
  while (rest && *rest) {
    size_t folder = strcspn(rest, ":");
    *path = mem_printf("%.*s/%s", (int)folder, rest, name);
    if (folder > 0 && access(*path, X_OK) == 0)
      return ERR_OK;
    free(*path);
    rest += folder + (rest[folder] == ':');
  }
  *path = NULL;
  return err_set(err, ERR_NOT_FOUND, "cannot find the program '%s', neither beside weir nor on PATH", name);
}
