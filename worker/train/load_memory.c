/* A run's memory on a worker: the model's own weights, two versions of the run's, sums of gradients, and of
   each executor its activations and the weights that it keeps in its own layouts. */
#include "worker/train/load_memory.h"

enum { WEIGHT_COPIES = 3, GRADIENT_SUMS = 1 };

static double mebibytes(double bytes) {
  return bytes / (1 << 20);
}

/* Whatever the microbatch is. */
static double fixed_bytes(const struct load_memory *memory) {
  return (double)memory->model.weights_bytes * WEIGHT_COPIES +
         (double)memory->model.gradients_bytes * GRADIENT_SUMS +
         (double)memory->model.kept_bytes * memory->executors;
}

/* Of one executor. */
static double activation_bytes(const struct load_memory *memory) {
  return (double)memory->model.train_bytes + (memory->has_eval ? (double)memory->model.eval_bytes : 0);
}

/* Samples of the largest microbatch that fits, of those that divide the batch; 0: not even one does. */
static uint64_t samples_that_fit(const struct load_memory *memory) {
  double a_sample = activation_bytes(memory) * memory->executors / (double)memory->microbatch_samples;
  double most = ((double)memory->available_bytes - fixed_bytes(memory)) / a_sample;
  uint64_t samples = most >= 1 ? (uint64_t)most : 0;
  while (samples > 0 && memory->batch % samples)
    samples--;
  return samples;
}

int load_memory_check(const struct load_memory *memory, struct err *err) {
  double fixed = fixed_bytes(memory), activations = activation_bytes(memory);
  double needed = fixed + activations * memory->executors;
  uint64_t samples;
  if (needed <= (double)memory->available_bytes)
    return ERR_OK;
  samples = samples_that_fit(memory);
  err_set(
      err, ERR_NO_MEMORY,
      "the run needs %.0f MiB here (%d executors with %.0f MiB of activations each, %.0f MiB of weights), "
      "and %.0f MiB are available",
      mebibytes(needed), memory->executors, mebibytes(activations), mebibytes(fixed),
      mebibytes((double)memory->available_bytes));
  if (samples > 0)
    return err_append(err,
                      ": microbatches of %llu samples would fit (train.microbatches: %llu), or fewer threads",
                      (unsigned long long)samples, (unsigned long long)(memory->batch / samples));
  return err_append(err, ": not even microbatches of one sample fit on so many threads");
}
