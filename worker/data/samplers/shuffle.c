/* shuffle: each epoch is a keyed permutation of the dataset, so that every sample comes once. */
#include "worker/data/sampler.h"

static uint64_t shuffle_draw(const struct plan *plan, const void *state, uint64_t epoch, uint64_t index) {
  (void)state;
  return plan_shuffled(plan, epoch, index);
}

const struct sampler_def sampler_shuffle = {.name = "shuffle", .draw = shuffle_draw};
