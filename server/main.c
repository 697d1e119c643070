/* weir-server: the coordinator, the parameter server, or both, in one process. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "build_id.h"
#include "common/agree/float_setting.h"
#include "common/agree/libm.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/memory.h"
#include "common/compress/compressor.h"
#include "common/http/metrics_page.h"
#include "common/machine/cores.h"
#include "common/manager/notify.h"
#include "common/manager/standard_files.h"
#include "common/share/share_host.h"
#include "server/coordinator/shell/service.h"
#include "server/options.h"
#include "server/parameters/parameters.h"
#include "storage/store.h"

enum {
  EXIT_FAILED = 1,
  EXIT_BAD_INPUT = 2,
  THREADS_DEFAULT_MAX = 16,
  SETTLE_MS = 5000,
  LOOK_S = 1, /* at files that may change */
  LEAVE_LOOK_MS = 50,
  RECEIVED_BYTES_MAX = 128 * 1024 * 1024, /* of gradients that come, or wait for their shard */
  DEPOSED_SIGNAL = SIGUSR1,               /* of ours to ourselves */
  SERVICES_MAX = COORDINATOR_SERVICES + 1
};

/* Everything that runs; NULL what does not. */
struct process {
  struct server_options options;
  struct store *store;
  struct coordinator_service *coordinator;
  struct parameters *parameters;
  struct rpc_client *client;
  struct rpc_server *server;
  struct metric_source measures[2];
  struct metrics_page *metrics;
  char *deposed; /* atomic: why the coordinator may not go on; NULL: it may */
};

static int wait_for_end(struct process *process, const sigset_t *signals);
static int process_start(struct process *process, const sigset_t *signals, struct err *err);
static int open_store(struct process *process, const sigset_t *signals, struct err *err);
static int start_services(struct process *process, struct err *err);
static int open_metrics(struct process *process, struct err *err);
static void begin_to_lead(struct process *process, const char *own, const char *address);
static void join_coordinator(struct process *process, const char *coordinator, const char *address);
static int address_announce(int fd, const char *address, struct err *err);
static void process_stop(struct process *process);
static void block_signals(sigset_t *signals);
static void leave_in_order(struct process *process, const sigset_t *signals);

STANDARD_FILES_OPEN_FIRST;

int main(int argc, char **argv) {
  struct process process = {0};
  struct err err = ERR_NONE;
  sigset_t signals;
  int status;
  float_setting_apply();
  if (!server_options_parse(argc, argv, &process.options, &status))
    return status;
  rpc_security_warn(&process.options.security);
  block_signals(&signals);
  if (process_start(&process, &signals, &err) == 0) {
    status = wait_for_end(&process, &signals);
    leave_in_order(&process, &signals);
  } else if (err.code != ERR_CANCELLED) {
    fprintf(stderr, "weir-server: %s\n", err.text);
    status = err.code == ERR_INVALID ? EXIT_BAD_INPUT : EXIT_FAILED;
  }
  process_stop(&process);
  return status;
}

/* Before any thread is started, so that all inherit it and only who waits for them gets them. */
static void block_signals(sigset_t *signals) {
  sigemptyset(signals);
  sigaddset(signals, SIGTERM);
  sigaddset(signals, SIGINT);
  sigaddset(signals, DEPOSED_SIGNAL);
  pthread_sigmask(SIG_BLOCK, signals, NULL);
  signal(SIGPIPE, SIG_IGN);
}

static void look_at_quotas(struct process *process) {
  struct quotas quotas = {0};
  if (process->options.quota_file.path && quota_file_look(&process->options.quota_file, &quotas))
    coordinator_service_set_quotas(process->coordinator, &quotas);
}

/* Returns the exit status. */
static int wait_for_end(struct process *process, const sigset_t *signals) {
  const char *deposed = NULL;
  int signal_number;
  do {
    signal_number = sigtimedwait(signals, NULL, &(struct timespec){.tv_sec = LOOK_S});
    deposed = __atomic_load_n(&process->deposed, __ATOMIC_ACQUIRE);
    if (signal_number < 0)
      look_at_quotas(process);
  } while (signal_number < 0 || (signal_number == DEPOSED_SIGNAL && !deposed));
  notify_manager("STOPPING=1");
  if (deposed)
    fprintf(stderr, "weir-server: %s\n", deposed);
  else
    log_event(LOG_INFO, "server", "stopping", "signal=%s", strsignal(signal_number));
  return deposed ? EXIT_FAILED : 0;
}

/* Until other servers have the blocks, --leave-limit is over, or another signal comes. */
static void leave_in_order(struct process *process, const sigset_t *signals) {
  struct timespec pause = {.tv_nsec = LEAVE_LOOK_MS * 1000000};
  uint64_t until_ns = clock_now_ns() + (uint64_t)process->options.leave_limit_s * 1000000000;
  if (!process->options.leave_limit_s)
    return;
  notify_manager("STATUS=hands its blocks over");
  parameters_ask_to_leave(process->parameters);
  while (!parameters_may_leave(process->parameters)) {
    if (clock_now_ns() >= until_ns || sigtimedwait(signals, NULL, &pause) > 0) {
      log_event(LOG_WARN, "server", "leaves_with_blocks", "limit_seconds=%d", process->options.leave_limit_s);
      return;
    }
  }
}

/* CANCELLED when a signal came first. */
static int process_start(struct process *process, const sigset_t *signals, struct err *err) {
  const struct server_options *options = &process->options;
  char *address = NULL, *own = NULL, *store = NULL;
  int rc = open_store(process, signals, err);
  if (!rc)
    rc = start_services(process, err);
  if (!rc)
    rc = open_metrics(process, err);
  if (rc)
    return rc;
  address = server_options_address(options, rpc_server_port(process->server));
  own = server_options_own_address(options, rpc_server_port(process->server));
  store = store_url_redacted(options->store);
  log_event(LOG_INFO, "server", "serving",
            "address=%s coordinator=%d parameters=%d store=\"%s\" tls=%d build=%s", own,
            options->is_coordinator, options->is_parameters, store, options->tls != NULL, WEIR_BUILD);
  notify_manager("STATUS=%s at %s", options->is_coordinator ? "stands by" : "serves", own);
  if (process->coordinator)
    begin_to_lead(process, own, address);
  if (process->parameters)
    join_coordinator(process, process->coordinator ? own : options->coordinator, address);
  notify_manager("READY=1");
  if (options->announce_fd >= 0)
    rc = address_announce(options->announce_fd, own, err);
  free(store);
  free(address);
  free(own);
  return rc;
}

/* A store that does not answer is tried again for as long as --wait-store says. */
static int open_store(struct process *process, const sigset_t *signals, struct err *err) {
  const struct server_options *options = &process->options;
  uint64_t begun_ns = clock_now_ns();
  if (options->security.is_insecure)
    store_allow_plaintext();
  for (;;) {
    struct timespec pause = {.tv_sec = 1};
    int rc = store_open(options->store, &process->store, err), signal_number;
    bool is_away = rc == ERR_UNAVAILABLE || rc == ERR_TIMEOUT || rc == ERR_IO;
    if (!is_away || options->wait_store_s < 0)
      return rc;
    if (options->wait_store_s > 0 && clock_seconds(clock_now_ns() - begun_ns) >= options->wait_store_s)
      return err_prefix(err, "after %d s", options->wait_store_s);
    log_event(LOG_WARN, "server", "waiting_for_store", "reason=\"%s\"", err->text);
    notify_manager("STATUS=waits for the store: %s", err->text);
    *err = ERR_NONE;
    signal_number = sigtimedwait(signals, NULL, &pause);
    if (signal_number > 0)
      return err_set(err, ERR_CANCELLED, "stopped by %s", strsignal(signal_number));
  }
}

static void on_leading(void *user) {
  struct process *process = user;
  rpc_server_set_serving(process->server, true);
  notify_manager("STATUS=leads");
}

static void on_deposed(void *user, const char *reason) {
  struct process *process = user;
  rpc_server_set_serving(process->server, false);
  __atomic_store_n(&process->deposed, mem_strdup(reason), __ATOMIC_RELEASE);
  kill(getpid(), DEPOSED_SIGNAL);
}

/* Who starts us waits for the announcement, and is served then; unless another leads or the store is away. */
static void begin_to_lead(struct process *process, const char *own, const char *address) {
  char host[256] = "unknown", *holder;
  gethostname(host, sizeof host - 1);
  holder = mem_printf("%s %s", host, own);
  coordinator_service_lead(process->coordinator, holder, address);
  coordinator_service_wait(process->coordinator, SETTLE_MS);
  free(holder);
}

static int start_services(struct process *process, struct err *err) {
  struct server_options *options = &process->options;
  int cores = cores_available("");
  struct rpc_service services[SERVICES_MAX];
  struct rpc_server_options server_options = {.listen = options->listen,
                                              .tls = options->tls,
                                              .is_insecure = options->security.is_insecure,
                                              .services = services,
                                              .begins_not_serving = options->is_coordinator,
                                              .received_bytes_max = RECEIVED_BYTES_MAX,
                                              .threads = options->threads              ? options->threads
                                                         : cores > THREADS_DEFAULT_MAX ? THREADS_DEFAULT_MAX
                                                                                       : cores};
  if (options->is_coordinator) {
    process->coordinator = coordinator_service_new(
        &(struct coordinator_service_options){.store = process->store,
                                              .server_grace_ms = 1000 * options->server_grace_s,
                                              .follow_ms = 1000 * options->follow_limit_s,
                                              .security = options->security,
                                              .quotas = &options->quotas,
                                              .on_leading = on_leading,
                                              .on_deposed = on_deposed,
                                              .user = process});
    for (int i = 0; i < COORDINATOR_SERVICES; i++)
      services[server_options.n_services++] = coordinator_service_list(process->coordinator)[i];
  }
  if (options->is_parameters) {
    process->parameters = parameters_new(&(struct parameters_options){
        .store = process->store, .store_url = options->store, .shards = options->threads});
    services[server_options.n_services++] = *parameters_service(process->parameters);
  }
  return rpc_server_start(&server_options, &process->server, err);
}

static int open_metrics(struct process *process, struct err *err) {
  const struct server_options *options = &process->options;
  struct metrics_page_options page = {
      .listen = options->http,
      .tls = options->tls,
      .is_insecure = options->security.is_insecure,
      .question = {.has_names = options->has_names, .sources = process->measures}};
  struct metric_question *question = &page.question;
  if (!options->http)
    return 0;
  if (process->coordinator) {
    question->programs |= METRIC_COORDINATOR;
    process->measures[question->n_sources++] =
        (struct metric_source){coordinator_service_measure, process->coordinator};
  }
  if (process->parameters) {
    question->programs |= METRIC_SERVER;
    process->measures[question->n_sources++] =
        (struct metric_source){parameters_measure, process->parameters};
  }
  return metrics_page_open(&page, &process->metrics, err);
}

static void join_coordinator(struct process *process, const char *coordinator, const char *address) {
  Weir__Hello hello = WEIR__HELLO__INIT;
  char host[256] = "unknown";
  char *fingerprint = mem_printf("build %s, libm %s", WEIR_BUILD, libm_hash());
  char *shares_with = share_host();
  gethostname(host, sizeof host - 1);
  hello.role = WEIR__ROLE__SERVER;
  hello.compressors = (char **)compressor_names(&hello.n_compressors);
  hello.host = host;
  hello.pid = (uint32_t)getpid();
  hello.address = (char *)address;
  hello.fingerprint = fingerprint;
  hello.memory_bytes = process->options.memory_bytes;
  hello.share_host = shares_with;
  process->client = rpc_client_new(1, process->options.tls);
  if (process->options.security.is_insecure)
    rpc_client_set_insecure(process->client);
  parameters_join(process->parameters, process->client, coordinator, &hello);
  free(fingerprint);
  free(shares_with);
}

static int address_announce(int fd, const char *address, struct err *err) {
  char *line = mem_printf("%s\n", address);
  size_t length = strlen(line);
  ssize_t written = write(fd, line, length);
  free(line);
  if (close(fd) || written != (ssize_t)length)
    return err_set(err, ERR_IO, "--announce-fd: cannot write to descriptor %d", fd);
  return 0;
}

/* The coordinator lets go of its members first: otherwise it would see its own servers die. */
static void process_stop(struct process *process) {
  metrics_page_close(process->metrics);
  if (process->coordinator)
    coordinator_service_stop(process->coordinator);
  if (process->parameters)
    parameters_leave(process->parameters);
  rpc_server_stop(process->server);
  parameters_free(process->parameters);
  coordinator_service_free(process->coordinator);
  if (process->client)
    rpc_client_free(process->client);
  store_close(process->store);
  server_options_fini(&process->options);
  free(process->deposed);
}
