/* Tasks and how far each is. */
#include "worker/train/block/tasks.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "common/base/memory.h"

enum task_state { TASK_NONE, TASK_OWED, TASK_BEGUN, TASK_DONE };

void tasks_init(struct task_list *list, uint32_t n) {
  *list = (struct task_list){.states = mem_new(n), .n = n};
}

void tasks_fini(struct task_list *list) {
  free(list->states);
  *list = (struct task_list){0};
}

void tasks_clear(struct task_list *list) {
  memset(list->states, TASK_NONE, list->n);
  list->n_owed = 0;
}

void tasks_assign(struct task_list *list, struct task_range range) {
  list->n_owed = 0;
  for (uint32_t i = 0; i < list->n; i++) {
    bool is_begun = list->states[i] == TASK_BEGUN || list->states[i] == TASK_DONE;
    if (is_begun)
      continue;
    list->states[i] = i >= range.begin && i < range.end ? TASK_OWED : TASK_NONE;
    list->n_owed += list->states[i] == TASK_OWED;
  }
}

bool tasks_begin(struct task_list *list, uint32_t *index) {
  const uint8_t *owed = list->n_owed > 0 ? memchr(list->states, TASK_OWED, list->n) : NULL;
  if (!owed)
    return false;
  *index = (uint32_t)(owed - list->states);
  list->states[*index] = TASK_BEGUN;
  list->n_owed--;
  return true;
}

bool tasks_is_owed(const struct task_list *list, uint32_t index) {
  return index < list->n && list->states[index] == TASK_OWED;
}

bool tasks_is_begun(const struct task_list *list, uint32_t index) {
  return index < list->n && list->states[index] == TASK_BEGUN;
}

bool tasks_begin_at(struct task_list *list, uint32_t index) {
  if (!tasks_is_owed(list, index))
    return false;
  list->states[index] = TASK_BEGUN;
  list->n_owed--;
  return true;
}

void tasks_end(struct task_list *list, uint32_t index, bool is_done) {
  CHECK(list->states[index] == TASK_BEGUN);
  list->states[index] = is_done ? TASK_DONE : TASK_NONE;
}

void tasks_mine(const struct task_list *list, bool *mine) {
  for (uint32_t i = 0; i < list->n; i++)
    mine[i] = list->states[i] != TASK_NONE;
}
