/* sequential: in the dataset's order. */
#include "worker/data/sampler.h"

static uint64_t sequential_draw(const struct plan *plan, const void *state, uint64_t epoch, uint64_t index) {
  (void)plan;
  (void)state;
  (void)epoch;
  return index;
}

const struct sampler_def sampler_sequential = {.name = "sequential", .draw = sequential_draw};
