/* Evaluation chunks: an execution after the other, their sums added in order in f64, one row pushed. */
#include <math.h>
#include <string.h>

#include "worker/train/executor.h"

struct eval_sums {
  double of[METRICS];
};

static void on_eval_value(void *user, int watch, const float *data) {
  static const int metric_of[EVAL_WATCHED] = {METRIC_LOSS_SUM, METRIC_CORRECT, METRIC_SCORED,
                                              METRIC_DENOMINATOR};
  struct executor *executor = user;
  executor->metrics[metric_of[watch]] = data[0];
}

/* One execution of the eval program. False: dropped. */
static bool eval_execute(struct executor *executor, const struct loader_batch *batch) {
  struct run *run = executor->run;
  struct backend_run execution = {.inputs = (const void *const *)batch->inputs,
                                  .weights = executor->work.set->eval_values,
                                  .weights_version = executor_weights_version(executor),
                                  .context = {run->loaded.plan.seed, executor->work.version, 0},
                                  .on_value = on_eval_value,
                                  .before_weight = executor_before_eval_weight,
                                  .is_cancelled = executor_is_cancelled,
                                  .user = executor};
  struct err err = ERR_NONE;
  if (run->options.backend->run(executor->eval, &execution, &err) && !executor->is_dropped)
    executor_fail_err(executor, &err);
  return !executor->is_dropped;
}

/* Overwrites every sample of the batch with its last one. */
static void batch_repeat_last(const struct graph *graph, struct loader_batch *batch) {
  for (int i = 0; i < graph->n_inputs; i++) {
    const struct value *input = &graph->values[graph->inputs[i]];
    size_t samples = (size_t)input->shape.dim[0];
    size_t sample_bytes = (size_t)shape_elems(&input->shape) / samples * dtype_size(input->dtype);
    unsigned char *bytes = batch->inputs[i];
    for (size_t s = 0; s + 1 < samples; s++)
      memcpy(bytes + s * sample_bytes, bytes + (samples - 1) * sample_bytes, sample_bytes);
  }
}

/* Adds a batch. A short one repeats its last sample. Labels of classes are ignored there; of other losses it
   is known from an execution of nothing else what the repetitions added, and taken off again. */
static void eval_add(struct executor *executor, struct loader_batch *batch, struct eval_sums *sums) {
  const struct model *model = executor->run->loaded.model;
  double batch_samples = executor->run->loaded.plan.microbatch_samples;
  double repeated = (batch_samples - batch->samples) / batch_samples;
  executor->metrics[METRIC_SAMPLES] = (float)batch->samples;
  executor->metrics[METRIC_DENOMINATOR] = (float)(batch->samples * model->labels.sample_denominator);
  if (!eval_execute(executor, batch))
    return;
  for (int m = 0; m < METRICS; m++)
    sums->of[m] += (double)executor->metrics[m];
  if (repeated == 0 || model->labels.classes > 0)
    return;
  batch_repeat_last(model->eval, batch);
  if (eval_execute(executor, batch))
    sums->of[METRIC_LOSS_SUM] -= (double)executor->metrics[METRIC_LOSS_SUM] * repeated;
}

static void eval_push(struct executor *executor, const struct eval_sums *sums) {
  struct run *run = executor->run;
  uint32_t block = run->loaded.model->n_param_blocks; /* begins with the metrics */
  struct buffer *buffer = block_pool_take(run->pool, block);
  struct transfer_item item = {.kind = TRANSFER_PUSH,
                               .server = run->owner[block],
                               .block = block,
                               .version = executor->work.version,
                               .node = {executor->work.index, 0},
                               .is_evaluation = true,
                               .buffer = buffer};
  float *row;
  if (!buffer) {
    struct err err;
    err_set(&err, ERR_NO_MEMORY, "no memory for its row");
    executor_fail_err(executor, &err);
    return;
  }
  row = buffer->data;
  memset(row, 0, buffer->size_bytes);
  for (int m = 0; m < METRICS; m++)
    row[m] = (float)sums->of[m];
  transfers_start(run->transfers, &item);
}

bool executor_evaluate(struct executor *executor) {
  struct run *run = executor->run;
  uint32_t parts = run->loaded.plan.eval_chunk_samples / run->loaded.plan.microbatch_samples;
  struct eval_sums sums = {0};
  struct err err = ERR_NONE;
  for (uint32_t part = 0; part < parts && !executor->is_dropped; part++) {
    struct loader_batch *batch = loader_eval(run->loaded.loader, executor->work.index, part);
    if (!batch)
      break;
    if (loader_check(run->loaded.loader, &err))
      executor_fail_err(executor, &err);
    else
      eval_add(executor, batch, &sums);
    loader_put(run->loaded.loader, batch);
  }
  if (!executor->is_dropped && !isfinite((float)sums.of[METRIC_LOSS_SUM]))
    executor_fail(executor, "the loss");
  if (executor_wait_current(executor))
    eval_push(executor, &sums);
  return !executor->is_dropped;
}
