/* weir drain: a worker or a server hands over what it has and is given no more. */
#include <stdio.h>
#include <string.h>

#include "client/cluster/connect.h"
#include "client/cluster/stop.h"
#include "client/command.h"
#include "client/terminal/output.h"
#include "common/base/clock.h"

/* AWAY_MAX_MS: how long a coordinator may be away while it is waited for. */
enum { LOOK_MS = 200, AWAY_MAX_MS = 60000 };

/* Whether the member has nothing any more, or is gone. */
typedef int (*is_free_function)(struct connection *connection, const char *id, bool *is_free,
                                struct err *err);

static int drain_worker(struct connection *connection, const char *id, struct err *err) {
  Weir__DrainRequest request = WEIR__DRAIN_REQUEST__INIT;
  Weir__WorkerInfo *worker;
  request.worker = (char *)id;
  if (connection_call(connection, RPC_DRAIN_WORKER, &request, (void **)&worker, err))
    return err->code;
  output_clean(worker->host);
  printf("%s (%s, pid %u) is draining\n", worker->id, worker->host, worker->pid);
  weir__worker_info__free_unpacked(worker, NULL);
  return 0;
}

static int drain_server(struct connection *connection, const char *id, struct err *err) {
  Weir__DrainServerRequest request = WEIR__DRAIN_SERVER_REQUEST__INIT;
  Weir__ServerInfo *server;
  request.server = (char *)id;
  if (connection_call(connection, RPC_DRAIN_SERVER, &request, (void **)&server, err))
    return err->code;
  output_clean(server->host);
  printf("%s (%s, pid %u) is draining: ", server->id, server->host, server->pid);
  if (server->runs)
    printf("it has blocks of %u run%s\n", server->runs, server->runs == 1 ? "" : "s");
  else
    printf("it may be stopped\n");
  weir__server_info__free_unpacked(server, NULL);
  return 0;
}

static int is_worker_free(struct connection *connection, const char *id, bool *is_free, struct err *err) {
  Weir__ListWorkersRequest request = WEIR__LIST_WORKERS_REQUEST__INIT;
  Weir__ListWorkersReply *reply;
  if (connection_call(connection, RPC_LIST_WORKERS, &request, (void **)&reply, err))
    return err->code;
  *is_free = true;
  for (size_t i = 0; i < reply->n_workers; i++)
    *is_free &= strcmp(reply->workers[i]->id, id) != 0 || !*reply->workers[i]->run;
  weir__list_workers_reply__free_unpacked(reply, NULL);
  return 0;
}

static int is_server_free(struct connection *connection, const char *id, bool *is_free, struct err *err) {
  Weir__ListServersRequest request = WEIR__LIST_SERVERS_REQUEST__INIT;
  Weir__ListServersReply *reply;
  if (connection_call(connection, RPC_LIST_SERVERS, &request, (void **)&reply, err))
    return err->code;
  *is_free = true;
  for (size_t i = 0; i < reply->n_servers; i++)
    *is_free &= strcmp(reply->servers[i]->id, id) != 0 || reply->servers[i]->runs == 0;
  weir__list_servers_reply__free_unpacked(reply, NULL);
  return 0;
}

/* The coordinator may be started again meanwhile. */
static int drain_wait(struct connection *connection, const char *id, is_free_function ask, struct err *err) {
  uint64_t heard_ns = clock_now_ns();
  bool is_free = false;
  for (;;) {
    int code = ask(connection, id, &is_free, err);
    uint64_t now_ns = clock_now_ns();
    if (!code && is_free) {
      printf("%s may be stopped\n", id);
      return 0;
    }
    if (code && ((code != ERR_UNAVAILABLE && code != ERR_TIMEOUT) ||
                 now_ns - heard_ns > (uint64_t)AWAY_MAX_MS * 1000000))
      return code;
    if (!code)
      heard_ns = now_ns;
    *err = (struct err)ERR_NONE;
    if (stop_wait(LOOK_MS))
      return err_set(err, ERR_CANCELLED, "%s goes on draining", id);
  }
}

static int drain_run(const struct args *args) {
  const char *id = args->arguments[0];
  bool is_server = id[0] == 's'; /* who mistypes an id begins it right */
  struct connection connection = {0};
  struct err err = ERR_NONE;
  int code;
  stop_on_signals();
  code = connection_open(&connection, args->coordinator, &args->security, &err);
  if (!code)
    code = is_server ? drain_server(&connection, id, &err) : drain_worker(&connection, id, &err);
  fflush(stdout);
  if (!code && args_flag(args, "wait"))
    code = drain_wait(&connection, id, is_server ? is_server_free : is_worker_free, &err);
  connection_close(&connection);
  return code ? command_fail(&err) : EXIT_DONE;
}

static const struct option_def drain_options[] = {
    {.name = "wait",
     .kind = OPTION_FLAG,
     .help = "wait until the worker computes nothing, or no run has blocks on the server, and say so."},
    {0}};

const struct command_def command_drain = {
    .name = "drain",
    .summary = "give a worker or a server no more, before its machine is taken away",
    .arguments = "WORKER|SERVER",
    .min_arguments = 1,
    .max_arguments = 1,
    .takes_coordinator = true,
    .description =
        "WORKER, an id that `weir workers` lists, hands over its work to the other workers of its run and is "
        "given no more, by this coordinator or another one. Its process goes on, in the state draining, "
        "until somebody ends it: started again it is a new worker. The run's result does not change.\n\n"
        "SERVER, an id that `weir servers` lists, is given no more blocks either, and those that it has move "
        "to the other servers: each run stands at its next version until that is checkpointed, and goes on "
        "from it, so no step is computed twice and no bit changes. A run for which the other servers have no "
        "room stays until they have. `weir servers` says how many runs have blocks on it; where there are "
        "none it may be stopped. The last server cannot be drained.",
    .options = drain_options,
    .if_interrupted = "Ctrl-C: --wait waits no more, the draining goes on",
    .examples = "weir drain worker-3\nweir drain server-2 --wait\n",
    .run = drain_run,
};
