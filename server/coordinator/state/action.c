/* Actions of a step. */
#include "server/coordinator/state/action.h"

#include <stdlib.h>

#include "server/coordinator/state/state.h"

void coordinator_actions_fini(struct coordinator_actions *actions) {
  arena_fini(&actions->arena);
  free(actions->items);
  *actions = (struct coordinator_actions){0};
}

struct coordinator_action *coordinator_act(struct coordinator *coordinator,
                                           enum coordinator_action_kind kind) {
  struct coordinator_actions *actions = coordinator->actions;
  array_reserve((void **)&actions->items, &actions->capacity, actions->count, sizeof *actions->items);
  actions->items[actions->count] = (struct coordinator_action){.kind = kind};
  return &actions->items[actions->count++];
}

void coordinator_close_link(struct coordinator *coordinator, uint64_t key, enum err_code code,
                            const char *reason) {
  struct coordinator_action *action = coordinator_act(coordinator, ACTION_CLOSE);
  action->member = key;
  action->code = code;
  action->reason = arena_strdup(&coordinator->actions->arena, reason);
}
