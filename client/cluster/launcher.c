/* A private cluster on this machine. */
#include "client/cluster/launcher.h"

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

#include "client/cluster/child.h"
#include "client/files/socket_folder.h"
#include "client/cluster/stop.h"
#include "common/base/clock.h"
#include "common/base/memory.h"
#include "common/machine/cores.h"
#include "training.pb-c.h"

enum {
  START_SECONDS = 30,   /* for the coordinator to listen */
  MEMBERS_SECONDS = 60, /* for all to join */
  STOP_MS = 5000,       /* from SIGTERM to SIGKILL */
  QUICK_SECONDS = 3,    /* a death so soon after the start is a quick one */
  QUICK_DEATHS_MAX = 8,
  SERVER_THREADS_MIN = 2,
  SERVER_THREADS_MAX = 16,
  ADDRESS_MAX = 128,
};

struct launcher {
  struct launcher_options options; /* its texts are the caller's until launcher_start returns */
  char address[ADDRESS_MAX];
  char **environment; /* of the children: ours and the store */
  char *store;        /* its last entry but NULL */
  char *data_root;
  char *sockets; /* unix:/FOLDER of the children's sockets; NULL: they listen on ports */
  char *device, *memory, *trace, *tls; /* NULL: not given */
  struct labels labels;
  pthread_t supervisor;
  bool is_supervised;

  pthread_mutex_t lock;
  pthread_cond_t changed; /* a child was started or died, or is_stopping was set */
  struct child *children; /* all are allocated before the first is started */
  int n_children;
  const struct child *lost; /* whose death was final; NULL: none */
  bool is_stopping;
  bool is_complete; /* all have joined once */
};

static int launcher_prepare(struct launcher *launcher, struct err *err);
static int launcher_start_coordinator(struct launcher *launcher, struct err *err);
static int launcher_start_members(struct launcher *launcher, struct err *err);
static int launcher_read_address(struct launcher *launcher, struct child *child, int fd,
                                 char address[ADDRESS_MAX], struct err *err);
static int launcher_start_child(struct launcher *launcher, struct child *child, int *announced_fd,
                                struct err *err);
static void launcher_set_environment(struct launcher *launcher);
static void child_set_arguments(const struct launcher *launcher, struct child *child, int announce_fd);
static void worker_set_arguments(const struct launcher *launcher, struct child *child);
static void launcher_set_complete(struct launcher *launcher);
static int count_members(struct connection *connection, int *n_servers, int *n_workers, struct err *err);
static void *supervisor_main(void *arg);
static void child_died_locked(struct launcher *launcher, pid_t pid, int status);
static bool child_restart_locked(struct launcher *launcher, struct child *child);
static bool has_left(const struct child *child);
static bool is_final_locked(const struct launcher *launcher, const struct child *child);
static bool wait_changed_locked(struct launcher *launcher, const struct timespec *until);
static bool is_running_locked(const struct launcher *launcher);
static void kill_locked(struct launcher *launcher, int signal_number);

int launcher_threads(int given, int workers) {
  int cores = cores_available("");
  if (given > 0)
    return given;
  return cores > workers ? cores / workers : 1;
}

int launcher_server_threads(int servers) {
  int share = launcher_threads(0, servers);
  return share < SERVER_THREADS_MIN   ? SERVER_THREADS_MIN
         : share < SERVER_THREADS_MAX ? share
                                      : SERVER_THREADS_MAX;
}

int launcher_start(const struct launcher_options *options, struct launcher **out, struct err *err) {
  struct launcher *launcher = mem_new(sizeof *launcher);
  launcher->options = *options;
  launcher->data_root = mem_strdup(options->data_root);
  launcher->device = options->device ? mem_strdup(options->device) : NULL;
  launcher->memory = options->memory ? mem_strdup(options->memory) : NULL;
  launcher->trace = options->trace ? mem_strdup(options->trace) : NULL;
  launcher->tls = options->tls ? mem_strdup(options->tls) : NULL;
  launcher->labels = labels_copy(options->labels);
  pthread_mutex_init(&launcher->lock, NULL);
  clock_condition_init(&launcher->changed);
  if (rpc_tls_check(options->tls, CERT_ALL, err) ||
      (options->sockets && socket_folder_make(&launcher->sockets, err)) || launcher_prepare(launcher, err) ||
      launcher_start_coordinator(launcher, err) || launcher_start_members(launcher, err)) {
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
  launcher_set_environment(launcher);
  return ERR_OK;
}

/* A command line can be read by everyone on this machine, an environment cannot. WEIR_TLS and
   WEIR_INSECURE are for clusters of others; of WEIR_HTTP only one process could have the port. */
static void launcher_set_environment(struct launcher *launcher) {
  int n = 0;
  while (environ[n])
    n++;
  launcher->environment = mem_new(((size_t)n + 2) * sizeof *launcher->environment);
  launcher->store = mem_printf("WEIR_STORE=%s", launcher->options.store);
  n = 0;
  for (char **entry = environ; *entry; entry++)
    if (strncmp(*entry, "WEIR_STORE=", strlen("WEIR_STORE=")) != 0 &&
        strncmp(*entry, "WEIR_TLS=", strlen("WEIR_TLS=")) != 0 &&
        strncmp(*entry, "WEIR_HTTP=", strlen("WEIR_HTTP=")) != 0 &&
        strncmp(*entry, "WEIR_INSECURE=", strlen("WEIR_INSECURE=")) != 0)
      launcher->environment[n++] = *entry;
  launcher->environment[n] = launcher->store;
  for (int i = 0; i < launcher->n_children; i++)
    launcher->children[i].environment = launcher->environment;
}

static int launcher_start_coordinator(struct launcher *launcher, struct err *err) {
  struct child *child = &launcher->children[0];
  int fd = -1;
  if (launcher_start_child(launcher, child, &fd, err))
    return err->code;
  CHECK(pthread_create(&launcher->supervisor, NULL, supervisor_main, launcher) == 0);
  launcher->is_supervised = true;
  launcher_read_address(launcher, child, fd, launcher->address, err);
  close(fd);
  return err->code;
}

/* All at once, as they need the coordinator alone; then the servers' ports: those that they get again when
   they are started again. */
static int launcher_start_members(struct launcher *launcher, struct err *err) {
  int n_servers = launcher->options.servers;
  int *fds = mem_new((size_t)n_servers * sizeof *fds);
  for (int i = 0; i < n_servers; i++)
    fds[i] = -1;
  for (int i = 1; i < launcher->n_children && err->code == ERR_OK; i++)
    launcher_start_child(launcher, &launcher->children[i], i <= n_servers ? &fds[i - 1] : NULL, err);
  for (int i = 0; i < n_servers && err->code == ERR_OK; i++) {
    char address[ADDRESS_MAX];
    launcher_read_address(launcher, &launcher->children[1 + i], fds[i], address, err);
  }
  for (int i = 0; i < n_servers; i++)
    if (fds[i] >= 0)
      close(fds[i]);
  free(fds);
  return err->code;
}

/* A server writes its address and a line end once it listens, then closes its end. One that dies before is
   started again by the supervisor, on another port that nobody is told: fine for parameter servers. */
static int launcher_read_address(struct launcher *launcher, struct child *child, int fd,
                                 char address[ADDRESS_MAX], struct err *err) {
  uint64_t until_ns = clock_now_ns() + START_SECONDS * UINT64_C(1000000000);
  size_t length = 0;
  memset(address, 0, ADDRESS_MAX);
  while (!memchr(address, '\n', length)) {
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    ssize_t n = poll(&ready, 1, 100) > 0 ? read(fd, address + length, ADDRESS_MAX - 1 - length) : -1;
    if (n > 0)
      length += (size_t)n;
    if (stop_cause() == STOP_SIGNAL)
      return err_set(err, ERR_CANCELLED, "interrupted");
    if (n == 0 && child->role == CHILD_SERVER)
      return ERR_OK;
    if (n == 0) { /* it is gone: what follows says how */
      while (stop_cause() == STOP_NONE && clock_now_ns() < until_ns)
        stop_wait(100);
      launcher_explain(launcher, err);
      return err->code;
    }
    if (clock_now_ns() > until_ns)
      return err_set(err, ERR_INTERNAL, "%s does not listen after %d s (see %s)", child->name, START_SECONDS,
                     child->log);
  }
  address[strcspn(address, "\n")] = '\0';
  pthread_mutex_lock(&launcher->lock);
  child->port = !launcher->sockets && strrchr(address, ':') ? atoi(strrchr(address, ':') + 1) : 0;
  child->has_listened = true;
  pthread_mutex_unlock(&launcher->lock);
  return ERR_OK;
}

/* announced_fd: NULL, or where the child's address can be read from; closed by the caller. */
static int launcher_start_child(struct launcher *launcher, struct child *child, int *announced_fd,
                                struct err *err) {
  int ends[2] = {-1, -1};
  if (announced_fd && pipe2(ends, O_CLOEXEC))
    return err_errno(err, errno, "cannot start %s", child->name);
  pthread_mutex_lock(&launcher->lock);
  child_set_arguments(launcher, child, ends[1]);
  child_start(child, ends[1], err);
  pthread_cond_broadcast(&launcher->changed);
  pthread_mutex_unlock(&launcher->lock);
  if (announced_fd) {
    close(ends[1]);
    *announced_fd = ends[0];
  }
  return err->code;
}

static void child_set_arguments(const struct launcher *launcher, struct child *child, int announce_fd) {
  child_clear_arguments(child);
  if (child->role == CHILD_WORKER) {
    child_argument(child, "--threads=%d", launcher->options.threads);
    child_argument(child, "--data-root=%s", launcher->data_root);
    child_argument(child, "--follow-links"); /* who starts it has made the spec and reads the data himself */
    if (launcher->memory)
      child_argument(child, "--memory=%s", launcher->memory);
    worker_set_arguments(launcher, child);
  } else {
    child_argument(child, child->role == CHILD_COORDINATOR ? "--role=coordinator" : "--role=parameters");
    if (launcher->sockets)
      child_argument(child, "--listen=%s/%s", launcher->sockets, child->name);
    else
      child_argument(child, "--listen=127.0.0.1:%d", child->port);
    if (child->role == CHILD_SERVER)
      child_argument(child, "--threads=%d", launcher_server_threads(launcher->options.servers));
    if (announce_fd >= 0)
      child_argument(child, "--announce-fd=%d", announce_fd);
  }
  if (child->role != CHILD_COORDINATOR)
    child_argument(child, "--coordinator=%s", launcher->address);
  if (child->role != CHILD_WORKER && launcher->options.is_insecure)
    child_argument(child, "--insecure");
  if (launcher->tls)
    child_argument(child, "--tls=%s", launcher->tls);
}

/* Of several GPUs, worker i of n gets i, i + n, ...; where there are more workers than GPUs, some share one.
 */
static void worker_set_arguments(const struct launcher *launcher, struct child *child) {
  int workers = launcher->options.workers;
  int worker = (int)(child - launcher->children) - 1 - launcher->options.servers;
  const char *trace = launcher->trace, *slash, *dot;
  for (size_t i = 0; i < launcher->labels.n; i++)
    child_argument(child, "--label=%s=%s", launcher->labels.list[i]->key, launcher->labels.list[i]->value);
  if (launcher->device) {
    char *device = launcher_deal_device(launcher->device, worker, workers);
    child_argument(child, "--device=%s", device);
    free(device);
  }
  if (!trace)
    return;
  slash = strrchr(trace, '/');
  dot = strrchr(slash ? slash : trace, '.');
  if (workers == 1)
    child_argument(child, "--trace=%s", trace);
  else if (dot)
    child_argument(child, "--trace=%.*s-%d%s", (int)(dot - trace), trace, worker + 1, dot);
  else
    child_argument(child, "--trace=%s-%d", trace, worker + 1);
}

const char *launcher_address(const struct launcher *launcher) {
  return launcher->address;
}

int launcher_wait_members(struct launcher *launcher, struct connection *connection, struct err *err) {
  uint64_t until_ns = clock_now_ns() + MEMBERS_SECONDS * UINT64_C(1000000000);
  for (;;) {
    int n_servers = 0, n_workers = 0;
    *err = ERR_NONE;
    if (stop_cause() == STOP_SIGNAL)
      return err_set(err, ERR_CANCELLED, "interrupted");
    if (stop_cause() == STOP_CHILD) {
      launcher_explain(launcher, err);
      return err->code;
    }
    if (count_members(connection, &n_servers, &n_workers, err) && !err_is_retryable(err->code))
      return err->code;
    if (err->code == ERR_OK && n_servers >= launcher->options.servers &&
        n_workers >= launcher->options.workers) {
      launcher_set_complete(launcher);
      return ERR_OK;
    }
    if (clock_now_ns() > until_ns && err->code) /* it was started, but does not lead */
      return err->code;
    if (clock_now_ns() > until_ns)
      return err_set(err, ERR_INTERNAL, "only %d of %d servers and %d of %d workers have joined after %d s",
                     n_servers, launcher->options.servers, n_workers, launcher->options.workers,
                     MEMBERS_SECONDS);
    stop_wait(20);
  }
}

static void launcher_set_complete(struct launcher *launcher) {
  pthread_mutex_lock(&launcher->lock);
  launcher->is_complete = true;
  pthread_mutex_unlock(&launcher->lock);
}

static int count_members(struct connection *connection, int *n_servers, int *n_workers, struct err *err) {
  Weir__ListServersRequest servers_request = WEIR__LIST_SERVERS_REQUEST__INIT;
  Weir__ListWorkersRequest workers_request = WEIR__LIST_WORKERS_REQUEST__INIT;
  Weir__ListServersReply *servers;
  Weir__ListWorkersReply *workers;
  if (connection_call(connection, RPC_LIST_SERVERS, &servers_request, (void **)&servers, err))
    return err->code;
  *n_servers = (int)servers->n_servers;
  weir__list_servers_reply__free_unpacked(servers, NULL);
  if (connection_call(connection, RPC_LIST_WORKERS, &workers_request, (void **)&workers, err))
    return err->code;
  *n_workers = (int)workers->n_workers;
  weir__list_workers_reply__free_unpacked(workers, NULL);
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
  const struct timespec until = clock_after_ms(STOP_MS);
  if (!launcher)
    return;
  pthread_mutex_lock(&launcher->lock);
  launcher->is_stopping = true;
  pthread_cond_broadcast(&launcher->changed);
  kill_locked(launcher, SIGTERM);
  while (is_running_locked(launcher) && wait_changed_locked(launcher, &until))
    continue;
  kill_locked(launcher, SIGKILL);
  pthread_mutex_unlock(&launcher->lock);
  if (launcher->is_supervised)
    pthread_join(launcher->supervisor, NULL);
  for (int i = 0; i < launcher->n_children; i++)
    child_fini(&launcher->children[i]);
  free(launcher->children);
  free(launcher->environment);
  free(launcher->store);
  socket_folder_remove(launcher->sockets);
  free(launcher->data_root);
  free(launcher->device);
  free(launcher->memory);
  free(launcher->trace);
  free(launcher->tls);
  labels_free(&launcher->labels);
  pthread_mutex_destroy(&launcher->lock);
  pthread_cond_destroy(&launcher->changed);
  free(launcher);
}

/* The thread that reaps: until all are gone and none is to come. */
static void *supervisor_main(void *arg) {
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

/* True when it runs again, or the launcher is being stopped. A worker that left with status 0 was told to. */
static bool child_restart_locked(struct launcher *launcher, struct child *child) {
  struct err err = ERR_NONE;
  struct timespec until;
  if (!launcher->options.restart || has_left(child) || child_cannot_work(child))
    return false;
  if (child->role == CHILD_COORDINATOR && !child->has_listened)
    return false;
  child->quick_deaths =
      clock_now_ns() - child->started_ns < QUICK_SECONDS * UINT64_C(1000000000) ? child->quick_deaths + 1 : 0;
  if (child->quick_deaths >= QUICK_DEATHS_MAX)
    return false;
  until = clock_after_ms(rpc_backoff_ms(child->quick_deaths));
  while (!launcher->is_stopping && wait_changed_locked(launcher, &until))
    continue;
  if (launcher->is_stopping)
    return true;
  child_set_arguments(launcher, child, -1);
  return child_start(child, -1, &err) == 0;
}

static bool has_left(const struct child *child) {
  return child->role == CHILD_WORKER && child->status == 0;
}

/* Without this child the run cannot go on: one that dies over and over, the coordinator, the last of its
   role, or a worker that was asked for and cannot work. */
static bool is_final_locked(const struct launcher *launcher, const struct child *child) {
  bool can_not = child_cannot_work(child);
  if (child->role == CHILD_COORDINATOR || (can_not && !launcher->is_complete))
    return true;
  if (launcher->options.restart && !has_left(child) && !can_not)
    return true;
  for (int i = 0; i < launcher->n_children; i++)
    if (launcher->children[i].role == child->role && launcher->children[i].pid > 0)
      return false;
  return true;
}

/* False when that time has come. */
static bool wait_changed_locked(struct launcher *launcher, const struct timespec *until) {
  return pthread_cond_timedwait(&launcher->changed, &launcher->lock, until) == 0;
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
