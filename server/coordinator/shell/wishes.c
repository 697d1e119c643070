/* What people wish of a run, and that a sweep ends: done at once, answered once the store has it. Where the
   store fails or is slow, the wish holds for as long as this coordinator leads, but a successor would not
   know it. A run that was stopped by it is told as it was before; of any other wish the client is told to try
   again. */
#include <stdlib.h>

#include "server/coordinator/messages/info.h"
#include "server/coordinator/shell/sweeps.h"

enum { WISHES_MAX = 1024, WAIT_MS = 8000 };

/* A call that waits; in shell->wishes. */
struct wish {
  struct rpc_call *call;
  char *run, *sweep; /* one of them; else NULL */
  bool is_extension; /* of the sweep; else its end */
  uint64_t record;   /* the newest of the run that was to be saved then: it has what was wished */
  uint64_t until_ms;
  struct wish *next;
};

static void wish_add(struct coordinator_service *shell, const struct wish *wish);
static bool has_room(struct coordinator_service *shell, struct rpc_call *call);
static enum save_state wish_state(struct coordinator_service *shell, const struct wish *wish);
static void wish_answer(struct coordinator_service *shell, const struct wish *wish, enum save_state state);
static void answer_sweep(struct coordinator_service *shell, const struct wish *wish, enum save_state state);
static void fail_to_keep(struct coordinator_service *shell, const struct wish *wish);
static void wish_free(struct wish *wish);

void shell_wish(struct coordinator_service *shell, struct rpc_call *call, const char *run,
                const struct coordinator_event *event) {
  if (!has_room(shell, call))
    return;
  shell_step(shell, event);
  shell_saves_hurry(shell, run);
  wish_add(shell,
           &(struct wish){.call = call, .run = mem_strdup(run), .record = shell_saves_newest(shell, run)});
}

void shell_wish_end(struct coordinator_service *shell, struct rpc_call *call, struct shell_sweep *sweep,
                    const char *reason) {
  if (!has_room(shell, call))
    return;
  shell_sweep_end(shell, sweep, reason);
  wish_add(shell, &(struct wish){.call = call, .sweep = mem_strdup(sweep->id)});
}

void shell_wish_extension(struct coordinator_service *shell, struct rpc_call *call, struct shell_sweep *sweep,
                          const Weir__ExtendSweepRequest *request) {
  struct err err = ERR_NONE;
  if (!has_room(shell, call))
    return;
  if (shell_sweep_extend(shell, sweep, request, &err))
    rpc_call_finish(call, &err);
  else
    wish_add(shell, &(struct wish){.call = call, .sweep = mem_strdup(sweep->id), .is_extension = true});
}

static bool has_room(struct coordinator_service *shell, struct rpc_call *call) {
  if (shell->n_wishes < WISHES_MAX)
    return true;
  rpc_call_fail(call, ERR_BUSY, "%d calls that change runs wait for the store: try again", WISHES_MAX);
  return false;
}

/* Takes what the wish points to. */
static void wish_add(struct coordinator_service *shell, const struct wish *wish) {
  struct wish *added = mem_new(sizeof *added);
  *added = *wish;
  added->until_ms = shell_now_ms() + WAIT_MS;
  added->next = shell->wishes;
  shell->wishes = added;
  shell->n_wishes++;
}

void shell_wishes_turn(struct coordinator_service *shell, uint64_t now_ms) {
  struct wish **at = &shell->wishes, *wish;
  while ((wish = *at)) {
    enum save_state state = wish_state(shell, wish);
    if (state == SAVE_UNDER_WAY && now_ms < wish->until_ms) {
      at = &wish->next;
      continue;
    }
    *at = wish->next;
    shell->n_wishes--;
    wish_answer(shell, wish, state);
    wish_free(wish);
  }
}

static enum save_state wish_state(struct coordinator_service *shell, const struct wish *wish) {
  const struct shell_sweep *sweep = wish->sweep ? shell_find_sweep(shell, wish->sweep) : NULL;
  if (!wish->sweep)
    return shell_saves_state(shell, wish->run, wish->record);
  if (!sweep || (wish->is_extension ? !sweep->extension && sweep->n_written >= sweep->n_extended
                                    : sweep_has_ended(sweep)))
    return SAVE_DONE;
  return shell_now_ms() < sweep->retry_ms ? SAVE_FAILED : SAVE_UNDER_WAY;
}

static void wish_answer(struct coordinator_service *shell, const struct wish *wish, enum save_state state) {
  Weir__RunInfo info;
  if (wish->sweep)
    answer_sweep(shell, wish, state);
  else if (!coordinator_run_info(shell->core, wish->run, shell_now_ms(), &info))
    rpc_call_fail(wish->call, ERR_NOT_FOUND, "run '%s' was deleted", wish->run);
  else if (state == SAVE_DONE || info.stop_pending)
    rpc_call_reply(wish->call, &info, NULL);
  else
    fail_to_keep(shell, wish);
}

static void answer_sweep(struct coordinator_service *shell, const struct wish *wish, enum save_state state) {
  const Weir__GetSweepRequest all = WEIR__GET_SWEEP_REQUEST__INIT;
  const struct shell_sweep *sweep = shell_find_sweep(shell, wish->sweep);
  if (!sweep)
    rpc_call_fail(wish->call, ERR_NOT_FOUND, "no sweep '%s'", wish->sweep);
  else if (state == SAVE_DONE)
    shell_reply_sweep(shell, wish->call, sweep, &all);
  else
    fail_to_keep(shell, wish);
}

static void fail_to_keep(struct coordinator_service *shell, const struct wish *wish) {
  const char *trouble = coordinator_store_trouble(shell->core);
  rpc_call_fail(wish->call, ERR_UNAVAILABLE, "the store cannot keep that now%s%s: try again",
                *trouble ? ": " : "", trouble);
}

void shell_close_wishes(struct coordinator_service *shell, const char *why) {
  struct wish *wish;
  while ((wish = shell->wishes)) {
    shell->wishes = wish->next;
    rpc_call_fail(wish->call, ERR_UNAVAILABLE, "%s", why);
    wish_free(wish);
  }
  shell->n_wishes = 0;
}

static void wish_free(struct wish *wish) {
  free(wish->run);
  free(wish->sweep);
  free(wish);
}
