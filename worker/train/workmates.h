/* A worker that has some of a run's stages, among the workers of its team: as views tell, from its begin to
   its end. Every function needs the run's lock. */
#ifndef WEIR_WORKER_TRAIN_WORKMATES_H
#define WEIR_WORKER_TRAIN_WORKMATES_H

#include "worker/train/run/run_state.h"

/* A view has come (run->newest). */
void run_read_mates_locked(struct run *run, const char *worker);

/* That view becomes the applied one. False: the run has to be left first, because the team is another. */
bool run_apply_mates_locked(struct run *run);

/* Before the run is begun. True: something has crossed our edges, and what answers it may be lost, so the
   team cannot go on. The coordinator is told, and makes another; the run is left until the view of that
   comes. */
bool run_is_team_over_locked(struct run *run);

#endif
