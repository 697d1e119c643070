/* What an executor has before its first task: its programs, and what it wants to see of them. */
#include <stdlib.h>
#include <string.h>

#include "worker/train/executor/executor.h"

static void executor_tap(struct executor *executor, int value, enum tap_kind kind, int index) {
  const struct run *run = executor->run;
  struct tap *tap = &executor->taps[executor->n_taps];
  int watch = 0, stage;
  if (value < 0)
    return;
  stage = model_cuts_stage(&run->cuts, run->loaded.model->train, value);
  executor->n_taps_here += stage >= run->part.first && stage <= run->part.last;
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

void executor_taps_free(struct executor *executor) {
  free(executor->watched);
  free(executor->taps_of);
  free(executor->taps);
}

static void eval_watch(struct executor *executor, int value, int metric, int *watched, int *n_watched) {
  if (value < 0)
    return;
  executor->eval_watches[*n_watched] = metric;
  watched[(*n_watched)++] = value;
}

/* What else a run takes of an executor's device: sums of gradients, and a group's versions of the weights. */
static size_t executor_spare_bytes(const struct executor *executor) {
  const struct run *run = executor->run;
  const struct model *model = run->loaded.model;
  bool has_versions = executor->index == 0 && strcmp(run->loaded.spec->train->collective, "nccl") == 0;
  uint64_t elems = has_versions ? model->param_elems * run->bounds.sets : 0;
  for (int p = 0; p < model->n_params; p++)
    if (executor->team->n_stages == 1 ||
        model_cuts_stage(&run->cuts, model->train, model->params[p].grad) == executor->stage)
      elems += model->params[p].elems;
  return (size_t)elems * sizeof(float);
}

int executor_device(const struct run *run, int index) {
  return run->options.n_devices > 0 ? run->options.devices[index % run->options.n_devices] : 0;
}

/* How the spec and the worker want programs. */
static int options_read(const struct executor *executor, struct backend_options *options, struct err *err) {
  const Weir__RunSpec *spec = executor->run->loaded.spec;
  *options = (struct backend_options){.is_fast = !spec->train->deterministic,
                                      .most_bytes = executor->run->program_bytes,
                                      .spare_bytes = executor_spare_bytes(executor)};
  if (!precision_find(spec->train->precision, &options->precision))
    return err_set(err, ERR_INVALID, "train.precision is fp32, fp32-fast, tf32 or bf16, not '%s'",
                   spec->train->precision);
  if (!replay_mode_find(spec->workers->recompute, &options->replay))
    return err_set(err, ERR_INVALID, "workers.recompute is none, auto or full, not '%s'",
                   spec->workers->recompute);
  options->device = executor_device(executor->run, executor->index);
  options->stage = executor->stage;
  options->n_cuts = executor->team->n_stages - 1;
  return ERR_OK;
}

/* The program for evaluations, which watches values in `watched`. */
static struct backend_request eval_request(struct executor *executor, const struct backend_options *options,
                                           int watched[EVAL_WATCHED_MAX]) {
  const struct model *model = executor->run->loaded.model;
  int n_watched = 0;
  eval_watch(executor, model->eval_loss.loss_sum, METRIC_LOSS_SUM, watched, &n_watched);
  eval_watch(executor, model->eval_loss.correct, METRIC_CORRECT, watched, &n_watched);
  eval_watch(executor, model->eval_loss.scored, METRIC_SCORED, watched, &n_watched);
  eval_watch(executor, model->eval_loss.denominator, METRIC_DENOMINATOR, watched, &n_watched);
  eval_watch(executor, model->eval_output, EVAL_WATCH_OUTPUT, watched, &n_watched);
  struct backend_request request = {
      .graph = model->eval, .watched = watched, .n_watched = n_watched, .options = *options};
  request.options.replay = REPLAY_NONE;
  request.options.cuts = executor->run->cuts.eval;
  return request;
}

static struct backend_request train_request(const struct executor *executor,
                                            const struct backend_options *options) {
  const struct run *run = executor->run;
  struct backend_request request = {.graph = run->loaded.model->train,
                                    .watched = executor->watched,
                                    .n_watched = executor->n_watched,
                                    .options = *options};
  request.options.cuts = run->cuts.train;
  request.options.n_contexts = pipeline_contexts(executor->team->n_stages, executor->stage);
  return request;
}

/* The executor is of the first team. */
int executor_measure(struct team *team, int stage, struct stage_bytes *out, struct err *err) {
  const struct run *run = team->run;
  struct executor executor = {.run = team->run, .index = stage, .team = team, .stage = stage};
  struct backend_options options;
  struct backend_request request;
  int watched[EVAL_WATCHED_MAX];
  size_t train_bytes = 0, eval_bytes = 0;
  executor_tap_all(&executor);
  if (!options_read(&executor, &options, err)) {
    options.replay = options.replay == REPLAY_AUTO ? REPLAY_FULL : options.replay;
    request = train_request(&executor, &options);
    run->options.backend->measure(&request, &train_bytes, err);
  }
  if (!err->code && run->loaded.eval) {
    request = eval_request(&executor, &options, watched);
    run->options.backend->measure(&request, &eval_bytes, err);
  }
  executor_taps_free(&executor);
  *out = (struct stage_bytes){(uint64_t)train_bytes + eval_bytes, options.spare_bytes};
  return err->code;
}

int executor_find_places(struct run *run, bool *train, bool *eval, struct err *err) {
  struct team team = {.run = run, .n_stages = 1};
  struct executor executor = {.run = run, .team = &team};
  struct backend_options options;
  struct backend_request request;
  int watched[EVAL_WATCHED_MAX];
  executor_tap_all(&executor);
  if (!options_read(&executor, &options, err)) {
    request = train_request(&executor, &options);
    run->options.backend->find_places(&request, train, err);
  }
  if (!err->code && eval) {
    request = eval_request(&executor, &options, watched);
    run->options.backend->find_places(&request, eval, err);
  }
  executor_taps_free(&executor);
  return err->code;
}

/* For what its programs send to its neighbours here. */
static int outboxes_open(struct executor *executor, struct err *err) {
  const struct backend_def *backend = executor->run->options.backend;
  const struct {
    struct outbox *outbox;
    const struct backend_program *program;
    enum backend_part part;
  } of[] = {{&executor->up, executor->train, BACKEND_FORWARD},
            {&executor->down, executor->train, BACKEND_BACKWARD},
            {&executor->eval_up, executor->eval, BACKEND_FORWARD}};
  for (size_t i = 0; i < sizeof of / sizeof of[0] && executor->team->n_stages > 1; i++) {
    struct backend_message message;
    if (of[i].program && backend->message(of[i].program, of[i].part, true, &message) &&
        !executor_is_at_edge(executor, of[i].part, true) &&
        outbox_open(of[i].outbox, &message, executor->team->n_stages, backend, err))
      return err->code;
  }
  return ERR_OK;
}

/* What the program for evaluations takes is known before the one that may adapt. */
int executor_prepare(struct executor *executor, struct err *err) {
  const struct backend_def *backend = executor->run->options.backend;
  struct backend_options options;
  struct backend_request request;
  int watched[EVAL_WATCHED_MAX];
  if (options_read(executor, &options, err))
    return err->code;
  executor->device = options.device;
  executor->memory = backend->memory;
  executor_tap_all(executor);
  request = eval_request(executor, &options, watched);
  if (executor->run->loaded.eval && backend->prepare(&request, &executor->eval, err))
    return err->code;
  if (executor->eval && options.most_bytes > 0) {
    size_t taken = backend->memory_bytes(executor->eval);
    options.most_bytes = taken < options.most_bytes ? options.most_bytes - taken : 1;
  }
  request = train_request(executor, &options);
  if (backend->prepare(&request, &executor->train, err) ||
      (backend->memory && backend->memory->open(options.device, &executor->stream, err)))
    return err->code;
  return outboxes_open(executor, err);
}
