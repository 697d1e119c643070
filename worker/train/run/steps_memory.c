/* What a run's steps are kept in. */
#include <stdlib.h>

#include "worker/train/run/steps.h"

void steps_init(struct run *run, const struct mode *mode) {
  const struct plan *plan = &run->loaded.plan;
  run->mode = *mode;
  run->mode.last = plan->steps;
  run->bounds = mode_bounds(mode);
  run->steps = mem_new((run->bounds.rounds + 1) * sizeof *run->steps);
  run->reducers = mem_new(run->bounds.rounds * sizeof(struct reducer *));
  run->sends = mem_new(run->bounds.rounds * sizeof *run->sends);
  for (uint32_t i = 0; i <= run->bounds.rounds; i++) {
    tasks_init(&run->steps[i].microbatches, plan_units(plan));
    tasks_init(&run->steps[i].chunks, plan->eval_chunks);
    extras_init(&run->steps[i].extra_microbatches, plan_units(plan));
    extras_init(&run->steps[i].extra_chunks, plan->eval_chunks);
  }
}

void steps_fini(struct run *run) {
  for (uint32_t i = 0; run->steps && i <= run->bounds.rounds; i++) {
    tasks_fini(&run->steps[i].microbatches);
    tasks_fini(&run->steps[i].chunks);
    extras_fini(&run->steps[i].extra_microbatches);
    extras_fini(&run->steps[i].extra_chunks);
  }
  free(run->steps);
  free(run->reducers);
  free(run->sends);
  free(run->unsent);
  run->steps = NULL;
  run->reducers = NULL;
  run->sends = NULL;
  run->unsent = NULL;
}
