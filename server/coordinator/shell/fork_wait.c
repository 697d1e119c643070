/* Which checkpoint a fork begins with: one that is in the store, one that is still being written, of a
   version that the run has come to, for which the call waits, or one of a version to come, for which the fork
   waits. */
#include <inttypes.h>
#include <stdlib.h>

#include "common/base/message.h"
#include "server/coordinator/messages/info.h"
#include "server/coordinator/messages/to_come.h"
#include "server/coordinator/shell/fork.h"

enum { FORK_WAITS_MAX = 256, WAIT_MS = 45000 };

/* A call that waits for a checkpoint, or for the plan of the run; in shell->fork_waits. */
struct fork_wait {
  struct rpc_call *call;
  Weir__ForkRequest *request;
  char *parent;
  uint64_t step, until_ms;
  bool is_for_plan; /* the version may be one to come, for which no call waits */
  struct fork_wait *next;
};

static bool wait_is_over(struct coordinator_service *shell, struct fork_wait *wait, uint64_t now_ms);
static void fork_await(struct coordinator_service *shell, struct rpc_call *call,
                       const Weir__ForkRequest *request, const char *parent, uint64_t step);
static bool fork_pick(struct coordinator_service *shell, const char *parent, const uint64_t *wanted,
                      struct fork_point *point, struct err *err);

static void fork_run(struct coordinator_service *shell, struct rpc_call *call, const struct asked *asked) {
  const Weir__ForkRequest *request = asked->message;
  const char *parent = asked->run;
  const uint64_t *wanted = request->has_step ? &request->step : NULL;
  struct fork_point point;
  struct err err = ERR_NONE;
  uint64_t step = 0;
  if (coordinator_checkpoint_is_coming(shell->core, parent, wanted, &step))
    fork_await(shell, call, request, parent, step);
  else if (wanted && coordinator_plan_is_to_come(shell->core, parent))
    fork_await(shell, call, request, parent, *wanted);
  else if (fork_pick(shell, parent, wanted, &point, &err))
    shell_fork_begin(shell, call, request, &point);
  else
    rpc_call_finish(call, &err);
}

/* NULL: the newest. */
static bool fork_pick(struct coordinator_service *shell, const char *parent, const uint64_t *wanted,
                      struct fork_point *point, struct err *err) {
  Weir__RunInfo info;
  *point = (struct fork_point){.parent = parent};
  if (shell_pick_checkpoint(shell, parent, wanted, &point->step, err))
    return true;
  CHECK(coordinator_run_info(shell->core, parent, shell_now_ms(), &info));
  if (!wanted)
    return false;
  if (coordinator_version_is_to_come(shell->core, parent, *wanted)) {
    *err = ERR_NONE;
    point->step = *wanted;
    point->is_to_come = true;
    return true;
  }
  if (info.steps > 0 && *wanted > info.steps)
    err_set(err, ERR_NOT_FOUND, "run '%s' has %" PRIu64 " steps: there is no step %" PRIu64, parent,
            info.steps, *wanted);
  return false;
}

static void fork_await(struct coordinator_service *shell, struct rpc_call *call,
                       const Weir__ForkRequest *request, const char *parent, uint64_t step) {
  struct fork_wait *wait;
  if (shell->n_fork_waits >= FORK_WAITS_MAX) {
    rpc_call_fail(call, ERR_BUSY, "%d forks wait for checkpoints: try again", FORK_WAITS_MAX);
    return;
  }
  wait = mem_new(sizeof *wait);
  *wait = (struct fork_wait){.call = call,
                             .request = message_copy(request),
                             .parent = mem_strdup(parent),
                             .step = step,
                             .until_ms = shell_now_ms() + WAIT_MS,
                             .is_for_plan = coordinator_plan_is_to_come(shell->core, parent),
                             .next = shell->fork_waits};
  shell->fork_waits = wait;
  shell->n_fork_waits++;
}

static void wait_free(struct fork_wait *wait) {
  message_free(wait->request);
  free(wait->parent);
  free(wait);
}

void shell_forks_turn(struct coordinator_service *shell, uint64_t now_ms) {
  struct fork_wait **at = &shell->fork_waits, *wait;
  while ((wait = *at)) {
    if (!wait_is_over(shell, wait, now_ms)) {
      at = &wait->next;
      continue;
    }
    *at = wait->next;
    shell->n_fork_waits--;
    wait_free(wait);
  }
}

static bool is_coming(struct coordinator_service *shell, const struct fork_wait *wait) {
  uint64_t step;
  return wait->is_for_plan ? coordinator_checkpoint_is_coming(shell->core, wait->parent, &wait->step, &step)
                           : coordinator_checkpoint_comes_again(shell->core, wait->parent, wait->step);
}

/* The call is then answered, or the fork begins. */
static bool wait_is_over(struct coordinator_service *shell, struct fork_wait *wait, uint64_t now_ms) {
  struct err err = ERR_NONE;
  struct fork_point point;
  Weir__RunInfo info;
  if (!coordinator_run_info(shell->core, wait->parent, now_ms, &info)) {
    rpc_call_fail(wait->call, ERR_NOT_FOUND, "run '%s' was deleted", wait->parent);
    return true;
  }
  if (coordinator_plan_is_to_come(shell->core, wait->parent)) {
    if (now_ms < wait->until_ms)
      return false;
    rpc_call_fail(
        wait->call, ERR_UNAVAILABLE,
        "run '%s' has not begun, and how many steps it has is known when its first worker has loaded "
        "its data: try again then",
        wait->parent);
  } else if (is_coming(shell, wait)) {
    if (now_ms < wait->until_ms)
      return false;
    rpc_call_fail(wait->call, ERR_UNAVAILABLE,
                  "the checkpoint of step %" PRIu64 " of run '%s' is still being made%s%s: try again",
                  wait->step, wait->parent, *info.store_message ? ": " : "", info.store_message);
  } else if (fork_pick(shell, wait->parent, &wait->step, &point, &err)) {
    shell_fork_begin(shell, wait->call, wait->request, &point);
  } else {
    rpc_call_finish(wait->call, &err);
  }
  return true;
}

void shell_close_forks(struct coordinator_service *shell, const char *why) {
  struct fork_wait *wait;
  while ((wait = shell->fork_waits)) {
    shell->fork_waits = wait->next;
    rpc_call_fail(wait->call, ERR_UNAVAILABLE, "%s", why);
    wait_free(wait);
  }
  shell->n_fork_waits = 0;
}

void shell_fork_on_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes) {
  shell_ask(call, message, bytes, fork_run);
}
