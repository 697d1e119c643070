/* The plan of a run. */
#include "common/agree/plan.h"

#include <math.h>

#include "common/agree/random.h"

enum { EVAL_CHUNK_SAMPLES_LEAST = 128 };

/* The fourth counter of the split's key: no node of a model, whose draws have keys of the same seed, too. */
static const uint64_t STREAM_SPLIT = UINT64_MAX - 2;

/* 0.29 * 100 is 28.999... as f64, and means 29. */
static const double ROUNDING = 1e-6;

void plan_split(const Weir__DataSpec *data, uint64_t samples, uint64_t *train, uint64_t *eval) {
  double first = floor(data->split[0] * (double)samples + ROUNDING);
  *train = first < (double)samples ? (uint64_t)first : samples;
  *eval = samples - *train;
}

int plan_init(struct plan *plan, const Weir__RunSpec *spec, uint64_t train_samples, uint64_t eval_samples,
              struct err *err) {
  const Weir__TrainSpec *train = spec->train;
  *plan = (struct plan){.train_samples = train_samples,
                        .eval_samples = eval_samples,
                        .batch = train->batch,
                        .microbatches = train->microbatches,
                        .microbatch_samples = train->batch / train->microbatches,
                        .eval_every_steps =
                            spec->eval && spec->eval->has_every_steps ? spec->eval->every_steps : 0,
                        .checkpoint_every_steps = spec->checkpoint ? spec->checkpoint->every_steps : 0,
                        .checkpoints_evaluated = spec->checkpoint && spec->checkpoint->keep_best,
                        .is_split = spec->data->n_split > 0,
                        .seed = train->seed};
  plan->eval_chunk_samples = plan_eval_chunk_samples(plan->microbatch_samples);
  plan->eval_chunks = (uint32_t)((eval_samples + plan->eval_chunk_samples - 1) / plan->eval_chunk_samples);
  plan->steps =
      train->has_steps ? train->steps : (uint64_t)floor(train->epochs * (double)train_samples / train->batch);
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
  return 0;
}

uint32_t plan_eval_chunk_samples(uint32_t microbatch_samples) {
  uint32_t executions = (EVAL_CHUNK_SAMPLES_LEAST + microbatch_samples - 1) / microbatch_samples;
  return executions * microbatch_samples;
}

bool plan_is_known(const struct plan *plan) {
  return plan->train_samples > 0;
}

bool plan_evaluates(const struct plan *plan, uint64_t version) {
  uint64_t epochs;
  if (plan->eval_samples == 0 || version > plan->steps)
    return false;
  if (version == plan->steps || version == 0)
    return version == plan->steps;
  if (plan->eval_every_steps)
    return version % plan->eval_every_steps == 0;
  epochs =
      ((version + 1) * plan->batch - 1) / plan->train_samples; /* whole epochs before version + 1 begins */
  return epochs > 0 && epochs * plan->train_samples / plan->batch == version;
}

uint64_t plan_epoch(const struct plan *plan, uint64_t step) {
  return step * plan->batch / plan->train_samples;
}

void plan_place(const struct plan *plan, uint64_t step, uint32_t position, uint64_t *epoch, uint64_t *index) {
  uint64_t at = step * plan->batch + position;
  *epoch = at / plan->train_samples;
  *index = at % plan->train_samples;
}

static uint64_t split_index(const struct plan *plan, uint64_t i) {
  return random_permute(random_key(plan->seed, 0, 0, STREAM_SPLIT), i,
                        plan->train_samples + plan->eval_samples);
}

uint64_t plan_train_index(const struct plan *plan, uint64_t i) {
  return plan->is_split ? split_index(plan, i) : i;
}

uint64_t plan_eval_index(const struct plan *plan, uint64_t i) {
  return plan->is_split ? split_index(plan, plan->train_samples + i) : i;
}
