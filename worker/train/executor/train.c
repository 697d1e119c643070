/* Microbatches: an executor's part of one, what comes of it, and the probe. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/agree/sum.h"
#include "worker/train/block/probe_weights.h"
#include "worker/train/executor/executor.h"

static void on_statistic(struct task *task, int index, const float *data) {
  const struct statistic *statistic = &task->run->loaded.model->statistics[index];
  if (!sum_is_finite(data, statistic->elems)) {
    task_fail(task, statistic->name);
    return;
  }
  memcpy(task->row + statistic->begin, data, statistic->elems * sizeof(float));
}

static void on_metric(struct task *task, int index, const float *data) {
  task->row[index] = data[0];
  if (!isfinite(data[0]))
    task_fail(task, "the loss");
}

/* Gradients of one parameter each go where they are sent from. */
static int on_train_place(void *user, int watch, struct backend_piece *pieces, int max) {
  struct executor *executor = user;
  const struct task *task = executor->task;
  const struct tap *tap = &executor->taps[executor->taps_of[watch]];
  if (task->probe || task->is_dropped || tap->kind != TAP_GRADIENT || tap->next >= 0)
    return 0;
  return executor_place_gradient(executor, tap->index, pieces, max);
}

static void on_train_value(void *user, int watch, const float *data) {
  struct executor *executor = user;
  struct task *task = executor->task;
  const struct model *model = executor->run->loaded.model;
  for (int t = executor->taps_of[watch]; t >= 0 && !task->is_dropped; t = executor->taps[t].next) {
    const struct tap *tap = &executor->taps[t];
    task->n_left--;
    if (task->probe) {
      if (tap->kind == TAP_GRADIENT)
        sha256_hex(data, model->params[tap->index].elems * sizeof(float), task->probe->gradients[tap->index]);
    } else if (!data)
      executor_deliver_placed(executor, tap->index);
    else if (tap->kind == TAP_GRADIENT)
      executor_deliver_gradient(executor, tap->index, data);
    else if (tap->kind == TAP_STATISTIC)
      on_statistic(task, tap->index, data);
    else
      on_metric(task, tap->index, data);
  }
}

static void on_train_values(void *user) {
  executor_deliver_parts(user);
}

static bool on_train_receive(void *user, enum backend_part part, const void **pieces) {
  const struct executor *executor = user;
  bool is_up = part == BACKEND_FORWARD;
  outbox_look(is_up ? &executor[-1].up : &executor[1].down, executor->turn.slot, pieces);
  return true;
}

static void on_train_send(void *user, enum backend_part part, const void *const *pieces) {
  struct executor *executor = user;
  outbox_put(part == BACKEND_FORWARD ? &executor->up : &executor->down, executor->turn.slot, pieces);
}

/* The executor's part of an execution of the train program. */
static int train_execute(struct executor *executor, const struct backend_run *of, struct err *err) {
  bool is_backward = executor->turn.part == PIPELINE_BACKWARD;
  struct backend_run execution = *of;
  execution.part = is_backward ? BACKEND_BACKWARD : BACKEND_FORWARD;
  if (executor_is_last(executor))
    execution.part = BACKEND_WHOLE;
  execution.in = executor->turn.context;
  execution.inputs = (const void *const *)executor->task->batch->inputs;
  execution.on_value = on_train_value;
  execution.receive = on_train_receive;
  execution.send = on_train_send;
  execution.is_cancelled = executor_is_cancelled;
  execution.user = executor;
  return executor->run->options.backend->run(executor->train, &execution, err);
}

/* The stages of the executor's team one after another, on this thread. */
static int probe_execute(struct executor *executor, const struct backend_run *of, struct err *err) {
  int n = executor->team->n_stages, code = ERR_OK;
  for (int visit = 0; visit < 2 * n - 1 && !code; visit++) {
    struct executor *at = executor + (visit < n ? visit : 2 * (n - 1) - visit);
    at->turn = (struct turn){.part = visit < n ? PIPELINE_FORWARD : PIPELINE_BACKWARD};
    code = train_execute(at, of, err);
  }
  return code;
}

int executor_probe(struct executor *executor, struct err *err) {
  struct run *run = executor->run;
  struct task *task = executor->task;
  const struct model *model = run->loaded.model;
  const struct weights_set *set = weights_lend(run->weights);
  struct probe probe = {.gradients = mem_new((size_t)model->n_params * sizeof *probe.gradients)};
  const struct backend_run execution = {.weights = set->train_values,
                                        .context = {.seed = run->loaded.plan.seed}};
  task->batch = loader_train(run->loaded.loader, 0, 0);
  task->probe = &probe;
  probe_weights(model, set->params);
  if (!loader_check(run->loaded.loader, err))
    probe_execute(executor, &execution, err);
  sha256_hex(probe.gradients, (size_t)model->n_params * sizeof *probe.gradients, run->probe_sha256);
  task->probe = NULL;
  free(probe.gradients);
  loader_put(run->loaded.loader, task->batch);
  task->batch = NULL;
  return err->code;
}

/* Before a microbatch is computed. */
static void train_open(struct executor *executor) {
  struct run *run = executor->run;
  struct task *task = executor->task;
  const struct plan *plan = &run->loaded.plan;
  const struct label_rule *rule = &run->loaded.model->labels;
  struct err err = ERR_NONE;
  task->batch = loader_train(run->loaded.loader, task->work.version, task->work.index);
  task->n_left = executor->n_taps;
  task->row[METRIC_SAMPLES] = (float)plan->microbatch_samples;
  task->row[METRIC_DENOMINATOR] = (float)(plan->microbatch_samples * rule->sample_denominator);
  if (loader_check(run->loaded.loader, &err))
    task_fail_data(task, &err);
}

/* When it has been computed. */
static void train_close(struct executor *executor) {
  struct task *task = executor->task;
  if (task->n_left > 0)
    task_fail_err(task, &(struct err){ERR_INTERNAL, "the backend left out a gradient"});
  else
    executor_deliver_row(executor);
  if (task->is_dropped)
    return;
  loader_put(executor->run->loaded.loader, task->batch);
  task->batch = NULL;
}

void executor_train(struct executor *executor) {
  struct task *task = executor->task;
  const struct work *work = &task->work;
  bool is_backward = executor->turn.part == PIPELINE_BACKWARD;
  const struct backend_run execution = {
      .weights = work->set->train_values,
      .weights_version = executor_weights_version(executor),
      .context = {executor->run->loaded.plan.seed, work->version, work->index},
      .place = on_train_place,
      .after_values = on_train_values,
      .before_weight = executor_before_train_weight};
  struct err err = ERR_NONE;
  if (executor->stage == 0 && !is_backward)
    train_open(executor);
  if (!task->is_dropped && train_execute(executor, &execution, &err) && !task->is_dropped)
    task_fail_err(task, &err);
  if (!task->is_dropped && executor->stage == 0 && (is_backward || executor_is_last(executor)))
    train_close(executor);
}
