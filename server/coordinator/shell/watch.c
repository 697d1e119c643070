/* Watchers of runs. Events are kept by the core, so a slow watcher costs nothing: it gets them when it has
   read those before. */
#include <stdlib.h>

#include "server/coordinator/messages/info.h"
#include "server/coordinator/shell/shell.h"

enum { EVENTS_WAITING_MAX = 512 };

struct watch {
  struct coordinator_service *shell;
  struct rpc_call *call;
  struct task begun, closed;
  char *prefix; /* what the client calls the run; then its id */
  uint64_t next_number;
  bool only_past; /* it ends with the events that there are */
  bool is_finished;
  struct watch *next;
};

static void watch_begun(struct task *task);
static void watch_closed(struct task *task);
static bool watch_pump(struct watch *watch);
static void watch_finish(struct watch *watch, const struct err *err);

void shell_watch_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes) {
  const Weir__WatchRequest *request = message;
  struct watch *watch = mem_new(sizeof *watch);
  rpc_bytes_free(bytes);
  watch->shell = rpc_call_context(call);
  watch->call = call;
  watch->begun.run = watch_begun;
  watch->closed.run = watch_closed;
  watch->prefix = mem_strdup(request->run);
  watch->next_number = request->from;
  watch->only_past = request->only_past;
  if (task_offer(watch->shell->event_loop, &watch->begun)) {
    rpc_call_set_user(call, watch);
    return;
  }
  free(watch->prefix);
  free(watch);
  rpc_call_fail(call, ERR_BUSY, "the coordinator has too much to do");
}

void shell_watch_on_closed(struct rpc_call *call) {
  struct watch *watch = rpc_call_user(call);
  if (watch)
    task_post(watch->shell->event_loop, &watch->closed);
}

static void watch_begun(struct task *task) {
  struct watch *watch = TASK_OWNER(task, struct watch, begun);
  const char *id;
  if (shell_turns_away(watch->shell, watch->call) ||
      !(id = shell_find_run(watch->shell, watch->call, watch->prefix))) {
    watch->is_finished = true;
    return;
  }
  free(watch->prefix);
  watch->prefix = mem_strdup(id);
  watch->next = watch->shell->watches;
  watch->shell->watches = watch;
  watch_pump(watch);
}

static void watch_closed(struct task *task) {
  struct watch *watch = TASK_OWNER(task, struct watch, closed);
  if (!watch->is_finished)
    watch_finish(watch, NULL);
  free(watch->prefix);
  free(watch);
}

bool shell_pump_watches(struct coordinator_service *shell) {
  struct watch *watch, *next;
  bool is_behind = false;
  for (watch = shell->watches; watch; watch = next) {
    next = watch->next;
    is_behind |= watch_pump(watch);
  }
  return is_behind;
}

void shell_close_watches(struct coordinator_service *shell, const char *why) {
  struct err err;
  err_set(&err, ERR_UNAVAILABLE, "%s", why);
  while (shell->watches)
    watch_finish(shell->watches, &err);
}

/* Sends what the client can take. True if there is more. */
static bool watch_pump(struct watch *watch) {
  const struct coordinator *core = watch->shell->core;
  struct run_event_view view;
  while (coordinator_run_event(core, watch->prefix, watch->next_number, &view)) {
    if (rpc_call_waiting(watch->call) >= EVENTS_WAITING_MAX)
      return true;
    if (rpc_call_send(watch->call, &view.event, NULL))
      return false; /* it is gone, and about to be closed */
    watch->next_number = view.event.number + 1;
  }
  if (watch->only_past || coordinator_run_has_told_end(core, watch->prefix))
    watch_finish(watch, NULL);
  return false;
}

static void watch_finish(struct watch *watch, const struct err *err) {
  struct watch **at = &watch->shell->watches;
  while (*at != watch)
    at = &(*at)->next;
  *at = watch->next;
  watch->is_finished = true;
  rpc_call_finish(watch->call, err);
}
