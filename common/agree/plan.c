/* The plan of a run. */
#include "common/agree/plan.h"

#include <inttypes.h>
#include <math.h>

#include "common/agree/random.h"

enum { EVAL_CHUNK_SAMPLES_LEAST = 128, STREAM_SHUFFLE = 1 };

/* The fourth counter of the split's key: no node of a model, whose draws have keys of the same seed, too. */
static const uint64_t STREAM_SPLIT = UINT64_MAX - 2;

/* 0.29 * 100 is 28.999... as f64, and means 29. */
static const double ROUNDING = 1e-6;

static uint64_t least(uint64_t a, uint64_t b) {
  return a < b ? a : b;
}

void plan_split(const Weir__DataSpec *data, uint64_t samples, uint64_t *train, uint64_t *eval) {
  double first = floor(data->split[0] * (double)samples + ROUNDING);
  *train = first < (double)samples ? (uint64_t)first : samples;
  *eval = samples - *train;
}

uint64_t plan_epochs_end(double epochs, uint64_t train_samples, uint32_t batch) {
  return (uint64_t)floor(epochs * (double)train_samples / batch);
}

uint32_t plan_units(const struct plan *plan) {
  return plan->replicas ? plan->replicas : plan->microbatches;
}

uint32_t plan_unit_microbatches(const struct plan *plan) {
  return plan->microbatches / plan_units(plan);
}

uint64_t plan_boundary(const struct plan *plan, uint64_t version) {
  uint64_t rest = plan->inner_steps ? version % plan->inner_steps : 0;
  return rest && version < plan->steps ? least(version + plan->inner_steps - rest, plan->steps) : version;
}

int plan_check_version(const struct plan *plan, const char *key, uint64_t version, struct err *err) {
  uint64_t next = plan_boundary(plan, version);
  if (next == version)
    return 0;
  return err_set(err, ERR_INVALID,
                 "%s: there will be no version %" PRIu64 ", train.local.inner_steps is %u: name %" PRIu64
                 " or %" PRIu64,
                 key, version, plan->inner_steps, version / plan->inner_steps * plan->inner_steps, next);
}

/* A key's epochs. */
static int find_end(const struct plan *plan, const char *key, double epochs, uint64_t *version,
                    struct err *err) {
  *version = plan_boundary(plan, plan_epochs_end(epochs, plan->train_samples, plan->batch));
  return *version > 0 ? 0
                      : err_set(err, ERR_INVALID, "%s: %g epochs of %" PRIu64 " samples make no batch of %u",
                                key, epochs, plan->train_samples, plan->batch);
}

static int read_eval_at(struct plan *plan, const Weir__EvalSpec *eval, struct err *err) {
  for (size_t i = 0; eval && i < eval->n_at; i++) {
    plan->eval_at[plan->n_eval_at++] = eval->at[i];
    if (plan_check_version(plan, "eval.at", eval->at[i], err))
      return err->code;
  }
  for (size_t i = 0; eval && i < eval->n_at_epochs; i++)
    if (find_end(plan, "eval.at_epochs", eval->at_epochs[i], &plan->eval_at[plan->n_eval_at++], err))
      return err->code;
  return 0;
}

/* What the spec says of versions, now that it is known how many there are. */
static int check_versions(struct plan *plan, const Weir__RunSpec *spec, struct err *err) {
  const Weir__TrainSpec *train = spec->train;
  uint64_t last_at, hold;
  if (read_eval_at(plan, spec->eval, err))
    return err->code;
  last_at = plan->n_eval_at ? plan->eval_at[plan->n_eval_at - 1] : 0;
  if (last_at > plan->steps)
    return err_set(err, ERR_INVALID, "%s: there will be no version %" PRIu64 ", the run's last is %" PRIu64,
                   spec->eval->n_at ? "eval.at" : "eval.at_epochs", last_at, plan->steps);
  if (train->has_hold)
    return plan_check_hold(plan, train->hold, err);
  if (!train->has_hold_epochs)
    return 0;
  if (find_end(plan, "train.hold_epochs", train->hold_epochs, &hold, err))
    return err->code;
  return plan_check_hold(plan, hold, err) ? err_prefix(err, "train.hold_epochs") : 0;
}

void plan_fix_hold(const struct plan *plan, Weir__TrainSpec *train) {
  if (!train->has_hold_epochs)
    return;
  train->has_hold = true;
  train->hold = plan_boundary(plan, plan_epochs_end(train->hold_epochs, plan->train_samples, plan->batch));
  train->has_hold_epochs = false;
}

int plan_init(struct plan *plan, const Weir__RunSpec *spec, uint64_t train_samples, uint64_t eval_samples,
              struct err *err) {
  const Weir__TrainSpec *train = spec->train;
  *plan = (struct plan){.train_samples = train_samples,
                        .eval_samples = eval_samples,
                        .batch = train->batch,
                        .microbatches = train->microbatches,
                        .microbatch_samples = train->batch / train->microbatches,
                        .replicas = train->local ? train->local->replicas : 0,
                        .inner_steps = train->local ? train->local->inner_steps : 0,
                        .eval_every_steps =
                            spec->eval && spec->eval->has_every_steps ? spec->eval->every_steps : 0,
                        .checkpoint_every_steps = spec->checkpoint ? spec->checkpoint->every_steps : 0,
                        .checkpoints_evaluated = spec->checkpoint && spec->checkpoint->keep_best,
                        .is_split = spec->data->n_split > 0,
                        .seed = train->seed,
                        .split_seed = spec->data->has_split_seed ? spec->data->split_seed : train->seed};
  plan->eval_chunk_samples = plan_eval_chunk_samples(plan->microbatch_samples);
  plan->eval_chunks = (uint32_t)((eval_samples + plan->eval_chunk_samples - 1) / plan->eval_chunk_samples);
  plan->steps = train->has_steps ? train->steps : plan_epochs_end(train->epochs, train_samples, train->batch);
  if (plan->is_split && (train_samples == 0 || eval_samples == 0))
    return err_set(err, ERR_INVALID, "data.split: %llu and %llu samples; each part needs one at least",
                   (unsigned long long)train_samples, (unsigned long long)eval_samples);
  if (train_samples == 0)
    return err_set(err, ERR_INVALID, "data.train: the dataset is empty");
  if (train->has_steps && plan->steps == 0 && eval_samples == 0)
    return err_set(err, ERR_INVALID,
                   "data.eval: without train.steps there is nothing to do but evaluate, and "
                   "the dataset is empty");
  if (!train->has_steps && plan->steps == 0)
    return err_set(err, ERR_INVALID,
                   "train: %g epochs of %llu samples make no batch of %u: nothing would be trained",
                   train->epochs, (unsigned long long)train_samples, train->batch);
  return check_versions(plan, spec, err);
}

uint32_t plan_eval_chunk_samples(uint32_t microbatch_samples) {
  uint32_t executions = (EVAL_CHUNK_SAMPLES_LEAST + microbatch_samples - 1) / microbatch_samples;
  return executions * microbatch_samples;
}

bool plan_is_known(const struct plan *plan) {
  return plan->train_samples > 0;
}

static bool is_evaluated_besides(const struct plan *plan, uint64_t version) {
  for (uint32_t i = 0; i < plan->n_eval_at; i++)
    if (plan->eval_at[i] == version)
      return true;
  return false;
}

/* As if there was every version. */
static uint64_t next_wanted(const struct plan *plan, uint64_t from);

bool plan_evaluates(const struct plan *plan, uint64_t version) {
  uint64_t epochs;
  if (plan->eval_samples == 0 || version > plan->steps)
    return false;
  if (version == plan->steps || version == 0)
    return version == plan->steps;
  if (plan->inner_steps)
    return version % plan->inner_steps == 0 && next_wanted(plan, version + 1 - plan->inner_steps) <= version;
  if (is_evaluated_besides(plan, version))
    return true;
  if (plan->eval_every_steps)
    return version % plan->eval_every_steps == 0;
  epochs =
      ((version + 1) * plan->batch - 1) / plan->train_samples; /* whole epochs before version + 1 begins */
  return epochs > 0 && epochs * plan->train_samples / plan->batch == version;
}

/* The lowest multiple from `from` on; UINT64_MAX where that is no number. */
static uint64_t next_multiple(uint64_t of, uint64_t from) {
  uint64_t rest = from % of;
  if (rest && of - rest > UINT64_MAX - from)
    return UINT64_MAX;
  return rest ? from + (of - rest) : from;
}

/* The version after the last whole epoch that ends with it. */
static uint64_t next_epoch(const struct plan *plan, uint64_t from) {
  uint64_t epochs = (from * plan->batch + plan->train_samples - 1) / plan->train_samples;
  return epochs * plan->train_samples / plan->batch;
}

static uint64_t next_wanted(const struct plan *plan, uint64_t from) {
  uint64_t next =
      plan->eval_every_steps ? next_multiple(plan->eval_every_steps, from) : next_epoch(plan, from);
  for (uint32_t i = 0; i < plan->n_eval_at; i++)
    if (plan->eval_at[i] >= from)
      next = least(next, plan->eval_at[i]);
  return least(next, plan->steps);
}

/* What is wanted after the version before counts for the one that comes. */
uint64_t plan_next_evaluated(const struct plan *plan, uint64_t from) {
  if (plan->eval_samples == 0 || from > plan->steps)
    return UINT64_MAX;
  from = from ? from : 1;
  if (!plan->inner_steps)
    return next_wanted(plan, from);
  return plan_boundary(plan, next_wanted(plan, (from - 1) / plan->inner_steps * plan->inner_steps + 1));
}

int plan_check_hold(const struct plan *plan, uint64_t hold, struct err *err) {
  if (hold > plan->steps)
    return err_set(err, ERR_INVALID,
                   "train.hold: there will be no version %" PRIu64 ", the run's last is %" PRIu64, hold,
                   plan->steps);
  if (plan_check_version(plan, "train.hold", hold, err))
    return err->code;
  if (plan->eval_samples == 0 || plan_evaluates(plan, hold))
    return 0;
  return err_set(err, ERR_INVALID,
                 "train.hold: version %" PRIu64 " is not evaluated, the next that is evaluated is %" PRIu64
                 ": hold the run there, or name %" PRIu64 " in eval.at",
                 hold, plan_next_evaluated(plan, hold), hold);
}

uint64_t plan_epoch(const struct plan *plan, uint64_t step) {
  return step * plan->batch / plan->train_samples;
}

void plan_place(const struct plan *plan, uint64_t step, uint32_t position, uint64_t *epoch, uint64_t *index) {
  uint64_t at = step * plan->batch + position;
  *epoch = at / plan->train_samples;
  *index = at % plan->train_samples;
}

uint64_t plan_shuffled(const struct plan *plan, uint64_t epoch, uint64_t index) {
  return random_permute(random_key(plan->seed, STREAM_SHUFFLE, epoch, 0), index, plan->train_samples);
}

static uint64_t split_index(const struct plan *plan, uint64_t i) {
  return random_permute(random_key(plan->split_seed, 0, 0, STREAM_SPLIT), i,
                        plan->train_samples + plan->eval_samples);
}

uint64_t plan_train_index(const struct plan *plan, uint64_t i) {
  return plan->is_split ? split_index(plan, i) : i;
}

uint64_t plan_eval_index(const struct plan *plan, uint64_t i) {
  return plan->is_split ? split_index(plan, plan->train_samples + i) : i;
}
