/* Questions with one answer: copied by gRPC's thread, answered by the event loop. */
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/message.h"
#include "server/coordinator/messages/info.h"
#include "server/coordinator/messages/orders.h"
#include "server/coordinator/recovery/recovery.h"
#include "server/coordinator/shell/shell.h"

enum { PIECE_CALLS_MAX = 64 };

struct question {
  struct task task;
  struct rpc_call *call;
  void *message;
  answer_function *answer;
};

static void question_answer(struct task *task) {
  struct question *question = TASK_OWNER(task, struct question, task);
  struct coordinator_service *shell = rpc_call_context(question->call);
  if (!shell_turns_away(shell, question->call))
    question->answer(shell, question->call, question->message);
  message_free(question->message);
  free(question);
}

void shell_ask(struct rpc_call *call, const void *message, struct rpc_bytes *bytes, answer_function *answer) {
  struct coordinator_service *shell = rpc_call_context(call);
  struct question *question = mem_new(sizeof *question);
  rpc_bytes_free(bytes);
  *question = (struct question){
      .task.run = question_answer, .call = call, .message = message_copy(message), .answer = answer};
  if (task_offer(shell->event_loop, &question->task))
    return;
  rpc_call_fail(call, ERR_BUSY, "the coordinator has too much to do");
  message_free(question->message);
  free(question);
}

static void list_runs(struct coordinator_service *shell, struct rpc_call *call, const void *message) {
  Weir__ListRunsReply reply;
  struct arena arena;
  (void)message;
  arena_init(&arena);
  coordinator_list_runs(shell->core, shell_now_ms(), &arena, &reply);
  rpc_call_reply(call, &reply, NULL);
  arena_fini(&arena);
}

static void list_workers(struct coordinator_service *shell, struct rpc_call *call, const void *message) {
  Weir__ListWorkersReply reply;
  struct arena arena;
  (void)message;
  arena_init(&arena);
  coordinator_list_workers(shell->core, shell_now_ms(), &arena, &reply);
  rpc_call_reply(call, &reply, NULL);
  arena_fini(&arena);
}

static void readmit_worker(struct coordinator_service *shell, struct rpc_call *call, const void *message) {
  const Weir__ReadmitRequest *request = message;
  struct coordinator_event event = {.kind = EVENT_WORKER_READMITTED, .readmitted = request->worker};
  struct device_name found, device;
  Weir__ListWorkersReply reply;
  struct err err = ERR_NONE;
  struct arena arena;
  if (coordinator_find_quarantine(shell->core, request->worker, &found, &err)) {
    rpc_call_finish(call, &err);
    return;
  }
  arena_init(&arena);
  device = (struct device_name){arena_strdup(&arena, found.host), arena_strdup(&arena, found.device)};
  shell_step(shell, &event);
  coordinator_list_device(shell->core, &device, shell_now_ms(), &arena, &reply);
  rpc_call_reply(call, &reply, NULL);
  arena_fini(&arena);
}

static bool drain(struct coordinator_service *shell, struct rpc_call *call, Weir__Role role, const char *id) {
  struct coordinator_event event = {.kind = EVENT_MEMBER_DRAINED, .drained = id};
  struct err err = ERR_NONE;
  if (coordinator_check_drain(shell->core, role, id, &err)) {
    rpc_call_finish(call, &err);
    return false;
  }
  shell_step(shell, &event);
  return true;
}

static void drain_worker(struct coordinator_service *shell, struct rpc_call *call, const void *message) {
  const Weir__DrainRequest *request = message;
  Weir__ListWorkersReply reply;
  struct arena arena;
  if (!drain(shell, call, WEIR__ROLE__WORKER, request->worker))
    return;
  arena_init(&arena);
  coordinator_list_workers(shell->core, shell_now_ms(), &arena, &reply);
  for (size_t i = 0; i < reply.n_workers; i++)
    if (reply.workers[i]->pid > 0 && strcmp(reply.workers[i]->id, request->worker) == 0) {
      rpc_call_reply(call, reply.workers[i], NULL);
      break;
    }
  arena_fini(&arena);
}

static void drain_server(struct coordinator_service *shell, struct rpc_call *call, const void *message) {
  const Weir__DrainServerRequest *request = message;
  Weir__ListServersReply reply;
  struct arena arena;
  if (!drain(shell, call, WEIR__ROLE__SERVER, request->server))
    return;
  arena_init(&arena);
  coordinator_list_servers(shell->core, shell_now_ms(), &arena, &reply);
  for (size_t i = 0; i < reply.n_servers; i++)
    if (strcmp(reply.servers[i]->id, request->server) == 0) {
      rpc_call_reply(call, reply.servers[i], NULL);
      break;
    }
  arena_fini(&arena);
}

static void list_servers(struct coordinator_service *shell, struct rpc_call *call, const void *message) {
  Weir__ListServersReply reply;
  struct arena arena;
  (void)message;
  arena_init(&arena);
  coordinator_list_servers(shell->core, shell_now_ms(), &arena, &reply);
  rpc_call_reply(call, &reply, NULL);
  arena_fini(&arena);
}

static void get_run(struct coordinator_service *shell, struct rpc_call *call, const void *message) {
  const Weir__RunRequest *request = message;
  const char *id = shell_find_run(shell, call, request->run);
  Weir__RunInfo info;
  struct arena arena;
  if (!id || !coordinator_run_info(shell->core, id, shell_now_ms(), &info))
    return;
  arena_init(&arena);
  info.spec = coordinator_run_spec(shell->core, id);
  info.insecure = shell->options.security.is_insecure;
  coordinator_list_staged(shell->core, shell_now_ms(), &arena, &info);
  rpc_call_reply(call, &info, NULL);
  arena_fini(&arena);
}

static void get_model(struct coordinator_service *shell, struct rpc_call *call, const void *message) {
  const Weir__RunRequest *request = message;
  const char *id = shell_find_run(shell, call, request->run);
  if (id)
    shell_send_model(shell, call, id);
}

/* NULL: the call was answered. */
static const char *find_run_of_ticket(struct coordinator_service *shell, struct rpc_call *call,
                                      const char *run) {
  char uri[CERT_TEXT_SIZE] = "";
  struct err err = ERR_NONE;
  struct cert_holder holder;
  const char *id = shell_find_run(shell, call, run);
  if (!id) /* the call may be gone */
    return NULL;
  if (rpc_call_holder(call, &holder))
    cert_holder_uri(&holder, uri);
  if (coordinator_check_ticket(shell->core, id, rpc_call_ticket(call), uri, &err) == 0)
    return id;
  log_event(LOG_WARN, "coordinator", "denied", "run=%s peer=%s reason=\"%s\"", id, rpc_call_peer(call),
            err.text);
  rpc_call_finish(call, &err);
  return NULL;
}

static void fetch_model(struct coordinator_service *shell, struct rpc_call *call, const void *message) {
  const Weir__RunRequest *request = message;
  const char *id = find_run_of_ticket(shell, call, request->run);
  if (id)
    shell_send_outline(shell, call, id);
}

static void fetch_pieces(struct coordinator_service *shell, struct rpc_call *call, const void *message) {
  const Weir__PiecesRequest *request = message;
  const char *id = find_run_of_ticket(shell, call, request->run);
  if (id)
    shell_send_pieces(shell, call, id, request);
}

static void get_pieces(struct coordinator_service *shell, struct rpc_call *call, const void *message) {
  const Weir__PiecesRequest *request = message;
  const char *id = shell_find_run(shell, call, request->run);
  if (id)
    shell_send_pieces(shell, call, id, request);
}

static void get_weights(struct coordinator_service *shell, struct rpc_call *call, const void *message) {
  const Weir__WeightsRequest *request = message;
  const char *id = shell_find_run(shell, call, request->run);
  struct err err = ERR_NONE;
  uint64_t step;
  if (!id)
    return;
  if (shell_pick_checkpoint(shell, id, request->has_step ? &request->step : NULL, &step, &err))
    shell_send_weights(shell, call, id, step, request->average);
  else
    rpc_call_finish(call, &err);
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
                       answer_function *answer) {
  struct coordinator_service *shell = rpc_call_context(call);
  if (__atomic_add_fetch(&shell->piece_calls, 1, __ATOMIC_RELAXED) <= PIECE_CALLS_MAX) {
    rpc_call_set_user(call, shell);
    shell_ask(call, message, bytes, answer);
    return;
  }
  __atomic_sub_fetch(&shell->piece_calls, 1, __ATOMIC_RELAXED);
  rpc_bytes_free(bytes);
  rpc_call_fail(call, ERR_BUSY, "%d calls for pieces wait to be read: try again", PIECE_CALLS_MAX);
}

void shell_fetch_pieces_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes) {
  ask_pieces(call, message, bytes, fetch_pieces);
}

void shell_get_pieces_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes) {
  ask_pieces(call, message, bytes, get_pieces);
}

void shell_fetch_pieces_on_closed(struct rpc_call *call) {
  struct coordinator_service *shell = rpc_call_user(call);
  if (shell)
    __atomic_sub_fetch(&shell->piece_calls, 1, __ATOMIC_RELAXED);
}

void shell_get_weights_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes) {
  shell_ask(call, message, bytes, get_weights);
}
