/* The exponential moving average of the weights. */
#include "server/parameters/block/average.h"

#include <stdbool.h>
#include <string.h>

#include "common/base/vector_variants.h"

static void average_copy(const struct average_update *update, const float *from) {
  if (from != update->next)
    memcpy(update->next, from, update->elems * sizeof *from);
}

/* torch.lerp(average, weights, 1 - decay): from the nearer end, so that both ends are exact. */
VECTOR_VARIANTS
static void average_move(const struct average_update *update, float share) {
  const float *average = update->average, *weights = update->weights;
  const uint32_t elems = update->elems;
  float *next = update->next;
  if (share < 0.5f) {
#pragma GCC ivdep
    for (uint32_t i = 0; i < elems; i++)
      next[i] = average[i] + share * (weights[i] - average[i]);
  } else {
#pragma GCC ivdep
    for (uint32_t i = 0; i < elems; i++)
      next[i] = weights[i] - (weights[i] - average[i]) * (1 - share);
  }
}

void average_update(const Weir__AverageSpec *spec, const struct average_update *update) {
  bool is_first = update->version / spec->every_steps == 1;
  if (update->version % spec->every_steps)
    average_copy(update, update->average);
  else if (is_first || update->version <= spec->start_step)
    average_copy(update, update->weights);
  else
    average_move(update, (float)(1 - spec->decay));
}
