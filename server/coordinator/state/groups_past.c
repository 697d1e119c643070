/* Which workers made groups in which views. */
#include "server/coordinator/state/groups_past.h"

#include <stdlib.h>

#include "common/base/memory.h"
#include "server/coordinator/state/seat.h"
#include "server/coordinator/state/run.h"

static struct group_past *find_number(struct groups_past *past, uint32_t number);
static void remember(struct groups_past *past, const struct run *run, struct seat *const *seats, int n);

void coordinator_remember_groups(struct run *run, struct seat *const *seats, int n) {
  struct groups_past *past = &run->groups_past;
  if (!past->first_view)
    past->first_view = run->view;
  for (int i = 0; i < n; i++) {
    uint32_t number = seats[i]->group.number;
    struct group_past *known = number ? find_number(past, number) : NULL;
    if (known)
      known->last_view = run->view;
    else if (number)
      remember(past, run, seats + i, n - i);
  }
}

static struct group_past *find_number(struct groups_past *past, uint32_t number) {
  uint32_t n = past->count < GROUPS_PAST_MAX ? past->count : GROUPS_PAST_MAX;
  for (uint32_t i = 0; i < n; i++)
    if (past->items[i].number == number)
      return &past->items[i];
  return NULL;
}

/* The group of the first of these workers. Where it takes the place of another, what is known begins after
   that one. */
static void remember(struct groups_past *past, const struct run *run, struct seat *const *seats, int n) {
  struct group_past *group;
  if (!past->items)
    past->items = mem_new(GROUPS_PAST_MAX * sizeof *past->items);
  group = &past->items[past->count++ % GROUPS_PAST_MAX];
  if (group->number && group->last_view >= past->first_view)
    past->first_view = group->last_view + 1;
  free(group->workers);
  *group =
      (struct group_past){.number = seats[0]->group.number, .first_view = run->view, .last_view = run->view};
  group->workers = mem_new((size_t)n * sizeof *group->workers);
  for (int i = 0; i < n; i++)
    if (seats[i]->group.number == group->number)
      group->workers[group->n_workers++] = seats[i]->worker->number;
}

const struct group_past *coordinator_group_in_view(const struct run *run, uint32_t worker, uint64_t view,
                                                   bool *is_known) {
  const struct groups_past *past = &run->groups_past;
  uint32_t n = past->count < GROUPS_PAST_MAX ? past->count : GROUPS_PAST_MAX;
  *is_known = past->first_view && view >= past->first_view && view <= run->view;
  for (uint32_t i = 0; *is_known && i < n; i++) {
    const struct group_past *group = &past->items[i];
    for (int at = 0; view >= group->first_view && view <= group->last_view && at < group->n_workers; at++)
      if (group->workers[at] == worker)
        return group;
  }
  return NULL;
}

bool coordinator_were_in_group(const struct run *run, uint32_t worker, uint32_t other, uint64_t view) {
  bool is_known;
  const struct group_past *group = coordinator_group_in_view(run, other, view, &is_known);
  for (int i = 0; group && i < group->n_workers; i++)
    if (group->workers[i] == worker)
      return true;
  return false;
}

void groups_past_fini(struct groups_past *past) {
  for (int i = 0; past->items && i < GROUPS_PAST_MAX; i++)
    free(past->items[i].workers);
  free(past->items);
}
