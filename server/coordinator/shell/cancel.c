/* Calls that cancel a run. Each is answered once the store has the run's end. Where the store fails or is
   slow, the answer has the state of before: the run is over all the same, but a successor of this coordinator
   would go on with it. */
#include <stdlib.h>

#include "common/base/message.h"
#include "server/coordinator/messages/info.h"
#include "server/coordinator/shell/shell.h"

enum { CANCELS_MAX = 1024, WAIT_MS = 8000 };

/* A call that waits; in shell->cancels. */
struct cancel {
  struct rpc_call *call;
  char *run;
  uint64_t until_ms;
  struct cancel *next;
};

static void run_cancel(struct coordinator_service *shell, struct rpc_call *call, const void *message);
static bool is_awaited(struct coordinator_service *shell, const struct cancel *cancel, uint64_t now_ms);
static void cancel_answer(struct coordinator_service *shell, const struct cancel *cancel);
static void cancel_free(struct cancel *cancel);

void shell_cancel_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes) {
  shell_ask(call, message, bytes, run_cancel);
}

static void run_cancel(struct coordinator_service *shell, struct rpc_call *call, const void *message) {
  const Weir__RunRequest *request = message;
  const char *id = shell_find_run(shell, call, request->run);
  struct cancel *cancel;
  if (!id)
    return;
  if (shell->n_cancels == CANCELS_MAX) {
    rpc_call_fail(call, ERR_BUSY, "%d calls that cancel runs wait for the store: try again", CANCELS_MAX);
    return;
  }
  cancel = mem_new(sizeof *cancel);
  *cancel = (struct cancel){
      .call = call, .run = mem_strdup(id), .until_ms = shell_now_ms() + WAIT_MS, .next = shell->cancels};
  shell->cancels = cancel;
  shell->n_cancels++;
  shell_step(shell, &(struct coordinator_event){.kind = EVENT_RUN_CANCELLED, .run = id});
}

void shell_cancels_turn(struct coordinator_service *shell, uint64_t now_ms) {
  struct cancel **at = &shell->cancels, *cancel;
  while ((cancel = *at)) {
    if (is_awaited(shell, cancel, now_ms)) {
      at = &cancel->next;
      continue;
    }
    *at = cancel->next;
    shell->n_cancels--;
    cancel_answer(shell, cancel);
    cancel_free(cancel);
  }
}

static bool is_awaited(struct coordinator_service *shell, const struct cancel *cancel, uint64_t now_ms) {
  return now_ms < cancel->until_ms && !*shell->save_message &&
         !coordinator_run_has_told_end(shell->core, cancel->run);
}

static void cancel_answer(struct coordinator_service *shell, const struct cancel *cancel) {
  Weir__RunInfo info;
  if (coordinator_run_info(shell->core, cancel->run, shell_now_ms(), &info))
    rpc_call_reply(cancel->call, &info, NULL);
  else
    rpc_call_fail(cancel->call, ERR_NOT_FOUND, "run '%s' was deleted", cancel->run);
}

void shell_close_cancels(struct coordinator_service *shell, const char *why) {
  struct cancel *cancel;
  while ((cancel = shell->cancels)) {
    shell->cancels = cancel->next;
    rpc_call_fail(cancel->call, ERR_UNAVAILABLE, "%s", why);
    cancel_free(cancel);
  }
  shell->n_cancels = 0;
}

static void cancel_free(struct cancel *cancel) {
  free(cancel->run);
  free(cancel);
}
