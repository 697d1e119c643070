/* What people wish of a run: done by the core at once, answered once the store has it. Where the store fails
   or is slow, the wish holds for as long as this coordinator leads, but a successor would not know it. A run
   that was stopped by it is told as it was before; of any other wish the client is told to try again. */
#include <stdlib.h>

#include "server/coordinator/messages/info.h"
#include "server/coordinator/shell/shell.h"

enum { WISHES_MAX = 1024, WAIT_MS = 8000 };

/* A call that waits; in shell->wishes. */
struct wish {
  struct rpc_call *call;
  char *run;
  uint64_t record; /* the newest of the run that was to be saved then: it has what was wished */
  uint64_t until_ms;
  struct wish *next;
};

static void wish_answer(struct coordinator_service *shell, const struct wish *wish, enum save_state state);
static void wish_free(struct wish *wish);

void shell_wish(struct coordinator_service *shell, struct rpc_call *call, const char *run,
                const struct coordinator_event *event) {
  struct wish *wish;
  if (shell->n_wishes == WISHES_MAX) {
    rpc_call_fail(call, ERR_BUSY, "%d calls that change runs wait for the store: try again", WISHES_MAX);
    return;
  }
  shell_step(shell, event);
  wish = mem_new(sizeof *wish);
  *wish = (struct wish){.call = call,
                        .run = mem_strdup(run),
                        .record = shell_saves_newest(shell, run),
                        .until_ms = shell_now_ms() + WAIT_MS,
                        .next = shell->wishes};
  shell->wishes = wish;
  shell->n_wishes++;
}

void shell_wishes_turn(struct coordinator_service *shell, uint64_t now_ms) {
  struct wish **at = &shell->wishes, *wish;
  while ((wish = *at)) {
    enum save_state state = shell_saves_state(shell, wish->run, wish->record);
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

static void wish_answer(struct coordinator_service *shell, const struct wish *wish, enum save_state state) {
  Weir__RunInfo info;
  if (!coordinator_run_info(shell->core, wish->run, shell_now_ms(), &info))
    rpc_call_fail(wish->call, ERR_NOT_FOUND, "run '%s' was deleted", wish->run);
  else if (state == SAVE_DONE || info.stop_pending)
    rpc_call_reply(wish->call, &info, NULL);
  else
    rpc_call_fail(wish->call, ERR_UNAVAILABLE, "the store cannot keep that now%s%s: try again",
                  *shell->save_message ? ": " : "", shell->save_message);
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
  free(wish);
}
