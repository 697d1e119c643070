/* Watchers of runs, and who wants a timeline of one. Events are kept by the core, so a slow watcher costs
   nothing: it gets them when it has read those before. */
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/trace/capture.h"
#include "server/coordinator/messages/info.h"
#include "server/coordinator/shell/shell.h"
#include "server/coordinator/tracing/tracing.h"

enum { EVENTS_WAITING_MAX = 512, TRACE_STEPS_MAX = 1000 };

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

/* A call for the timeline of a run. */
struct trace_call {
  struct coordinator_service *shell;
  struct rpc_call *call;
  struct task begun, closed;
  char *run; /* what the client calls it; then its id */
  uint64_t steps;
  struct tracing *tracing;
  bool is_finished;
};

static void trace_begun(struct task *task);
static void trace_closed(struct task *task);

void shell_trace_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes) {
  const Weir__TraceRequest *request = message;
  struct trace_call *trace = mem_new(sizeof *trace);
  rpc_bytes_free(bytes);
  *trace = (struct trace_call){.shell = rpc_call_context(call),
                               .call = call,
                               .begun.run = trace_begun,
                               .closed.run = trace_closed,
                               .run = mem_strdup(request->run),
                               .steps = request->steps};
  if (task_offer(trace->shell->event_loop, &trace->begun)) {
    rpc_call_set_user(call, trace);
    return;
  }
  free(trace->run);
  free(trace);
  rpc_call_fail(call, ERR_BUSY, "the coordinator has too much to do");
}

void shell_trace_on_closed(struct rpc_call *call) {
  struct trace_call *trace = rpc_call_user(call);
  if (trace)
    task_post(trace->shell->event_loop, &trace->closed);
}

static void trace_finish(struct trace_call *trace, const struct err *err) {
  if (trace->shell->tracing == trace) {
    trace->shell->tracing = NULL;
    tracing_free(trace->tracing);
  }
  trace->is_finished = true;
  rpc_call_finish(trace->call, err);
}

static void trace_closed(struct task *task) {
  struct trace_call *trace = TASK_OWNER(task, struct trace_call, closed);
  if (!trace->is_finished)
    trace_finish(trace, NULL);
  free(trace->run);
  free(trace);
}

static struct tracing_now trace_now(const struct trace_call *trace) {
  struct tracing_now now = {.now_ns = clock_now_ns()};
  Weir__RunInfo info;
  if (coordinator_run_info(trace->shell->core, trace->run, shell_now_ms(), &info)) {
    now.step = info.step;
    now.is_running = info.state == WEIR__RUN_STATE__RUNNING;
  }
  return now;
}

static void trace_order(void *user, uint64_t key, const Weir__Order *order) {
  const struct trace_call *trace = user;
  Weir__Order of_term = *order;
  of_term.term = trace->shell->term;
  shell_order(trace->shell, key, &of_term);
}

static void trace_send(void *user, const Weir__TraceChunk *chunk) {
  const struct trace_call *trace = user;
  rpc_call_send(trace->call, chunk, NULL); /* who is gone is about to be closed */
}

static void trace_start(struct trace_call *trace) {
  struct coordinator_service *shell = trace->shell;
  struct tracing_now now = trace_now(trace);
  struct run_member *members;
  struct arena arena;
  char boot[TRACE_BOOT_SIZE];
  struct tracing_options options = {.number = ++shell->traces + shell->term * 1000000,
                                    .run = trace->run,
                                    .boot = boot,
                                    .steps = trace->steps,
                                    .order = trace_order,
                                    .send = trace_send,
                                    .user = trace};
  struct tracing_member *list;
  trace_boot(boot);
  arena_init(&arena);
  options.n_members = coordinator_list_run_members(shell->core, trace->run, &arena, &members);
  options.members = list = arena_new(&arena, (size_t)(options.n_members + 1) * sizeof *list);
  for (int i = 0; i < options.n_members; i++)
    list[i] = (struct tracing_member){members[i].key, members[i].id, members[i].host};
  shell->tracing = trace;
  trace->tracing = tracing_new(&options, &now);
  arena_fini(&arena);
}

static void trace_begun(struct task *task) {
  struct trace_call *trace = TASK_OWNER(task, struct trace_call, begun);
  struct coordinator_service *shell = trace->shell;
  struct err err = ERR_NONE;
  const char *id;
  if (shell_turns_away(shell, trace->call) || !(id = shell_find_run(shell, trace->call, trace->run))) {
    trace->is_finished = true;
    return;
  }
  free(trace->run);
  trace->run = mem_strdup(id);
  if (trace->steps < 1 || trace->steps > TRACE_STEPS_MAX)
    err_set(&err, ERR_INVALID, "a trace is of 1 to %d steps", TRACE_STEPS_MAX);
  else if (shell->tracing)
    err_set(&err, ERR_BUSY, "another run is being traced: one is at a time");
  else if (!trace_now(trace).is_running)
    err_set(&err, ERR_INVALID, "run '%s' does not compute now: there is nothing to trace", id);
  if (err.code)
    trace_finish(trace, &err);
  else
    trace_start(trace);
}

void shell_traced(struct coordinator_service *shell, uint64_t key, const Weir__Traced *traced) {
  struct tracing_now now;
  if (!shell->tracing)
    return;
  now = trace_now(shell->tracing);
  tracing_take(shell->tracing->tracing, key, traced, &now);
}

void shell_trace_left(struct coordinator_service *shell, uint64_t key) {
  if (shell->tracing)
    tracing_left(shell->tracing->tracing, key);
}

void shell_trace_turn(struct coordinator_service *shell) {
  struct tracing_now now;
  if (!shell->tracing)
    return;
  now = trace_now(shell->tracing);
  if (tracing_turn(shell->tracing->tracing, &now))
    trace_finish(shell->tracing, NULL);
}

void shell_close_trace(struct coordinator_service *shell, const char *why) {
  struct err err;
  err_set(&err, ERR_UNAVAILABLE, "%s", why);
  if (shell->tracing)
    trace_finish(shell->tracing, &err);
}
