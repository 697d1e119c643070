/* Evaluation chunks: an execution after the other, their sums added in order in f64, one row pushed. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "worker/train/executor/edges.h"

/* Of one chunk. */
struct evaluation {
  double sums[METRICS];
  float totals[METRICS]; /* of one execution */
  struct buffer *row;    /* f32[row_elems of the metrics]: what is pushed */
  uint32_t part;         /* of the chunk: the batch behind the present one */
  uint32_t first;        /* place in the chunk of the batch's first sample */
  bool is_repetition;    /* what is executed: its output is not for the metrics */
};

static void on_output(struct task *task, const float *output) {
  const struct model *model = task->run->loaded.model;
  const struct evaluation *evaluation = task->evaluation;
  const struct loader_batch *batch = task->batch;
  struct err err = ERR_NONE;
  if (evaluation->is_repetition)
    return;
  struct metric_batch of = {.site = &model->metrics.site,
                            .output = output,
                            .labels = batch->inputs[model->n_columns],
                            .first = evaluation->first,
                            .samples = batch->samples};
  if (metric_set_add(&model->metrics, &of, evaluation->row->data, &err) && !task->is_dropped)
    task_fail_err(task, &err);
}

static void on_eval_value(void *user, int watch, const float *data) {
  struct executor *executor = user;
  int metric = executor->eval_watches[watch];
  if (metric == EVAL_WATCH_OUTPUT)
    on_output(executor->task, data);
  else
    executor->task->evaluation->totals[metric] = data[0];
}

static bool on_eval_receive(void *user, enum backend_part part, const void **pieces) {
  struct executor *executor = user;
  if (executor_is_at_edge(executor, part, false))
    edges_receive(executor, part, pieces);
  else
    outbox_look(&executor[-1].eval_up, executor->turn.slot, pieces);
  return true;
}

static void on_eval_send(void *user, enum backend_part part, const void *const *pieces) {
  struct executor *executor = user;
  if (executor_is_at_edge(executor, part, true))
    edges_send(executor, part, pieces);
  else
    outbox_put(&executor->eval_up, executor->turn.slot, pieces);
}

/* The executor's part of an execution of the eval program, of the task's batch. False: dropped. */
static bool eval_execute(struct executor *executor) {
  struct run *run = executor->run;
  struct task *task = executor->task;
  struct backend_run execution = {.part = executor->team->n_stages > 1 ? BACKEND_FORWARD : BACKEND_WHOLE,
                                  .inputs = (const void *const *)task->batch->inputs,
                                  .weights = task->work.set->eval_values,
                                  .weights_version = executor_weights_version(executor),
                                  .context = {run->loaded.plan.seed, task->work.step, 0},
                                  .on_value = on_eval_value,
                                  .before_weight = executor_before_eval_weight,
                                  .receive = on_eval_receive,
                                  .send = on_eval_send,
                                  .is_cancelled = executor_is_cancelled,
                                  .user = executor};
  struct err err = ERR_NONE;
  if (run->options.backend->run(executor->eval, &execution, &err) && !task->is_dropped)
    task_fail_err(task, &err);
  return !task->is_dropped;
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

/* The next batch of the chunk. False: it was the last. */
static bool eval_load(struct executor *executor) {
  struct task *task = executor->task;
  const struct plan *plan = &task->run->loaded.plan;
  uint64_t begin_ns = clock_now_ns();
  struct evaluation *evaluation = task->evaluation;
  struct err err = ERR_NONE;
  if (evaluation->part < plan->eval_chunk_samples / plan->microbatch_samples)
    task->batch = loader_eval(task->run->loaded.loader, task->work.index, evaluation->part);
  executor->times.data_ns += clock_now_ns() - begin_ns;
  if (!task->batch)
    return false;
  evaluation->first = evaluation->part++ * plan->microbatch_samples;
  evaluation->totals[METRIC_SAMPLES] = (float)task->batch->samples;
  evaluation->totals[METRIC_DENOMINATOR] =
      (float)(task->batch->samples * task->run->loaded.model->labels.sample_denominator);
  evaluation->is_repetition = false;
  if (loader_check(task->run->loaded.loader, &err))
    task_fail_data(task, &err);
  return true;
}

/* How much of the batch repeats its last sample. */
static double eval_repeated(const struct task *task) {
  double batch_samples = task->run->loaded.plan.microbatch_samples;
  return (batch_samples - task->batch->samples) / batch_samples;
}

/* Adds an execution. Of a short batch it has repeated the last sample. Labels of classes are ignored there;
   of other losses it is known from an execution of nothing else what the repetitions added, and taken off
   again. */
static void eval_add(struct task *task) {
  struct evaluation *evaluation = task->evaluation;
  if (evaluation->is_repetition)
    evaluation->sums[METRIC_LOSS_SUM] -= (double)evaluation->totals[METRIC_LOSS_SUM] * eval_repeated(task);
  for (int m = 0; m < METRICS && !evaluation->is_repetition; m++)
    evaluation->sums[m] += (double)evaluation->totals[m];
}

/* True: the execution of repetitions alone, or another batch follows. All workers of a team find the same. */
static bool eval_next(struct executor *executor) {
  struct task *task = executor->task;
  const struct model *model = task->run->loaded.model;
  struct evaluation *evaluation = task->evaluation;
  bool has_more = true;
  if (!evaluation->is_repetition && eval_repeated(task) > 0 && model->labels.classes == 0) {
    batch_repeat_last(model->eval, task->batch);
    evaluation->is_repetition = true;
  } else {
    loader_put(task->run->loaded.loader, task->batch);
    task->batch = NULL;
    has_more = eval_load(executor);
  }
  task->execution += has_more;
  return has_more;
}

/* Its row, once the step before it is over. */
static void eval_push(struct executor *executor) {
  struct run *run = executor->run;
  struct task *task = executor->task;
  struct evaluation *evaluation = task->evaluation;
  uint32_t block = run->loaded.model->n_summed_blocks; /* begins with the metrics */
  float *row = evaluation->row->data;
  bool is_finite = true;
  for (int m = 0; m < METRICS; m++)
    row[m] = (float)evaluation->sums[m];
  for (int64_t i = 0; i < run->loaded.model->metrics.row_elems; i++)
    is_finite &= isfinite(row[i]) != 0;
  if (!task->is_dropped && !is_finite)
    task_fail(task, isfinite(row[METRIC_LOSS_SUM]) ? "the output" : "the loss");
  if (!executor_wait_current(executor))
    return;
  transfers_start(run->transfers,
                  &(struct transfer_item){.kind = TRANSFER_PUSH,
                                          .server = run->owner[block],
                                          .block = block,
                                          .step = task->work.step,
                                          .node = {task->work.index, 0},
                                          .is_evaluation = true,
                                          .buffer = evaluation->row},
                  1);
  evaluation->row = NULL;
}

static void evaluation_new(struct executor *executor) {
  struct task *task = executor->task;
  size_t row_bytes = (size_t)task->run->loaded.model->metrics.row_elems * sizeof(float);
  struct err err;
  task->evaluation = mem_new(sizeof *task->evaluation);
  task->evaluation->row = buffer_new(row_bytes);
  if (!task->evaluation->row) {
    err_set(&err, ERR_NO_MEMORY, "no memory for its row of %zu bytes", row_bytes);
    task_fail_err(task, &err);
    return;
  }
  memset(task->evaluation->row->data, 0, row_bytes);
  CHECK(eval_load(executor)); /* no chunk is empty */
}

void evaluation_free(struct task *task) {
  if (task->evaluation)
    buffer_put(task->evaluation->row);
  free(task->evaluation);
  task->evaluation = NULL;
}

bool executor_evaluate(struct executor *executor) {
  struct task *task = executor->task;
  if (!task->evaluation)
    evaluation_new(executor);
  if (task->is_dropped || !eval_execute(executor) || !executor_is_at_edge(executor, BACKEND_FORWARD, true))
    return false;
  if (executor_is_last(executor))
    eval_add(task);
  if (eval_next(executor))
    return true;
  if (executor_is_last(executor))
    eval_push(executor);
  evaluation_free(task);
  return false;
}
