/* Orders to compute more of a step (cluster.proto: Reissue) whose step is not here yet: the newest one of
   each of the steps that may be open at a time. */
#ifndef WEIR_WORKER_TRAIN_RUN_REISSUES_H
#define WEIR_WORKER_TRAIN_RUN_REISSUES_H

#include "cluster.pb-c.h"
#include "common/modes/mode.h"

struct reissues {
  Weir__Reissue *orders[MODE_ROUNDS_MAX]; /* of step s at s % MODE_ROUNDS_MAX; NULL: there is none */
};

void reissues_keep(struct reissues *reissues,
                   const Weir__Reissue *order); /* a copy, in the place of one before */
void reissues_drop(struct reissues *reissues, uint32_t place);
void reissues_clear(struct reissues *reissues);

#endif
