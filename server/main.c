/* weir-server: the coordinator, the parameter server, or both, in one process. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/log.h"
#include "common/memory.h"
#include "server/coordinator/service.h"
#include "server/options.h"
#include "server/parameters/parameters.h"
#include "storage/store.h"

enum {
  EXIT_FAILED = 1,
  EXIT_BAD_INPUT = 2,
  THREADS_DEFAULT_MAX = 4,
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
};

static int process_start(struct process *process, struct err *err);
static int start_services(struct process *process, struct err *err);
static void join_coordinator(struct process *process, const char *coordinator, const char *address);
static int announce(int fd, const char *address, struct err *err);
static void process_stop(struct process *process);
static void block_signals(sigset_t *signals);

int main(int argc, char **argv) {
  struct process process = {0};
  struct err err = ERR_NONE;
  sigset_t signals;
  int status, signal_number;
  if (!server_options_parse(argc, argv, &process.options, &status))
    return status;
  block_signals(&signals);
  if (process_start(&process, &err)) {
    fprintf(stderr, "weir-server: %s\n", err.text);
    status = err.code == ERR_INVALID ? EXIT_BAD_INPUT : EXIT_FAILED;
  } else {
    sigwait(&signals, &signal_number);
    log_event(LOG_INFO, "server", "stopping", "signal=%s", strsignal(signal_number));
  }
  process_stop(&process);
  return status;
}

/* Before any thread is started, so that all inherit it and sigwait alone gets them. */
static void block_signals(sigset_t *signals) {
  sigemptyset(signals);
  sigaddset(signals, SIGTERM);
  sigaddset(signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, signals, NULL);
  signal(SIGPIPE, SIG_IGN);
}

static int process_start(struct process *process, struct err *err) {
  const struct server_options *options = &process->options;
  char *address = NULL, *own = NULL;
  int rc = store_open(options->store, &process->store, err);
  if (!rc)
    rc = start_services(process, err);
  if (rc)
    return rc;
  address = server_options_address(options, rpc_server_port(process->server));
  own = server_options_own_address(options, rpc_server_port(process->server));
  log_event(LOG_INFO, "server", "serving", "address=%s coordinator=%d parameters=%d store=\"%s\" build=%s",
            own, options->is_coordinator, options->is_parameters, options->store, WEIR_BUILD);
  if (process->parameters)
    join_coordinator(process, process->coordinator ? own : options->coordinator, address);
  if (options->announce_fd >= 0)
    rc = announce(options->announce_fd, own, err);
  free(address);
  free(own);
  return rc;
}

static int start_services(struct process *process, struct err *err) {
  const struct server_options *options = &process->options;
  long cores = sysconf(_SC_NPROCESSORS_ONLN);
  struct rpc_service services[SERVICES_MAX];
  struct rpc_server_options server_options = {.listen = options->listen,
                                              .services = services,
                                              .threads = options->threads              ? options->threads
                                                         : cores > THREADS_DEFAULT_MAX ? THREADS_DEFAULT_MAX
                                                                                       : (int)cores};
  if (options->is_coordinator) {
    process->coordinator =
        coordinator_service_new(&(struct coordinator_service_options){.store = process->store});
    for (int i = 0; i < COORDINATOR_SERVICES; i++)
      services[server_options.n_services++] = coordinator_service_list(process->coordinator)[i];
  }
  if (options->is_parameters) {
    process->parameters =
        parameters_new(&(struct parameters_options){.store = process->store, .shards = options->threads});
    services[server_options.n_services++] = *parameters_service(process->parameters);
  }
  return rpc_server_start(&server_options, &process->server, err);
}

static void join_coordinator(struct process *process, const char *coordinator, const char *address) {
  Weir__Hello hello = WEIR__HELLO__INIT;
  char host[256] = "unknown";
  gethostname(host, sizeof host - 1);
  hello.role = WEIR__ROLE__SERVER;
  hello.host = host;
  hello.pid = (uint32_t)getpid();
  hello.address = (char *)address;
  hello.fingerprint = "build " WEIR_BUILD;
  process->client = rpc_client_new(1);
  parameters_join(process->parameters, process->client, coordinator, &hello);
}

static int announce(int fd, const char *address, struct err *err) {
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
}
