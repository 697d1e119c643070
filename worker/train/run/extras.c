/* Extra tasks. */
#include "worker/train/run/extras.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "common/base/memory.h"

/* A set of these. */
enum extra_state { EXTRA_ORDERED = 1, EXTRA_OWN = 2, EXTRA_BEGUN = 4, EXTRA_DONE = 8 };

static const uint8_t wanted = EXTRA_ORDERED | EXTRA_OWN; /* by the coordinator, by this worker */

void extras_init(struct extras *extras, uint32_t n) {
  *extras = (struct extras){.states = mem_new(n), .n = n};
}

void extras_fini(struct extras *extras) {
  free(extras->states);
  *extras = (struct extras){0};
}

void extras_clear(struct extras *extras) {
  memset(extras->states, 0, extras->n);
  extras->n_wanted = 0;
}

static void state_set(struct extras *extras, uint32_t i, uint8_t state) {
  extras->n_wanted -= (extras->states[i] & wanted) != 0;
  extras->n_wanted += (state & wanted) != 0;
  extras->states[i] = state;
}

void extras_order(struct extras *extras, Weir__Range *const *ranges, size_t n_ranges) {
  for (uint32_t i = 0; i < extras->n; i++)
    state_set(extras, i, extras->states[i] & (uint8_t)~EXTRA_ORDERED);
  for (size_t r = 0; r < n_ranges && r < extras->n; r++)
    for (uint32_t i = ranges[r]->begin; i < ranges[r]->end && i < extras->n; i++)
      state_set(extras, i, extras->states[i] | EXTRA_ORDERED);
}

bool extras_add(struct extras *extras, struct task_range range) {
  bool is_new = false;
  for (uint32_t i = range.begin; i < range.end && i < extras->n; i++) {
    if (extras->states[i])
      continue;
    state_set(extras, i, EXTRA_OWN);
    is_new = true;
  }
  return is_new;
}

/* The first that is wanted and not under way; n if there is none. */
static uint32_t extras_next(const struct extras *extras) {
  for (uint32_t i = 0; i < extras->n && extras->n_wanted > 0; i++)
    if ((extras->states[i] & wanted) && !(extras->states[i] & EXTRA_BEGUN))
      return i;
  return extras->n;
}

bool extras_are_owed(const struct extras *extras) {
  return extras_next(extras) < extras->n;
}

bool extras_begin(struct extras *extras, uint32_t *index) {
  uint32_t next = extras_next(extras);
  if (next == extras->n)
    return false;
  state_set(extras, next, EXTRA_BEGUN);
  *index = next;
  return true;
}

void extras_end(struct extras *extras, uint32_t index, bool is_done) {
  CHECK(extras->states[index] & EXTRA_BEGUN);
  extras->states[index] &= (uint8_t)~EXTRA_BEGUN;
  if (is_done)
    extras->states[index] |= EXTRA_DONE;
}
