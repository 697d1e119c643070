/* shuffle: each epoch is a keyed permutation of the dataset, so that every sample comes once. */
#include "common/agree/random.h"
#include "worker/data/sampler.h"

enum { STREAM_SHUFFLE = 1 };

static uint64_t shuffle_draw(const struct plan *plan, const void *state, uint64_t epoch, uint64_t index) {
  (void)state;
  return random_permute(random_key(plan->seed, STREAM_SHUFFLE, epoch, 0), index, plan->train_samples);
}

const struct sampler_def sampler_shuffle = {.name = "shuffle", .draw = shuffle_draw};
