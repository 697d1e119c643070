/* Questions with one answer; what /metrics shows of the coordinator, which the event loop is asked, too. */
#include <string.h>

#include "common/base/log.h"
#include "server/coordinator/core/measures.h"
#include "server/coordinator/messages/info.h"
#include "server/coordinator/messages/layout.h"
#include "server/coordinator/messages/orders.h"
#include "server/coordinator/overview/overview.h"
#include "server/coordinator/overview/series.h"
#include "server/coordinator/recovery/recovery.h"
#include "server/coordinator/shell/shell.h"

static void list_runs(struct coordinator_service *shell, struct rpc_call *call, const struct asked *asked) {
  Weir__ListRunsReply reply;
  struct arena arena;
  arena_init(&arena);
  coordinator_list_runs(shell->core, &asked->viewer, shell_now_ms(), &arena, &reply);
  rpc_call_reply(call, &reply, NULL);
  arena_fini(&arena);
}

static void list_workers(struct coordinator_service *shell, struct rpc_call *call,
                         const struct asked *asked) {
  Weir__ListWorkersReply reply;
  struct arena arena;
  arena_init(&arena);
  coordinator_list_workers(shell->core, &asked->viewer, shell_now_ms(), &arena, &reply);
  rpc_call_reply(call, &reply, NULL);
  arena_fini(&arena);
}

static void readmit_worker(struct coordinator_service *shell, struct rpc_call *call,
                           const struct asked *asked) {
  const Weir__ReadmitRequest *request = asked->message;
  struct coordinator_event event = {.kind = EVENT_WORKER_READMITTED,
                                    .readmitted = {request->worker, &asked->viewer}};
  struct device_name found, device;
  Weir__ListWorkersReply reply;
  struct err err = ERR_NONE;
  struct arena arena;
  if (coordinator_find_quarantine(shell->core, &asked->viewer, request->worker, &found, &err)) {
    rpc_call_finish(call, &err);
    return;
  }
  arena_init(&arena);
  device = (struct device_name){arena_strdup(&arena, found.host), arena_strdup(&arena, found.device)};
  shell_step(shell, &event);
  coordinator_list_device(shell->core, &asked->viewer, &device, &arena, &reply);
  rpc_call_reply(call, &reply, NULL);
  arena_fini(&arena);
}

static bool drain(struct coordinator_service *shell, struct rpc_call *call, const struct viewer *viewer,
                  Weir__Role role, const char *id) {
  struct coordinator_event event = {.kind = EVENT_MEMBER_DRAINED, .drained = id};
  struct err err = ERR_NONE;
  if (coordinator_check_drain(shell->core, viewer, role, id, &err)) {
    rpc_call_finish(call, &err);
    return false;
  }
  shell_step(shell, &event);
  return true;
}

static void drain_worker(struct coordinator_service *shell, struct rpc_call *call,
                         const struct asked *asked) {
  const Weir__DrainRequest *request = asked->message;
  Weir__ListWorkersReply reply;
  struct arena arena;
  if (!drain(shell, call, &asked->viewer, WEIR__ROLE__WORKER, request->worker))
    return;
  arena_init(&arena);
  coordinator_list_workers(shell->core, &asked->viewer, shell_now_ms(), &arena, &reply);
  for (size_t i = 0; i < reply.n_workers; i++)
    if (reply.workers[i]->pid > 0 && strcmp(reply.workers[i]->id, request->worker) == 0) {
      rpc_call_reply(call, reply.workers[i], NULL);
      break;
    }
  arena_fini(&arena);
}

static void drain_server(struct coordinator_service *shell, struct rpc_call *call,
                         const struct asked *asked) {
  const Weir__DrainServerRequest *request = asked->message;
  Weir__ListServersReply reply;
  struct arena arena;
  if (!drain(shell, call, &asked->viewer, WEIR__ROLE__SERVER, request->server))
    return;
  arena_init(&arena);
  coordinator_list_servers(shell->core, &asked->viewer, shell_now_ms(), &arena, &reply);
  for (size_t i = 0; i < reply.n_servers; i++)
    if (strcmp(reply.servers[i]->id, request->server) == 0) {
      rpc_call_reply(call, reply.servers[i], NULL);
      break;
    }
  arena_fini(&arena);
}

static void list_servers(struct coordinator_service *shell, struct rpc_call *call,
                         const struct asked *asked) {
  Weir__ListServersReply reply;
  struct arena arena;
  arena_init(&arena);
  coordinator_list_servers(shell->core, &asked->viewer, shell_now_ms(), &arena, &reply);
  rpc_call_reply(call, &reply, NULL);
  arena_fini(&arena);
}

static void get_run(struct coordinator_service *shell, struct rpc_call *call, const struct asked *asked) {
  Weir__RunInfo info;
  struct arena arena;
  CHECK(coordinator_run_info(shell->core, asked->run, shell_now_ms(), &info));
  arena_init(&arena);
  info.spec = coordinator_run_spec(shell->core, asked->run);
  info.insecure = shell->options.security.is_insecure;
  coordinator_list_staged(shell->core, &asked->viewer, shell_now_ms(), &arena, &info);
  rpc_call_reply(call, &info, NULL);
  arena_fini(&arena);
}

static void get_overview(struct coordinator_service *shell, struct rpc_call *call,
                         const struct asked *asked) {
  struct arena arena;
  struct overview_question question = {shell->core, &asked->viewer, shell_now_ms(), &arena};
  Weir__Overview answer;
  struct err err = ERR_NONE;
  arena_init(&arena);
  if (overview_answer(shell->overview, &question, asked->message, &answer, &err)) {
    rpc_call_finish(call, &err);
  } else {
    answer.fleet->insecure = shell->options.security.is_insecure;
    rpc_call_reply(call, &answer, NULL);
  }
  arena_fini(&arena);
}

static void get_series(struct coordinator_service *shell, struct rpc_call *call, const struct asked *asked) {
  struct arena arena;
  struct overview_question question = {shell->core, &asked->viewer, shell_now_ms(), &arena};
  Weir__Series series;
  struct err err = ERR_NONE;
  arena_init(&arena);
  if (series_answer(&question, asked->run, asked->message, &series, &err))
    rpc_call_finish(call, &err);
  else
    rpc_call_reply(call, &series, NULL);
  arena_fini(&arena);
}

/* False: the call was refused. */
static bool may_read(struct coordinator_service *shell, struct rpc_call *call, enum read_kind kind) {
  struct err err = ERR_NONE;
  if (shell_read_begin(shell, call, kind, &err))
    return true;
  rpc_call_finish(call, &err);
  return false;
}

static void get_model(struct coordinator_service *shell, struct rpc_call *call, const struct asked *asked) {
  if (may_read(shell, call, READ_DOWNLOAD))
    shell_send_model(shell, call, asked->run);
}

/* That many workers load a model at a time is no reason to refuse it to one. */
static bool is_one_tenants(const struct rpc_call *call) {
  struct cert_holder holder;
  return rpc_call_holder(call, &holder) && *holder.tenant;
}

/* False: the call was answered. */
static bool has_ticket(struct coordinator_service *shell, struct rpc_call *call, const char *run) {
  char uri[CERT_TEXT_SIZE] = "";
  struct err err = ERR_NONE;
  struct cert_holder holder;
  if (rpc_call_holder(call, &holder))
    cert_holder_uri(&holder, uri);
  if (coordinator_check_ticket(shell->core, run, rpc_call_ticket(call), uri, &err) == 0)
    return true;
  log_event(LOG_WARN, "coordinator", "denied", "run=%s peer=%s reason=\"%s\"", run, rpc_call_peer(call),
            err.text);
  rpc_call_finish(call, &err);
  return false;
}

static void fetch_model(struct coordinator_service *shell, struct rpc_call *call, const struct asked *asked) {
  if (has_ticket(shell, call, asked->run) && (!is_one_tenants(call) || may_read(shell, call, READ_OF_MEMBER)))
    shell_send_outline(shell, call, asked->run);
}

static void fetch_pieces(struct coordinator_service *shell, struct rpc_call *call,
                         const struct asked *asked) {
  if (has_ticket(shell, call, asked->run))
    shell_send_pieces(shell, call, asked->run, asked->message);
}

static void get_pieces(struct coordinator_service *shell, struct rpc_call *call, const struct asked *asked) {
  shell_send_pieces(shell, call, asked->run, asked->message);
}

static void get_weights(struct coordinator_service *shell, struct rpc_call *call, const struct asked *asked) {
  const Weir__WeightsRequest *request = asked->message;
  struct err err = ERR_NONE;
  uint64_t step;
  if (!shell_pick_checkpoint(shell, asked->run, request->has_step ? &request->step : NULL, &step, &err) ||
      !shell_read_begin(shell, call, READ_DOWNLOAD, &err)) {
    rpc_call_finish(call, &err);
    return;
  }
  read_hold(rpc_call_user(call), asked->run, &step, 1);
  shell_send_weights(shell, call, asked->run, step, request->average);
}

static void get_layout(struct coordinator_service *shell, struct rpc_call *call, const struct asked *asked) {
  if (may_read(shell, call, READ_DOWNLOAD))
    shell_send_layout(shell, call, asked->run);
}

static void fetch_layout(struct coordinator_service *shell, struct rpc_call *call,
                         const struct asked *asked) {
  if (has_ticket(shell, call, asked->run))
    shell_send_layout(shell, call, asked->run);
}

static void get_batch(struct coordinator_service *shell, struct rpc_call *call, const struct asked *asked) {
  struct err err = ERR_NONE;
  struct arena arena;
  Weir__Batch *batch;
  arena_init(&arena);
  batch = coordinator_run_batch(shell->core, asked->run, asked->message, &arena, &err);
  if (batch)
    rpc_call_reply(call, batch, NULL);
  else
    rpc_call_finish(call, &err);
  arena_fini(&arena);
}

static void fetch_batch(struct coordinator_service *shell, struct rpc_call *call, const struct asked *asked) {
  if (has_ticket(shell, call, asked->run))
    get_batch(shell, call, asked);
}

void shell_list_runs_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes) {
  shell_ask(call, message, bytes, list_runs);
}

void shell_get_run_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes) {
  shell_ask(call, message, bytes, get_run);
}

void shell_list_workers_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes) {
  shell_ask(call, message, bytes, list_workers);
}

void shell_drain_worker_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes) {
  shell_ask(call, message, bytes, drain_worker);
}

void shell_drain_server_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes) {
  shell_ask(call, message, bytes, drain_server);
}

void shell_readmit_worker_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes) {
  shell_ask(call, message, bytes, readmit_worker);
}

void shell_list_servers_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes) {
  shell_ask(call, message, bytes, list_servers);
}

void shell_get_overview_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes) {
  shell_ask(call, message, bytes, get_overview);
}

void shell_get_series_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes) {
  shell_ask(call, message, bytes, get_series);
}

void shell_get_model_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes) {
  shell_ask(call, message, bytes, get_model);
}

/* Whose it is the event loop knows: it has the keys of runs. */
int shell_fetch_on_begin(struct rpc_call *call, struct err *err) {
  const char *text = rpc_call_ticket(call);
  struct ticket ticket;
  return text ? ticket_read(text, &ticket, err)
              : err_set(err, ERR_DENIED, "the call has no ticket for a run");
}

void shell_fetch_model_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes) {
  shell_ask(call, message, bytes, fetch_model);
}

/* A call's pieces are in memory until the client has read them. */
static void ask_pieces(struct rpc_call *call, const void *message, struct rpc_bytes *bytes,
                       enum read_kind kind, answer_function *answer) {
  struct err err = ERR_NONE;
  if (shell_read_begin(rpc_call_context(call), call, kind, &err)) {
    shell_ask(call, message, bytes, answer);
    return;
  }
  rpc_bytes_free(bytes);
  rpc_call_finish(call, &err);
}

void shell_fetch_pieces_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes) {
  ask_pieces(call, message, bytes, READ_OF_MEMBER, fetch_pieces);
}

void shell_get_pieces_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes) {
  ask_pieces(call, message, bytes, READ_DOWNLOAD, get_pieces);
}

void shell_pieces_on_closed(struct rpc_call *call) {
  read_end(rpc_call_user(call));
}

void shell_get_weights_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes) {
  shell_ask(call, message, bytes, get_weights);
}

void shell_get_layout_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes) {
  shell_ask(call, message, bytes, get_layout);
}

void shell_get_batch_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes) {
  shell_ask(call, message, bytes, get_batch);
}

void shell_fetch_layout_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes) {
  shell_ask(call, message, bytes, fetch_layout);
}

void shell_fetch_batch_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes) {
  shell_ask(call, message, bytes, fetch_batch);
}

/* Lives on the stack of the thread that asks. */
struct measure_task {
  struct task task;
  struct coordinator_service *shell;
  struct metric_page *page;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  bool is_done;
};

static void measure(struct task *task) {
  struct measure_task *measuring = TASK_OWNER(task, struct measure_task, task);
  struct coordinator_service *shell = measuring->shell;
  char why[SHELL_TEXT_SIZE];
  metric_tell(measuring->page, METRIC_LEADING, shell_is_leading(shell, why));
  if (shell->core && !shell->is_stopping)
    coordinator_measure(shell->core, measuring->page);
  pthread_mutex_lock(&measuring->lock);
  measuring->is_done = true;
  pthread_cond_signal(&measuring->changed);
  pthread_mutex_unlock(&measuring->lock);
}

void coordinator_service_measure(void *user, struct metric_page *page) {
  struct coordinator_service *shell = user;
  struct measure_task measuring = {.task.run = measure, .shell = shell, .page = page};
  pthread_mutex_init(&measuring.lock, NULL);
  pthread_cond_init(&measuring.changed, NULL);
  task_post(shell->event_loop, &measuring.task); /* one at a time: a page has one thread */
  pthread_mutex_lock(&measuring.lock);
  while (!measuring.is_done)
    pthread_cond_wait(&measuring.changed, &measuring.lock);
  pthread_mutex_unlock(&measuring.lock);
  pthread_cond_destroy(&measuring.changed);
  pthread_mutex_destroy(&measuring.lock);
}
