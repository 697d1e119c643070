/* The order in which the stages of a team compute. */
#include "worker/train/executor/pipeline.h"

#include <stdlib.h>

#include "common/base/err.h"
#include "common/base/memory.h"

void pipeline_init(struct pipeline *pipeline, int n_stages, int first, int last) {
  *pipeline = (struct pipeline){.n_stages = n_stages,
                                .first = first,
                                .last = last,
                                .slots = mem_new((size_t)n_stages * sizeof *pipeline->slots)};
  for (int s = 0; s < n_stages; s++)
    pipeline->slots[s].contexts = mem_new((size_t)n_stages * sizeof(int));
}

void pipeline_fini(struct pipeline *pipeline) {
  for (int s = 0; s < pipeline->n_stages; s++)
    free(pipeline->slots[s].contexts);
  free(pipeline->slots);
  *pipeline = (struct pipeline){0};
}

int pipeline_contexts(int n_stages, int stage) {
  return n_stages - stage;
}

static int slot_find_free(const struct pipeline *pipeline) {
  for (int s = 0; s < pipeline->n_stages; s++)
    if (pipeline->slots[s].next == PIPELINE_FREE)
      return s;
  return -1;
}

bool pipeline_has_room(const struct pipeline *pipeline) {
  return slot_find_free(pipeline) >= 0;
}

int pipeline_begin(struct pipeline *pipeline, bool goes_back) {
  int s = slot_find_free(pipeline);
  CHECK(s >= 0);
  struct pipeline_slot *slot = &pipeline->slots[s];
  slot->next = PIPELINE_FORWARD;
  slot->stage = pipeline->first;
  slot->is_busy = false;
  slot->goes_back = goes_back;
  slot->order = pipeline->n_begun++;
  for (int i = 0; i < pipeline->n_stages; i++)
    slot->contexts[i] = -1;
  return s;
}

/* The lowest context of the stage that no task is in; -1: all are in use. */
static int context_find(const struct pipeline *pipeline, int stage) {
  int n = pipeline_contexts(pipeline->n_stages, stage);
  for (int c = 0; c < n; c++) {
    bool is_used = false;
    for (int s = 0; s < pipeline->n_stages; s++)
      is_used |= pipeline->slots[s].next != PIPELINE_FREE && pipeline->slots[s].contexts[stage] == c;
    if (!is_used)
      return c;
  }
  return -1;
}

/* The first begun of the tasks whose next part is this one; -1. */
static int slot_find(const struct pipeline *pipeline, int stage, enum pipeline_part part, bool goes_back) {
  int found = -1;
  for (int s = 0; s < pipeline->n_stages; s++) {
    const struct pipeline_slot *slot = &pipeline->slots[s];
    if (slot->next == part && slot->stage == stage && !slot->is_busy && slot->goes_back == goes_back &&
        (found < 0 || slot->order < pipeline->slots[found].order))
      found = s;
  }
  return found;
}

int pipeline_take(struct pipeline *pipeline, int stage) {
  int context = context_find(pipeline, stage);
  int found = slot_find(pipeline, stage, PIPELINE_BACKWARD, true);
  if (found < 0 && !(pipeline->is_held_up && stage == pipeline->last))
    found = slot_find(pipeline, stage, PIPELINE_FORWARD, false);
  if (found < 0 && context >= 0)
    found = slot_find(pipeline, stage, PIPELINE_FORWARD, true);
  if (found < 0)
    return -1;
  struct pipeline_slot *slot = &pipeline->slots[found];
  slot->is_busy = true;
  if (slot->goes_back && slot->next == PIPELINE_FORWARD)
    slot->contexts[stage] = context;
  return found;
}

bool pipeline_finish(struct pipeline *pipeline, int s) {
  struct pipeline_slot *slot = &pipeline->slots[s];
  bool is_forward = slot->next == PIPELINE_FORWARD;
  slot->is_busy = false;
  if (is_forward && slot->stage < pipeline->last) {
    slot->stage++;
    return false;
  }
  if (is_forward && slot->goes_back && slot->stage < pipeline->n_stages - 1) {
    slot->next = PIPELINE_AWAITS;
    return false;
  }
  slot->contexts[slot->stage] = -1;
  if (!slot->goes_back || slot->stage == pipeline->first) {
    slot->next = PIPELINE_FREE;
    return true;
  }
  slot->next = PIPELINE_BACKWARD;
  slot->stage--;
  return false;
}

void pipeline_repeat(struct pipeline *pipeline, int s) {
  pipeline->slots[s].is_busy = false;
  pipeline->slots[s].stage = pipeline->first;
  if (pipeline->first > 0)
    pipeline->slots[s].next = PIPELINE_AWAITS;
}

void pipeline_resume(struct pipeline *pipeline, int s) {
  struct pipeline_slot *slot = &pipeline->slots[s];
  CHECK(slot->next == PIPELINE_AWAITS && !slot->is_busy);
  slot->next = slot->goes_back ? PIPELINE_BACKWARD : PIPELINE_FORWARD;
}

void pipeline_take_away(struct pipeline *pipeline, int s) {
  pipeline->slots[s].is_busy = true;
}

void pipeline_drop(struct pipeline *pipeline, int s) {
  pipeline->slots[s].next = PIPELINE_FREE;
}
