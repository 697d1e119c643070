#include "tests/support/forks/fork_terms.h"

#include <math.h>

Weir__CheckpointInfo checkpoint_of_version(uint64_t step) {
  Weir__CheckpointInfo info = WEIR__CHECKPOINT_INFO__INIT;
  info.step = step;
  info.accuracy = info.eval_loss = NAN;
  return info;
}

void fork_terms_init(struct fork_terms *terms, uint64_t samples, uint64_t steps,
                     const struct run_origin *origin) {
  weir__plan__init(&terms->plan);
  terms->plan.train_samples = samples;
  terms->plan.steps = steps;
  weir__run_reference__init(&terms->reference);
  terms->reference.worker = "worker-9 (elsewhere)";
  terms->reference.dataset_sha256 = "data";
  terms->base = checkpoint_of_version(origin->step);
  terms->inheritance.plan = &terms->plan;
  terms->inheritance.reference = &terms->reference;
  terms->inheritance.base = origin->is_to_come ? NULL : &terms->base;
}
