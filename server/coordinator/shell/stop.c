/* Calls that cancel, pause or stop a run. Where that stops the run, the call is answered once the store has
   the run's new state. Where the store fails or is slow, the answer has the state of before: the run has
   stopped all the same, but a successor of this coordinator would go on with it. */
#include <stdlib.h>

#include "server/coordinator/messages/info.h"
#include "server/coordinator/shell/shell.h"

enum { STOPS_MAX = 1024, WAIT_MS = 8000 };

/* A call that waits; in shell->stops. */
struct stop_call {
  struct rpc_call *call;
  char *run;
  uint64_t until_ms;
  struct stop_call *next;
};

static bool is_awaited(struct coordinator_service *shell, const struct stop_call *stop, uint64_t now_ms);
static void stop_answer(struct coordinator_service *shell, const struct stop_call *stop);
static void stop_free(struct stop_call *stop);

void shell_stop_run(struct coordinator_service *shell, struct rpc_call *call,
                    const struct coordinator_event *event) {
  struct stop_call *stop;
  if (shell->n_stops == STOPS_MAX) {
    rpc_call_fail(call, ERR_BUSY, "%d calls that stop runs wait for the store: try again", STOPS_MAX);
    return;
  }
  stop = mem_new(sizeof *stop);
  *stop = (struct stop_call){.call = call,
                             .run = mem_strdup(event->run),
                             .until_ms = shell_now_ms() + WAIT_MS,
                             .next = shell->stops};
  shell->stops = stop;
  shell->n_stops++;
  shell_step(shell, event);
}

void shell_stops_turn(struct coordinator_service *shell, uint64_t now_ms) {
  struct stop_call **at = &shell->stops, *stop;
  while ((stop = *at)) {
    if (is_awaited(shell, stop, now_ms)) {
      at = &stop->next;
      continue;
    }
    *at = stop->next;
    shell->n_stops--;
    stop_answer(shell, stop);
    stop_free(stop);
  }
}

static bool is_awaited(struct coordinator_service *shell, const struct stop_call *stop, uint64_t now_ms) {
  return now_ms < stop->until_ms && !*shell->save_message &&
         coordinator_run_awaits_store(shell->core, stop->run);
}

static void stop_answer(struct coordinator_service *shell, const struct stop_call *stop) {
  Weir__RunInfo info;
  if (coordinator_run_info(shell->core, stop->run, shell_now_ms(), &info))
    rpc_call_reply(stop->call, &info, NULL);
  else
    rpc_call_fail(stop->call, ERR_NOT_FOUND, "run '%s' was deleted", stop->run);
}

void shell_close_stops(struct coordinator_service *shell, const char *why) {
  struct stop_call *stop;
  while ((stop = shell->stops)) {
    shell->stops = stop->next;
    rpc_call_fail(stop->call, ERR_UNAVAILABLE, "%s", why);
    stop_free(stop);
  }
  shell->n_stops = 0;
}

static void stop_free(struct stop_call *stop) {
  free(stop->run);
  free(stop);
}
