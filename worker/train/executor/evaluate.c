/* Evaluation chunks: an execution after the other, their sums added in order in f64, one row pushed. */
#include <math.h>
#include <string.h>

#include "worker/train/executor/executor.h"

/* Of one chunk. */
struct evaluation {
  double sums[METRICS];
  struct buffer *row;               /* f32[row_elems of the metrics]: what is pushed */
  const struct loader_batch *batch; /* in execution; NULL: its output is not for the metrics */
  uint32_t first;                   /* its first sample's place in the chunk */
};

static void on_output(struct executor *executor, const float *output) {
  const struct model *model = executor->run->loaded.model;
  const struct evaluation *evaluation = executor->evaluation;
  const struct loader_batch *batch = evaluation->batch;
  struct err err = ERR_NONE;
  if (!batch)
    return;
  struct metric_batch of = {.site = &model->metrics.site,
                            .output = output,
                            .labels = batch->inputs[model->n_columns],
                            .first = evaluation->first,
                            .samples = batch->samples};
  if (metric_set_add(&model->metrics, &of, evaluation->row->data, &err) && !executor->is_dropped)
    executor_fail_err(executor, &err);
}

static void on_eval_value(void *user, int watch, const float *data) {
  struct executor *executor = user;
  int metric = executor->eval_watches[watch];
  if (metric == EVAL_WATCH_OUTPUT)
    on_output(executor, data);
  else
    executor->totals[metric] = data[0];
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
static void eval_add(struct executor *executor, struct loader_batch *batch) {
  const struct model *model = executor->run->loaded.model;
  struct evaluation *evaluation = executor->evaluation;
  double batch_samples = executor->run->loaded.plan.microbatch_samples;
  double repeated = (batch_samples - batch->samples) / batch_samples;
  executor->totals[METRIC_SAMPLES] = (float)batch->samples;
  executor->totals[METRIC_DENOMINATOR] = (float)(batch->samples * model->labels.sample_denominator);
  evaluation->batch = batch;
  if (!eval_execute(executor, batch))
    return;
  evaluation->batch = NULL;
  for (int m = 0; m < METRICS; m++)
    evaluation->sums[m] += (double)executor->totals[m];
  if (repeated == 0 || model->labels.classes > 0)
    return;
  batch_repeat_last(model->eval, batch);
  if (eval_execute(executor, batch))
    evaluation->sums[METRIC_LOSS_SUM] -= (double)executor->totals[METRIC_LOSS_SUM] * repeated;
}

static void eval_batches(struct executor *executor) {
  struct run *run = executor->run;
  const struct plan *plan = &run->loaded.plan;
  uint32_t parts = plan->eval_chunk_samples / plan->microbatch_samples;
  struct err err = ERR_NONE;
  for (uint32_t part = 0; part < parts && !executor->is_dropped; part++) {
    struct loader_batch *batch = loader_eval(run->loaded.loader, executor->work.index, part);
    if (!batch)
      return;
    executor->evaluation->first = part * plan->microbatch_samples;
    if (loader_check(run->loaded.loader, &err))
      executor_fail_data(executor, &err);
    else
      eval_add(executor, batch);
    loader_put(run->loaded.loader, batch);
  }
}

/* Its row, once the step before it is over. */
static void eval_push(struct executor *executor) {
  struct run *run = executor->run;
  struct evaluation *evaluation = executor->evaluation;
  uint32_t block = run->loaded.model->n_param_blocks; /* begins with the metrics */
  float *row = evaluation->row->data;
  bool is_finite = true;
  for (int m = 0; m < METRICS; m++)
    row[m] = (float)evaluation->sums[m];
  for (int64_t i = 0; i < run->loaded.model->metrics.row_elems; i++)
    is_finite &= isfinite(row[i]) != 0;
  if (!executor->is_dropped && !is_finite)
    executor_fail(executor, isfinite(row[METRIC_LOSS_SUM]) ? "the output" : "the loss");
  if (!executor_wait_current(executor))
    return;
  transfers_start(run->transfers, &(struct transfer_item){.kind = TRANSFER_PUSH,
                                                          .server = run->owner[block],
                                                          .block = block,
                                                          .version = executor->work.version,
                                                          .node = {executor->work.index, 0},
                                                          .is_evaluation = true,
                                                          .buffer = evaluation->row});
  evaluation->row = NULL;
}

bool executor_evaluate(struct executor *executor) {
  size_t row_bytes = (size_t)executor->run->loaded.model->metrics.row_elems * sizeof(float);
  struct evaluation evaluation = {.row = buffer_new(row_bytes)};
  struct err err;
  executor->evaluation = &evaluation;
  if (evaluation.row) {
    memset(evaluation.row->data, 0, row_bytes);
    eval_batches(executor);
    eval_push(executor);
  } else {
    err_set(&err, ERR_NO_MEMORY, "no memory for its row of %zu bytes", row_bytes);
    executor_fail_err(executor, &err);
  }
  buffer_put(evaluation.row);
  executor->evaluation = NULL;
  return !executor->is_dropped;
}
