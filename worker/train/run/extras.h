/* Extra tasks: what a worker computes of the present step beside its share, because others are late with it,
   or because a sum of it overflowed. Each is computed and pushed by itself. This part is pure: it knows which
   tasks are wanted, and which have begun. */
#ifndef WEIR_WORKER_TRAIN_RUN_EXTRAS_H
#define WEIR_WORKER_TRAIN_RUN_EXTRAS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cluster.pb-c.h"
#include "worker/train/block/tasks.h"

/* Of one kind: microbatches of a step, or chunks of an evaluation. */
struct extras {
  uint8_t *states; /* [n] */
  uint32_t n;
  uint32_t n_wanted; /* which may be none of thousands, when it is asked for at every block that comes */
};

void extras_init(struct extras *extras, uint32_t n);
void extras_fini(struct extras *extras); /* safe on a zeroed one */

/* Nothing is wanted. Nothing has begun and not ended. */
void extras_clear(struct extras *extras);

/* The coordinator wants these, and of what it wanted before nothing else that has not begun. What has begun,
   or was done, is wanted anew: a server may have let go of what it pushed. What lies beyond n is ignored, and
   so are ranges beyond the nth: more than n name nothing new. */
void extras_order(struct extras *extras, Weir__Range *const *ranges, size_t n_ranges);

/* This worker wants these itself, but for what has begun or was done. False: that is all of them. */
bool extras_add(struct extras *extras, struct task_range range);

/* Whether extras_begin would find one. */
bool extras_are_owed(const struct extras *extras);

/* Begins the first that is wanted and is not being computed already. False if there is none. */
bool extras_begin(struct extras *extras, uint32_t *index);
void extras_end(struct extras *extras, uint32_t index, bool is_done);

#endif
