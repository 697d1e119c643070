/* An executor. */
#include "worker/train/executor/executor.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/agree/sum.h"
#include "common/base/clock.h"
#include "worker/trace/trace.h"
#include "worker/train/block/probe_weights.h"
#include "worker/train/run/load_memory.h"

static void *executor_main(void *argument);
static int executor_prepare(struct executor *executor, struct err *err);
static int executor_probe(struct executor *executor, struct err *err);
static bool executor_train(struct executor *executor);

/* On GPUs each executor has one for itself, on a CPU all share the machine's memory. */
static size_t executor_program_bytes(const struct run *run) {
  uint64_t bytes = run->options.memory_bytes;
  if (run->options.n_devices > 0)
    return (size_t)bytes;
  if (bytes == 0)
    bytes = load_memory_free(run->loaded.model);
  bytes /= (uint64_t)run->n_executors;
  return bytes > 0 ? (size_t)bytes : 1;
}

void executors_start(struct run *run) {
  uint32_t microbatches = run->loaded.plan.microbatches;
  int threads = run->options.threads;
  run->n_executors = (uint32_t)threads < microbatches ? threads : (int)microbatches;
  run->program_bytes = executor_program_bytes(run);
  run->executors = mem_new((size_t)run->n_executors * sizeof *run->executors);
  for (int i = 0; i < run->n_executors; i++) {
    struct executor *executor = &run->executors[i];
    executor->run = run;
    executor->index = i;
    executor->task = task_new(run);
    CHECK(pthread_create(&executor->thread, NULL, executor_main, executor) == 0);
  }
}

void executors_join(struct run *run) {
  for (int i = 0; i < run->n_executors; i++) {
    struct executor *executor = &run->executors[i];
    pthread_join(executor->thread, NULL);
    free(executor->watched);
    free(executor->taps_of);
    free(executor->taps);
    task_free(executor->task);
    free(executor->parts.list);
    free(executor->parts.sums);
    free(executor->parts.params);
  }
  free(run->executors);
  run->executors = NULL;
  run->n_executors = 0;
}

/* The task is computed from here on, or again after a wait. */
static void executor_go_locked(struct executor *executor) {
  executor->is_executing = true;
  if (executor->task->work.kind == WORK_MICROBATCH)
    executor->busy_since_ns = clock_now_ns();
}

static void executor_halt_locked(struct executor *executor) {
  if (executor->busy_since_ns)
    executor->run->totals.busy_ns += clock_now_ns() - executor->busy_since_ns;
  executor->busy_since_ns = 0;
  executor->is_executing = false;
}

uint64_t executors_busy_ns_locked(struct run *run) {
  uint64_t now_ns = clock_now_ns(), busy_ns = run->totals.busy_ns;
  for (int i = 0; i < run->n_executors; i++) {
    struct executor *executor = &run->executors[i];
    if (executor->is_executing && !executor->void_since_ns && !steps_is_wanted(run, &executor->task->work)) {
      executor->void_since_ns = now_ns;
      if (!executor->busy_since_ns) /* with a chunk, then, which it may hang at */
        executor->busy_since_ns = now_ns;
    }
    if (executor->busy_since_ns)
      busy_ns += now_ns - executor->busy_since_ns;
  }
  return busy_ns;
}

/* The task that was begun. True if its results were handed over. */
static bool executor_work(struct executor *executor) {
  struct task *task = executor->task;
  const struct work *work = &task->work;
  bool is_chunk = work->kind == WORK_CHUNK, is_done;
  uint64_t begin_ns = trace_now_ns();
  const char *category = is_chunk ? "evaluation" : "train";
  task->is_dropped = task->is_current = false;
  is_done = is_chunk ? executor_evaluate(executor) : executor_train(executor);
  trace_span(&(struct trace_span){.category = work->is_extra ? "extra" : category,
                                  .name = is_chunk ? "chunk" : "microbatch",
                                  .begin_ns = begin_ns,
                                  .end_ns = trace_now_ns(),
                                  .step = work->version,
                                  .index = work->index});
  executor->n_dropped += task->is_dropped;
  return is_done;
}

static void *executor_main(void *argument) {
  struct executor *executor = argument;
  struct run *run = executor->run;
  struct err err = ERR_NONE;
  uint64_t begin_ns = trace_now_ns();
  bool is_done;
  char name[32];
  snprintf(name, sizeof name, "executor %d", executor->index);
  trace_thread(name);
  if (!backend_thread_init(&err) && !executor_prepare(executor, &err) && executor->index == 0)
    executor_probe(executor, &err);
  trace_span(&(struct trace_span){
      .category = "load", .name = "programs", .begin_ns = begin_ns, .end_ns = trace_now_ns(), .index = -1});
  pthread_mutex_lock(&run->lock);
  run->n_prepared++;
  if (err.code && !run->prepare_err.code)
    run->prepare_err = err;
  pthread_cond_broadcast(&run->changed);
  while (!run->is_stopping) {
    if (executor_land_locked(executor))
      continue;
    if (!steps_begin(run, &executor->task->work)) {
      pthread_cond_wait(&run->changed, &run->lock);
      continue;
    }
    executor->is_told_to_hang = false;
    executor->void_since_ns = 0;
    executor_go_locked(executor);
    run->n_executing++;
    pthread_mutex_unlock(&run->lock);
    is_done = executor_work(executor);
    pthread_mutex_lock(&run->lock);
    executor_halt_locked(executor);
    run->n_executing--;
    run->totals.computed += is_done && executor->task->work.kind == WORK_MICROBATCH;
    steps_end(run, &executor->task->work, is_done);
  }
  pthread_mutex_unlock(&run->lock);
  run->options.backend->release(executor->train);
  run->options.backend->release(executor->eval);
  if (executor->memory)
    executor->memory->close(executor->stream);
  return NULL;
}

static void executor_tap(struct executor *executor, int value, enum tap_kind kind, int index) {
  struct tap *tap = &executor->taps[executor->n_taps];
  int watch = 0;
  if (value < 0)
    return;
  while (watch < executor->n_watched && executor->watched[watch] != value)
    watch++;
  if (watch == executor->n_watched) {
    executor->watched[executor->n_watched++] = value;
    executor->taps_of[watch] = -1;
  }
  *tap = (struct tap){kind, index, executor->taps_of[watch]};
  executor->taps_of[watch] = executor->n_taps++;
}

static void executor_tap_all(struct executor *executor) {
  const struct model *model = executor->run->loaded.model;
  size_t most = (size_t)model->n_params + (size_t)model->n_statistics + METRICS;
  executor->watched = mem_new(most * sizeof *executor->watched);
  executor->taps_of = mem_new(most * sizeof *executor->taps_of);
  executor->taps = mem_new(most * sizeof *executor->taps);
  executor_tap(executor, model->train_loss.loss_sum, TAP_METRIC, METRIC_LOSS_SUM);
  executor_tap(executor, model->train_loss.correct, TAP_METRIC, METRIC_CORRECT);
  executor_tap(executor, model->train_loss.scored, TAP_METRIC, METRIC_SCORED);
  executor_tap(executor, model->train_loss.denominator, TAP_METRIC, METRIC_DENOMINATOR);
  for (int s = 0; s < model->n_statistics; s++)
    executor_tap(executor, model->statistics[s].batch_value, TAP_STATISTIC, s);
  for (int p = 0; p < model->n_params; p++)
    executor_tap(executor, model->params[p].grad, TAP_GRADIENT, p);
}

static void eval_watch(struct executor *executor, int value, int metric, int *watched, int *n_watched) {
  if (value < 0)
    return;
  executor->eval_watches[*n_watched] = metric;
  watched[(*n_watched)++] = value;
}

/* What else a run takes of an executor's device: sums of gradients, and a group's versions of the weights. */
static size_t executor_spare_bytes(const struct executor *executor) {
  const struct loaded *loaded = &executor->run->loaded;
  bool has_versions = executor->index == 0 && strcmp(loaded->spec->train->collective, "nccl") == 0;
  return (size_t)loaded->model->param_elems * sizeof(float) * (has_versions ? 1 + WEIGHTS_VERSIONS : 1);
}

/* How the spec and the worker want programs. */
static int options_read(const struct executor *executor, struct backend_options *options, struct err *err) {
  const struct run_options *run_options = &executor->run->options;
  const Weir__RunSpec *spec = executor->run->loaded.spec;
  *options = (struct backend_options){.is_fast = !spec->train->deterministic,
                                      .most_bytes = executor->run->program_bytes,
                                      .spare_bytes = executor_spare_bytes(executor)};
  if (!precision_find(spec->train->precision, &options->precision))
    return err_set(err, ERR_INVALID, "train.precision is fp32, tf32 or bf16, not '%s'",
                   spec->train->precision);
  if (!replay_mode_find(spec->workers->recompute, &options->replay))
    return err_set(err, ERR_INVALID, "workers.recompute is none, auto or full, not '%s'",
                   spec->workers->recompute);
  if (run_options->n_devices > 0)
    options->device = run_options->devices[executor->index % run_options->n_devices];
  return ERR_OK;
}

static int eval_prepare(struct executor *executor, const struct backend_options *options, struct err *err) {
  const struct backend_def *backend = executor->run->options.backend;
  const struct model *model = executor->run->loaded.model;
  int watched[EVAL_WATCHED_MAX], n_watched = 0;
  eval_watch(executor, model->eval_loss.loss_sum, METRIC_LOSS_SUM, watched, &n_watched);
  eval_watch(executor, model->eval_loss.correct, METRIC_CORRECT, watched, &n_watched);
  eval_watch(executor, model->eval_loss.scored, METRIC_SCORED, watched, &n_watched);
  eval_watch(executor, model->eval_loss.denominator, METRIC_DENOMINATOR, watched, &n_watched);
  eval_watch(executor, model->eval_output, EVAL_WATCH_OUTPUT, watched, &n_watched);
  struct backend_request request = {
      .graph = model->eval, .watched = watched, .n_watched = n_watched, .options = *options};
  request.options.replay = REPLAY_NONE;
  return backend->prepare(&request, &executor->eval, err);
}

/* What the program for evaluations takes is known before the one that may adapt. */
static int executor_prepare(struct executor *executor, struct err *err) {
  const struct backend_def *backend = executor->run->options.backend;
  struct backend_options options;
  if (options_read(executor, &options, err))
    return err->code;
  executor->device = options.device;
  executor->memory = backend->memory;
  executor_tap_all(executor);
  if (executor->run->loaded.eval && eval_prepare(executor, &options, err))
    return err->code;
  if (executor->eval && options.most_bytes > 0) {
    size_t taken = backend->memory_bytes(executor->eval);
    options.most_bytes = taken < options.most_bytes ? options.most_bytes - taken : 1;
  }
  struct backend_request request = {.graph = executor->run->loaded.model->train,
                                    .watched = executor->watched,
                                    .n_watched = executor->n_watched,
                                    .options = options};
  if (backend->prepare(&request, &executor->train, err) ||
      (backend->memory && backend->memory->open(options.device, &executor->stream, err)))
    return err->code;
  return ERR_OK;
}

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
    executor->n_left--;
    if (task->probe) {
      if (tap->kind == TAP_GRADIENT)
        sha256_update(task->probe, data, model->params[tap->index].elems * sizeof(float));
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

/* The gradient of the first microbatch at the weights of the probe, hashed: machines that do not agree on it
   do not agree on anything. */
static int executor_probe(struct executor *executor, struct err *err) {
  struct run *run = executor->run;
  struct task *task = executor->task;
  struct weights_set *set = weights_lend(run->weights);
  task->batch = loader_train(run->loaded.loader, 0, 0);
  task->probe = sha256_new();
  struct backend_run execution = {.inputs = (const void *const *)task->batch->inputs,
                                  .weights = set->train_values,
                                  .context = {.seed = run->loaded.plan.seed},
                                  .on_value = on_train_value,
                                  .is_cancelled = executor_is_cancelled,
                                  .user = executor};
  probe_weights(run->loaded.model, set->params);
  if (!loader_check(run->loaded.loader, err))
    run->options.backend->run(executor->train, &execution, err);
  sha256_finish(task->probe, run->probe_sha256);
  task->probe = NULL;
  loader_put(run->loaded.loader, task->batch);
  task->batch = NULL;
  return err->code;
}

/* True if the whole microbatch was handed over. */
static bool executor_train(struct executor *executor) {
  struct run *run = executor->run;
  struct task *task = executor->task;
  const struct plan *plan = &run->loaded.plan;
  const struct work *work = &task->work;
  const struct label_rule *rule = &run->loaded.model->labels;
  task->batch = loader_train(run->loaded.loader, work->version, work->index);
  struct backend_run execution = {.inputs = (const void *const *)task->batch->inputs,
                                  .weights = work->set->train_values,
                                  .weights_version = executor_weights_version(executor),
                                  .context = {plan->seed, work->version, work->index},
                                  .on_value = on_train_value,
                                  .place = on_train_place,
                                  .after_values = on_train_values,
                                  .before_weight = executor_before_train_weight,
                                  .is_cancelled = executor_is_cancelled,
                                  .user = executor};
  struct err err = ERR_NONE;
  executor->n_left = executor->n_taps;
  task->row[METRIC_SAMPLES] = (float)plan->microbatch_samples;
  task->row[METRIC_DENOMINATOR] = (float)(plan->microbatch_samples * rule->sample_denominator);
  if (loader_check(run->loaded.loader, &err))
    task_fail_data(task, &err);
  else if (run->options.backend->run(executor->train, &execution, &err) && !task->is_dropped)
    task_fail_err(task, &err);
  if (!task->is_dropped && executor->n_left > 0)
    task_fail_err(task, &(struct err){ERR_INTERNAL, "the backend left out a gradient"});
  if (!task->is_dropped)
    executor_deliver_row(executor);
  if (task->is_dropped)
    executor_drop_gathers(executor);
  loader_put(run->loaded.loader, task->batch);
  task->batch = NULL;
  return !task->is_dropped;
}

/* A dropped execution may have read weights too early: what the program keeps of them has a number of its
 * own. */
uint64_t executor_weights_version(const struct executor *executor) {
  return (executor->task->work.set->opening << 20) + (executor->n_dropped & 0xfffff);
}

/* Waits for a condition of the run's, or drops the task. what: it waits for, on the timeline. */
static void executor_wait(struct executor *executor, bool (*is_met)(const struct task *, const void *),
                          const void *argument, const char *what) {
  struct run *run = executor->run;
  struct task *task = executor->task;
  uint64_t begin_ns = 0;
  bool has_waited = false;
  pthread_mutex_lock(&run->lock);
  for (;;) {
    if (!steps_is_wanted(run, &task->work) || run->is_stopping)
      task->is_dropped = true;
    if (task->is_dropped || is_met(task, argument))
      break;
    if (executor_land_locked(executor))
      continue;
    if (!has_waited) {
      has_waited = true;
      begin_ns = trace_now_ns();
      executor_halt_locked(executor);
    }
    if (steps_should_yield(run, &task->work))
      task->is_dropped = true;
    else
      pthread_cond_wait(&run->changed, &run->lock);
  }
  if (has_waited)
    executor_go_locked(executor);
  pthread_mutex_unlock(&run->lock);
  trace_span(&(struct trace_span){.category = "wait",
                                  .name = what,
                                  .begin_ns = begin_ns,
                                  .end_ns = trace_now_ns(),
                                  .step = task->work.version,
                                  .index = task->work.index});
}

static bool is_current(const struct task *task, const void *argument) {
  (void)argument;
  return steps_is_current(task->run, &task->work);
}

bool executor_wait_current(struct executor *executor) {
  struct task *task = executor->task;
  if (!task->is_current && !task->is_dropped)
    executor_wait(executor, is_current, NULL, "step before");
  task->is_current = true;
  return !task->is_dropped;
}

static bool is_ready(const struct task *task, const void *range) {
  return weights_is_ready(task->work.set, *(const struct block_range *)range);
}

void executor_before_train_weight(void *user, int value) {
  struct executor *executor = user;
  if (!executor->task->is_dropped)
    executor_wait(executor, is_ready, &executor->run->map.train_values[value],
                  executor->run->loaded.model->train->values[value].name);
}

void executor_before_eval_weight(void *user, int value) {
  struct executor *executor = user;
  if (!executor->task->is_dropped)
    executor_wait(executor, is_ready, &executor->run->map.eval_values[value],
                  executor->run->loaded.model->eval->values[value].name);
}

bool executor_is_cancelled(void *user) {
  struct executor *executor = user;
  return task_is_cancelled(executor->task);
}
