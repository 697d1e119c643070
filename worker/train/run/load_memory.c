/* A run's memory on a worker: what the model holds of its file, versions of the run's weights, sums of
   gradients, and of each executor its activations and the weights that it keeps in its own layouts. On a GPU:
   what its two programs hold, each with weights of its own, and the versions of a group on devices. */
#include "worker/train/run/load_memory.h"

enum { GRADIENT_SUMS = 1 };

static double bytes_to_mebibytes(double bytes) {
  return bytes / (1 << 20);
}

/* Whatever the microbatch is. */
static double fixed_bytes(const struct load_memory *memory) {
  double weights = (double)memory->model.weights_bytes, kept = (double)memory->model.kept_bytes;
  double parameters = (double)memory->model.gradients_bytes;
  if (memory->device)
    return weights * (memory->has_eval ? 2 : 1) + parameters * memory->versions + kept;
  return (double)memory->model.file_bytes + parameters * (memory->versions + GRADIENT_SUMS) +
         (double)memory->state_bytes + kept * memory->executors;
}

/* Of one executor. */
static double activation_bytes(const struct load_memory *memory) {
  return (double)memory->model.train_bytes + (memory->has_eval ? (double)memory->model.eval_bytes : 0);
}

/* Samples of the largest microbatch that fits, of those that divide the batch; 0: not even one does. */
static uint64_t samples_that_fit(const struct load_memory *memory) {
  double a_sample = activation_bytes(memory) * memory->executors / (double)memory->microbatch_samples;
  double most = a_sample > 0 ? ((double)memory->available_bytes - fixed_bytes(memory)) / a_sample : 0;
  uint64_t samples = most >= 1 && memory->executors > 0 ? (uint64_t)most : 0;
  while (samples > 0 && memory->batch % samples)
    samples--;
  return samples;
}

uint64_t load_memory_needed(const struct load_memory *memory) {
  return (uint64_t)(fixed_bytes(memory) + activation_bytes(memory) * memory->executors);
}

int load_memory_check(const struct load_memory *memory, struct err *err) {
  double fixed = fixed_bytes(memory), activations = activation_bytes(memory);
  double needed = fixed + activations * memory->executors;
  if (needed <= (double)memory->available_bytes)
    return ERR_OK;
  if (memory->device)
    err_set(err, ERR_NO_MEMORY,
            "the run needs %.0f MiB on %s (%.0f MiB of activations, %.0f MiB of weights), which has %.0f MiB",
            bytes_to_mebibytes(needed), memory->device, bytes_to_mebibytes(activations),
            bytes_to_mebibytes(fixed), bytes_to_mebibytes((double)memory->available_bytes));
  else
    err_set(err, ERR_NO_MEMORY,
            "the run needs %.0f MiB here (%d executors with %.0f MiB of activations each, %.0f MiB of "
            "weights), and %.0f MiB are available",
            bytes_to_mebibytes(needed), memory->executors, bytes_to_mebibytes(activations),
            bytes_to_mebibytes(fixed), bytes_to_mebibytes((double)memory->available_bytes));
  return load_memory_advise(memory, err);
}

int load_memory_advise(const struct load_memory *memory, struct err *err) {
  uint64_t samples = samples_that_fit(memory);
  if (samples >= memory->microbatch_samples) /* the estimate knows less than who found that it does not fit */
    samples = memory->microbatch_samples / 2;
  while (samples > 0 && memory->batch % samples)
    samples--;
  if (memory->executors == 0)
    return err_append(err, ": the weights alone are too many");
  if (samples > 0)
    return err_append(err, ": microbatches of %llu samples would fit (train.microbatches: %llu)%s",
                      (unsigned long long)samples, (unsigned long long)(memory->batch / samples),
                      memory->device ? "" : ", or fewer threads");
  return err_append(err, ": not even microbatches of one sample fit%s",
                    memory->device ? "" : " on so many threads");
}

uint64_t load_memory_free(const struct model *model, uint64_t available_bytes) {
  uint64_t later_bytes = 2 * model->param_elems * sizeof(float) + available_bytes / 32;
  if (available_bytes == UINT64_MAX)
    return available_bytes;
  return later_bytes < available_bytes ? available_bytes - later_bytes : 0;
}
