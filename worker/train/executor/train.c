/* Microbatches: an executor's part of one, what comes of it, and the probe. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/agree/sum.h"
#include "common/base/clock.h"
#include "worker/train/block/probe_weights.h"
#include "worker/train/executor/edges_probe.h"

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
    } else if (tap->kind == TAP_GRADIENT)
      executor_deliver_gradient(executor, tap->index, data);
    else if (tap->kind == TAP_STATISTIC)
      on_statistic(task, tap->index, data);
    else
      on_metric(task, tap->index, data);
  }
}

static void on_train_placed(void *user, int watch, bool is_finite) {
  struct executor *executor = user;
  if (executor->task->is_dropped)
    return;
  executor->task->n_left--;
  executor_deliver_placed(executor, executor->taps[executor->taps_of[watch]].index, is_finite);
}

static void on_train_values(void *user) {
  executor_deliver_parts(user);
}

static bool on_train_receive(void *user, enum backend_part part, const void **pieces) {
  struct executor *executor = user;
  const struct probe *probe = executor->task->probe;
  bool is_up = part == BACKEND_FORWARD;
  if (!executor_is_at_edge(executor, part, false))
    outbox_look(is_up ? &executor[-1].up : &executor[1].down, executor->turn.slot, pieces);
  else if (probe)
    edges_look(executor, part, probe->drawn[part], pieces);
  else
    edges_receive(executor, part, pieces);
  return true;
}

static void on_train_send(void *user, enum backend_part part, const void *const *pieces) {
  struct executor *executor = user;
  struct probe *probe = executor->task->probe;
  if (!executor_is_at_edge(executor, part, true))
    outbox_put(part == BACKEND_FORWARD ? &executor->up : &executor->down, executor->turn.slot, pieces);
  else if (probe)
    edges_hash(executor, part, pieces, probe->sent[part]);
  else
    edges_send(executor, part, pieces);
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

/* The stages that are here one after another, on this thread: up and down, the model's highest one once. */
static int probe_execute(struct executor *executor, const struct backend_run *of, struct err *err) {
  int n = executor->run->part.last - executor->run->part.first + 1, code = ERR_OK;
  int turns_at = n - executor_is_last(executor + n - 1);
  for (int visit = 0; visit < n + turns_at && !code; visit++) {
    struct executor *at = executor + (visit < n ? visit : n + turns_at - 1 - visit);
    at->turn = (struct turn){.part = visit < n ? PIPELINE_FORWARD : PIPELINE_BACKWARD};
    code = train_execute(at, of, err);
  }
  return code;
}

/* The initial weights of the stages that are here. */
static void probe_fill(const struct run *run, float *params) {
  const struct model *model = run->loaded.model;
  bool *wanted = mem_new((size_t)model->n_params);
  for (int p = 0; p < model->n_params; p++)
    for (uint32_t b = run->map.params[p].begin; b < run->map.params[p].end; b++)
      wanted[p] |= run->roles[b] != BLOCK_ABSENT;
  probe_weights(model, wanted, params);
  free(wanted);
}

/* What workers with the other stages would send. */
static int probe_draw(struct executor *executor, struct probe *probe, struct err *err) {
  int n = executor->run->part.last - executor->run->part.first + 1;
  struct executor *at[] = {[BACKEND_FORWARD] = executor, [BACKEND_BACKWARD] = executor + n - 1};
  for (int part = BACKEND_FORWARD; part <= BACKEND_BACKWARD && executor->run->edges; part++) {
    probe->drawn[part] = edges_draw(at[part], (enum backend_part)part);
    if (!probe->drawn[part])
      return err_set(err, ERR_NO_MEMORY, "no memory for the messages of the probe");
  }
  return ERR_OK;
}

/* Of the gradients, and where other workers have the other stages of what would go to them. */
static void probe_sum_up(struct run *run, const struct probe *probe) {
  struct sha256 *sha = sha256_new();
  sha256_update(sha, probe->gradients, (size_t)run->loaded.model->n_params * sizeof *probe->gradients);
  if (run->edges)
    sha256_update(sha, probe->sent, sizeof probe->sent);
  sha256_finish(sha, run->probe_sha256);
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
  probe_fill(run, set->params);
  if (!probe_draw(executor, &probe, err) && !loader_check(run->loaded.loader, err))
    probe_execute(executor, &execution, err);
  probe_sum_up(run, &probe);
  task->probe = NULL;
  free(probe.gradients);
  free(probe.drawn[BACKEND_FORWARD]);
  free(probe.drawn[BACKEND_BACKWARD]);
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
  uint64_t begin_ns = clock_now_ns();
  task->batch = loader_train(run->loaded.loader, task->work.step, task->work.index);
  executor->times.data_ns += clock_now_ns() - begin_ns;
  task->n_left = executor->n_taps_here;
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
  else if (executor->stage == 0)
    executor_deliver_row(executor);
  if (task->is_dropped)
    return;
  loader_put(executor->run->loaded.loader, task->batch);
  task->batch = NULL;
}

/* Whether its turn ends with a message to another worker's stage. */
static bool goes_below(const struct executor *executor) {
  bool is_backward = executor->turn.part == PIPELINE_BACKWARD || executor_is_last(executor);
  return is_backward && executor->stage > 0 && executor_is_at_edge(executor, BACKEND_BACKWARD, true);
}

void executor_train(struct executor *executor) {
  struct task *task = executor->task;
  const struct work *work = &task->work;
  bool is_backward = executor->turn.part == PIPELINE_BACKWARD;
  const struct backend_run execution = {.weights = work->set->train_values,
                                        .weights_version = executor_weights_version(executor),
                                        .context = {executor->run->loaded.plan.seed, work->step, work->index},
                                        .place = on_train_place,
                                        .placed = on_train_placed,
                                        .after_values = on_train_values,
                                        .before_weight = executor_before_train_weight};
  struct err err = ERR_NONE;
  if (executor->stage == executor->run->part.first && !is_backward)
    train_open(executor);
  if (is_backward && executor_is_at_edge(executor, BACKEND_BACKWARD, false))
    edges_take_riders(executor);
  if (!task->is_dropped && train_execute(executor, &execution, &err) && !task->is_dropped)
    task_fail_err(task, &err);
  if (!task->is_dropped && goes_below(executor))
    edges_send_riders(executor);
  if (!task->is_dropped && executor->stage == executor->run->part.first &&
      (is_backward || executor_is_last(executor)))
    train_close(executor);
}
