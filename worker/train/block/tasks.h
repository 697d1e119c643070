/* Tasks of one kind (microbatches of a step, chunks of an evaluation) and how far each is. */
#ifndef WEIR_WORKER_TRAIN_BLOCK_TASKS_H
#define WEIR_WORKER_TRAIN_BLOCK_TASKS_H

#include <stdbool.h>
#include <stdint.h>

/* [begin, end) */
struct task_range {
  uint32_t begin, end;
};

struct task_list {
  uint8_t *states; /* [n] */
  uint32_t n;
  uint32_t n_owed; /* assigned to us, not yet begun */
};

void tasks_init(struct task_list *list, uint32_t n);
void tasks_fini(struct task_list *list); /* safe on a zeroed list */

/* Nothing is begun and nothing owed. */
void tasks_clear(struct task_list *list);

/* Exactly the tasks of the range that were not begun are owed. Tasks beyond n are ignored. */
void tasks_assign(struct task_list *list, struct task_range range);

/* Begins the first task that is owed; false if none is. */
bool tasks_begin(struct task_list *list, uint32_t *index);

/* Begins that task; false if it is not owed. */
bool tasks_begin_at(struct task_list *list, uint32_t index);
/* Of an index beyond n both are false. */
bool tasks_is_owed(const struct task_list *list, uint32_t index);
bool tasks_is_begun(const struct task_list *list, uint32_t index); /* and has not ended */

/* Ends a task that was begun. If it is not done it counts as not begun, and is not owed until tasks_assign
   says so. */
void tasks_end(struct task_list *list, uint32_t index, bool is_done);

/* mine[i]: task i is owed, begun or done. */
void tasks_mine(const struct task_list *list, bool *mine);

#endif
