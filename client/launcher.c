/* A private cluster on this machine. */
#include "client/launcher.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "client/child.h"
#include "client/stop.h"
#include "common/clock.h"
#include "common/memory.h"
#include "training.pb-c.h"

enum {
  START_SECONDS = 30,   /* for the coordinator to listen */
  MEMBERS_SECONDS = 60, /* for all to join */
  STOP_SECONDS = 5,     /* from SIGTERM to SIGKILL */
  QUICK_SECONDS = 3,    /* a death so soon after the start is a quick one */
  QUICK_DEATHS_MAX = 10,
};

struct launcher {
  struct launcher_options options; /* its texts are the caller's until launcher_start returns */
  char address[128];
  pthread_t supervisor;
  bool is_supervised;

  pthread_mutex_t lock;
  pthread_cond_t changed; /* a child was started or died, or is_stopping was set */
  struct child *children; /* all are allocated before the first is started */
  int n_children;
  const struct child *lost; /* whose death was final; NULL: none */
  bool is_stopping;
};

static int launcher_prepare(struct launcher *launcher, struct err *err);
static int launcher_start_coordinator(struct launcher *launcher, struct err *err);
static int launcher_read_address(struct launcher *launcher, int fd, struct err *err);
static int launcher_start_members(struct launcher *launcher, struct err *err);
static int launcher_start_child(struct launcher *launcher, struct child *child, int keep_fd, struct err *err);
static void *supervise(void *arg);
static void child_died_locked(struct launcher *launcher, pid_t pid, int status);
static bool child_restart_locked(struct launcher *launcher, struct child *child);
static bool is_final_locked(const struct launcher *launcher, const struct child *child);
static bool wait_changed_locked(struct launcher *launcher, uint64_t until_ns);
static bool is_running_locked(const struct launcher *launcher);
static void kill_locked(struct launcher *launcher, int signal_number);

int launcher_start(const struct launcher_options *options, struct launcher **out, struct err *err) {
  struct launcher *launcher = mem_new(sizeof *launcher);
  launcher->options = *options;
  pthread_mutex_init(&launcher->lock, NULL);
  pthread_cond_init(&launcher->changed, NULL);
  if (launcher_prepare(launcher, err) || launcher_start_coordinator(launcher, err) ||
      launcher_start_members(launcher, err)) {
    launcher_stop(launcher);
    return err->code;
  }
  *out = launcher;
  return ERR_OK;
}

/* Names, logs and programs of all children; their arguments follow when the address is known. */
static int launcher_prepare(struct launcher *launcher, struct err *err) {
  const struct launcher_options *options = &launcher->options;
  char *server = NULL, *worker = NULL;
  if (program_find("weir-server", &server, err) || program_find("weir-worker", &worker, err)) {
    free(server);
    return err->code;
  }
  launcher->children =
      mem_new(sizeof *launcher->children * (size_t)(1 + options->servers + options->workers));
  for (int i = 0; i < 1 + options->servers + options->workers; i++) {
    enum child_role role = i == 0 ? CHILD_COORDINATOR : i <= options->servers ? CHILD_SERVER : CHILD_WORKER;
    char *name = role == CHILD_COORDINATOR ? mem_strdup("coordinator")
                 : role == CHILD_SERVER    ? mem_printf("server-%d", i)
                                           : mem_printf("worker-%d", i - options->servers);
    char *log = mem_printf("%s/%s.log", options->logs, name);
    child_init(&launcher->children[launcher->n_children++], role, name, log,
               role == CHILD_WORKER ? worker : server);
    free(name);
    free(log);
  }
  free(server);
  free(worker);
  return ERR_OK;
}

static int launcher_start_coordinator(struct launcher *launcher, struct err *err) {
  struct child *child = &launcher->children[0];
  int ends[2];
  if (pipe2(ends, O_CLOEXEC))
    return err_errno(err, errno, "cannot start the coordinator");
  child_argument(child, "--role=coordinator");
  child_argument(child, "--listen=127.0.0.1:0");
  child_argument(child, "--announce-fd=%d", ends[1]);
  child_argument(child, "--store=%s", launcher->options.store);
  launcher_start_child(launcher, child, ends[1], err);
  close(ends[1]);
  if (err->code == ERR_OK) {
    CHECK(pthread_create(&launcher->supervisor, NULL, supervise, launcher) == 0);
    launcher->is_supervised = true;
    launcher_read_address(launcher, ends[0], err);
  }
  close(ends[0]);
  return err->code;
}

/* The coordinator writes its address and a line end once it listens, then closes its end. */
static int launcher_read_address(struct launcher *launcher, int fd, struct err *err) {
  uint64_t until_ns = clock_now_ns() + START_SECONDS * UINT64_C(1000000000);
  size_t length = 0;
  while (!memchr(launcher->address, '\n', length)) {
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    ssize_t n = poll(&ready, 1, 100) > 0
                    ? read(fd, launcher->address + length, sizeof launcher->address - 1 - length)
                    : -1;
    if (n > 0)
      length += (size_t)n;
    if (stop_cause() == STOP_SIGNAL)
      return err_set(err, ERR_CANCELLED, "interrupted");
    if (n == 0) { /* it is gone: what follows says how */
      while (stop_cause() == STOP_NONE && clock_now_ns() < until_ns)
        stop_wait(100);
      launcher_explain(launcher, err);
      return err->code;
    }
    if (clock_now_ns() > until_ns)
      return err_set(err, ERR_INTERNAL, "the coordinator does not listen after %d s (see %s)", START_SECONDS,
                     launcher->children[0].log);
  }
  launcher->address[strcspn(launcher->address, "\n")] = '\0';
  return ERR_OK;
}

static int launcher_start_members(struct launcher *launcher, struct err *err) {
  for (int i = 1; i < launcher->n_children; i++) {
    struct child *child = &launcher->children[i];
    if (child->role == CHILD_SERVER) {
      child_argument(child, "--role=parameters");
      child_argument(child, "--listen=127.0.0.1:0");
      child_argument(child, "--store=%s", launcher->options.store);
    } else {
      child_argument(child, "--threads=%d", launcher->options.threads);
      child_argument(child, "--data-root=/");
    }
    child_argument(child, "--coordinator=%s", launcher->address);
    if (launcher_start_child(launcher, child, -1, err))
      return err->code;
  }
  return ERR_OK;
}

static int launcher_start_child(struct launcher *launcher, struct child *child, int keep_fd,
                                struct err *err) {
  pthread_mutex_lock(&launcher->lock);
  child_start(child, keep_fd, err);
  pthread_cond_broadcast(&launcher->changed);
  pthread_mutex_unlock(&launcher->lock);
  return err->code;
}

const char *launcher_address(const struct launcher *launcher) {
  return launcher->address;
}

int launcher_wait_members(struct launcher *launcher, struct connection *connection, struct err *err) {
  uint64_t until_ns = clock_now_ns() + MEMBERS_SECONDS * UINT64_C(1000000000);
  Weir__ListServersRequest servers_request = WEIR__LIST_SERVERS_REQUEST__INIT;
  Weir__ListWorkersRequest workers_request = WEIR__LIST_WORKERS_REQUEST__INIT;
  int n_servers = 0, n_workers = 0;
  while (n_servers < launcher->options.servers || n_workers < launcher->options.workers) {
    Weir__ListServersReply *servers;
    Weir__ListWorkersReply *workers;
    if (stop_cause() == STOP_SIGNAL)
      return err_set(err, ERR_CANCELLED, "interrupted");
    if (stop_cause() == STOP_CHILD) {
      launcher_explain(launcher, err);
      return err->code;
    }
    if (clock_now_ns() > until_ns)
      return err_set(err, ERR_INTERNAL, "only %d of %d servers and %d of %d workers have joined after %d s",
                     n_servers, launcher->options.servers, n_workers, launcher->options.workers,
                     MEMBERS_SECONDS);
    if (connection_call(connection, RPC_LIST_SERVERS, &servers_request, (void **)&servers, err))
      return err->code;
    n_servers = (int)servers->n_servers;
    weir__list_servers_reply__free_unpacked(servers, NULL);
    if (connection_call(connection, RPC_LIST_WORKERS, &workers_request, (void **)&workers, err))
      return err->code;
    n_workers = (int)workers->n_workers;
    weir__list_workers_reply__free_unpacked(workers, NULL);
    if (n_servers < launcher->options.servers || n_workers < launcher->options.workers)
      stop_wait(20);
  }
  return ERR_OK;
}

void launcher_explain(struct launcher *launcher, struct err *err) {
  pthread_mutex_lock(&launcher->lock);
  if (launcher->lost)
    child_explain(launcher->lost, err);
  else
    err_set(err, ERR_INTERNAL, "a process of the cluster was lost (see %s)", launcher->options.logs);
  pthread_mutex_unlock(&launcher->lock);
}

void launcher_stop(struct launcher *launcher) {
  uint64_t until_ns = clock_now_ns() + STOP_SECONDS * UINT64_C(1000000000);
  if (!launcher)
    return;
  pthread_mutex_lock(&launcher->lock);
  launcher->is_stopping = true;
  pthread_cond_broadcast(&launcher->changed);
  kill_locked(launcher, SIGTERM);
  while (is_running_locked(launcher) && wait_changed_locked(launcher, until_ns))
    continue;
  kill_locked(launcher, SIGKILL);
  pthread_mutex_unlock(&launcher->lock);
  if (launcher->is_supervised)
    pthread_join(launcher->supervisor, NULL);
  for (int i = 0; i < launcher->n_children; i++)
    child_fini(&launcher->children[i]);
  free(launcher->children);
  pthread_mutex_destroy(&launcher->lock);
  pthread_cond_destroy(&launcher->changed);
  free(launcher);
}

/* The thread that reaps: until all are gone and none is to come. */
static void *supervise(void *arg) {
  struct launcher *launcher = arg;
  bool is_over = false;
  while (!is_over) {
    int status;
    pid_t pid = waitpid(-1, &status, 0);
    bool has_none = pid < 0 && errno == ECHILD;
    pthread_mutex_lock(&launcher->lock);
    if (pid > 0)
      child_died_locked(launcher, pid, status);
    else if (has_none && launcher->is_stopping)
      is_over = true;
    else if (has_none && !is_running_locked(launcher))
      pthread_cond_wait(&launcher->changed, &launcher->lock);
    pthread_mutex_unlock(&launcher->lock);
  }
  return NULL;
}

static void child_died_locked(struct launcher *launcher, pid_t pid, int status) {
  for (int i = 0; i < launcher->n_children; i++) {
    struct child *child = &launcher->children[i];
    if (child->pid != pid)
      continue;
    child->pid = 0;
    child->status = status;
    pthread_cond_broadcast(&launcher->changed);
    if (launcher->is_stopping || child_restart_locked(launcher, child) || !is_final_locked(launcher, child))
      return;
    if (!launcher->lost)
      launcher->lost = child;
    stop_request(STOP_CHILD);
    return;
  }
}

/* True when a worker runs again, or the launcher is being stopped. One that left with status 0 was told to.
 */
static bool child_restart_locked(struct launcher *launcher, struct child *child) {
  struct err err = ERR_NONE;
  uint64_t now_ns = clock_now_ns(), until_ns;
  if (child->role != CHILD_WORKER || !launcher->options.restart || child->status == 0)
    return false;
  child->quick_deaths =
      now_ns - child->started_ns < QUICK_SECONDS * UINT64_C(1000000000) ? child->quick_deaths + 1 : 0;
  if (child->quick_deaths >= QUICK_DEATHS_MAX)
    return false;
  until_ns = now_ns + (uint64_t)rpc_backoff_ms(child->quick_deaths) * UINT64_C(1000000);
  while (!launcher->is_stopping && wait_changed_locked(launcher, until_ns))
    continue;
  return launcher->is_stopping || child_start(child, -1, &err) == 0;
}

/* Without this child the run cannot go on: all but a worker that was not to be restarted and is not the last.
 */
static bool is_final_locked(const struct launcher *launcher, const struct child *child) {
  if (child->role != CHILD_WORKER || (launcher->options.restart && child->status != 0))
    return true;
  for (int i = 0; i < launcher->n_children; i++)
    if (launcher->children[i].role == CHILD_WORKER && launcher->children[i].pid > 0)
      return false;
  return true;
}

/* False when until_ns has come. */
static bool wait_changed_locked(struct launcher *launcher, uint64_t until_ns) {
  uint64_t now_ns = clock_now_ns(), left_ns = until_ns > now_ns ? until_ns - now_ns : 0;
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += (time_t)(left_ns / 1000000000u);
  until.tv_nsec += (long)(left_ns % 1000000000u);
  until.tv_sec += until.tv_nsec / 1000000000L;
  until.tv_nsec %= 1000000000L;
  return pthread_cond_timedwait(&launcher->changed, &launcher->lock, &until) == 0;
}

static bool is_running_locked(const struct launcher *launcher) {
  for (int i = 0; i < launcher->n_children; i++)
    if (launcher->children[i].pid > 0)
      return true;
  return false;
}

static void kill_locked(struct launcher *launcher, int signal_number) {
  for (int i = 0; i < launcher->n_children; i++)
    if (launcher->children[i].pid > 0)
      kill(launcher->children[i].pid, signal_number);
}
