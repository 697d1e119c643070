/* The checks of a spec that need no file and no cluster. */
#include <math.h>
#include <string.h>

#include "common/agree/labels.h"
#include "common/agree/param_groups.h"
#include "common/agree/patterns.h"
#include "common/agree/plan.h"
#include "common/agree/spec.h"
#include "common/agree/spec_compression.h"
#include "common/agree/spec_local.h"
#include "common/agree/tree.h"
#include "common/base/memory.h"

enum {
  NAME_LENGTH_MAX = 40,
  CHECKPOINTS_KEPT_MAX = 1000,
  CHECKPOINT_EVERY_SECONDS = 60,
  PRIORITY_MAX = 1000,
  PATIENCE_MAX = 1000000
};

static int spec_bad(struct err *err, const char *key, const char *what) {
  return err_set(err, ERR_INVALID, "%s: %s", key, what);
}

static int check_name(const Weir__RunSpec *spec, struct err *err) {
  static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789-";
  if (!spec->name || !*spec->name)
    return spec_bad(err, "name", "the run has no name");
  if (strlen(spec->name) > NAME_LENGTH_MAX || strspn(spec->name, letters) != strlen(spec->name))
    return err_set(err, ERR_INVALID, "name: '%.60s' must be at most %d of a-z, 0-9 and '-'", spec->name,
                   NAME_LENGTH_MAX);
  return 0;
}

/* Kernels compute with f32. */
static bool is_amount(double value) {
  return value >= 0 && isfinite((float)value);
}

static bool are_amounts(const double *values, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (!is_amount(values[i]))
      return false;
  return true;
}

/* Which of them the loss has, model_open finds out. */
static int check_loss_options(const Weir__LossOptions *options, struct err *err) {
  if (!(options->label_smoothing >= 0 && options->label_smoothing <= 1))
    return spec_bad(err, "model.loss_options.label_smoothing", "must be from 0 to 1");
  if (!are_amounts(options->weight, options->n_weight))
    return spec_bad(err, "model.loss_options.weight", "each must be at least 0 and finite");
  if (!are_amounts(options->pos_weight, options->n_pos_weight))
    return spec_bad(err, "model.loss_options.pos_weight", "each must be at least 0 and finite");
  if (!is_amount(options->beta))
    return spec_bad(err, "model.loss_options.beta", "must be at least 0 and finite");
  if (!is_amount(options->delta) || (float)options->delta == 0)
    return spec_bad(err, "model.loss_options.delta", "must be above 0 and finite");
  if (strcmp(options->reduction, "mean") != 0 && strcmp(options->reduction, "batchmean") != 0)
    return err_set(err, ERR_INVALID,
                   "model.loss_options.reduction: '%.60s' is not known (known: mean, batchmean)",
                   options->reduction);
  return 0;
}

/* How many of a message's fields, none of them a list, are there. */
static int count_given(const ProtobufCMessage *message) {
  int n = 0;
  for (unsigned i = 0; i < message->descriptor->n_fields; i++) {
    const ProtobufCFieldDescriptor *field = &message->descriptor->fields[i];
    const char *at = (const char *)message;
    if (field->type == PROTOBUF_C_TYPE_MESSAGE || field->type == PROTOBUF_C_TYPE_STRING)
      n += *(void *const *)(at + field->offset) != NULL;
    else
      n += *(const protobuf_c_boolean *)(at + field->quantifier_offset) != 0;
  }
  return n;
}

static int check_transform(const Weir__Transform *transform, struct err *err) {
  const Weir__Normalize *normalize = transform->normalize;
  if (count_given(&transform->base) != 1)
    return spec_bad(err, "data.transforms", "each entry names exactly one transform, as {scale: 0.5}");
  if (transform->has_scale && !isfinite(transform->scale))
    return spec_bad(err, "data.transforms.scale", "must be finite");
  if (!normalize)
    return 0;
  if (normalize->n_mean == 0 || normalize->n_mean != normalize->n_std)
    return spec_bad(err, "data.transforms.normalize", "mean and std need one value per channel each");
  for (size_t i = 0; i < normalize->n_std; i++)
    if (!isfinite(normalize->mean[i]) || !isfinite(normalize->std[i]) || normalize->std[i] == 0)
      return spec_bad(err, "data.transforms.normalize", "mean must be finite, std finite and not 0");
  return 0;
}

/* What mixes a microbatch comes behind what is done to single samples. */
static int check_mixing(const Weir__DataSpec *data, struct err *err) {
  const char *mixer = NULL;
  for (size_t i = 0; i < data->n_transforms; i++) {
    const Weir__Mixing *mixing = spec_mixing(data->transforms[i], &mixer);
    if (mixer && !mixing)
      return err_set(
          err, ERR_INVALID,
          "data.transforms[%zu]: comes behind '%s', which mixes samples that are done: list it before", i,
          mixer);
    if (mixing && (!is_amount(mixing->alpha) || (float)mixing->alpha == 0))
      return err_set(err, ERR_INVALID, "data.transforms[%zu].%s.alpha: must be above 0 and finite", i, mixer);
  }
  for (size_t i = 0; i < data->n_eval_transforms; i++)
    if (spec_mixing(data->eval_transforms[i], &mixer))
      return err_set(err, ERR_INVALID, "data.eval_transforms[%zu]: '%s' is for training only", i, mixer);
  return 0;
}

static bool is_empty(const char *text) {
  return !text || !*text;
}

static int check_columns(const Weir__DataSource *source, const char *key, struct err *err) {
  for (size_t i = 0; i < source->n_columns; i++) {
    if (is_empty(source->columns[i]->key) || is_empty(source->columns[i]->value))
      return err_set(err, ERR_INVALID,
                     "%s.columns: wants names and what they hold, as in {tokens: tokens.npy}", key);
    for (size_t other = 0; other < i; other++)
      if (strcmp(source->columns[other]->key, source->columns[i]->key) == 0)
        return err_set(err, ERR_INVALID, "%s.columns: '%.100s' is there twice", key, source->columns[i]->key);
  }
  return 0;
}

static int check_model(const Weir__ModelSpec *model, struct err *err) {
  const char *rule = model && model->batch_norm ? model->batch_norm : "auto";
  if (!model || !model->onnx || !*model->onnx)
    return spec_bad(err, "model.onnx", "is missing: which model is to be trained?");
  if (strcmp(rule, "auto") != 0 && strcmp(rule, "train") != 0 && strcmp(rule, "fixed") != 0)
    return err_set(err, ERR_INVALID, "model.batch_norm: '%.60s' is not known (known: auto, train, fixed)",
                   rule);
  if (patterns_check(model->frozen, model->n_frozen, "model.frozen", err))
    return err->code;
  return model->loss_options ? check_loss_options(model->loss_options, err) : 0;
}

static int check_source(const Weir__DataSource *source, const char *key, struct err *err) {
  if (!source->format)
    return err_set(err, ERR_INVALID, "%s.format: is missing, as in {format: idx, ...}", key);
  return check_columns(source, key, err);
}

static int check_split(const Weir__DataSpec *data, struct err *err) {
  if (data->n_split && data->eval)
    return spec_bad(err, "data.split", "is given beside data.eval: either will do");
  if (data->n_split && (data->n_split != 2 || !(data->split[0] > 0) || !(data->split[1] > 0) ||
                        !(fabs(data->split[0] + data->split[1] - 1) < 1e-6)))
    return spec_bad(err, "data.split", "wants two shares above 0 that add up to 1, as [0.9, 0.1]");
  if (data->has_split_seed && !data->n_split)
    return spec_bad(err, "data.split_seed", "draws the parts of data.split, which is not given");
  if (data->sampler && data->has_shuffle)
    return spec_bad(err, "data.shuffle", "is given beside data.sampler: either will do");
  return 0;
}

static bool spec_evaluates(const Weir__RunSpec *spec) {
  return spec->data->eval || spec->data->n_split;
}

static int check_data(const Weir__DataSpec *data, struct err *err) {
  if (!data || !data->train)
    return spec_bad(err, "data.train", "is missing: where is the training data?");
  if (check_source(data->train, "data.train", err))
    return err->code;
  if (data->eval && check_source(data->eval, "data.eval", err))
    return err->code;
  for (size_t i = 0; i < data->n_transforms; i++)
    if (check_transform(data->transforms[i], err))
      return err->code;
  for (size_t i = 0; i < data->n_eval_transforms; i++)
    if (check_transform(data->eval_transforms[i], err))
      return err->code;
  if (check_split(data, err))
    return err->code;
  return check_mixing(data, err);
}

/* What all optimizers share; the rest is checked by their rows (common/settle/spec_settle.h). */
static int check_optimizer(const Weir__OptimizerSpec *optimizer, struct err *err) {
  if (!optimizer || !optimizer->has_lr)
    return spec_bad(err, "train.optimizer.lr", "is missing: the learning rate has no default");
  if (!(optimizer->lr > 0) || !isfinite((float)optimizer->lr))
    return spec_bad(err, "train.optimizer.lr", "must be above 0 and finite");
  return param_groups_check(optimizer, err);
}

static int check_clipping(const Weir__TrainSpec *train, struct err *err) {
  if (train->has_clip_norm && train->has_clip_value)
    return spec_bad(err, "train.clip_norm",
                    "there is train.clip_value, too: gradients are clipped in one way only");
  if (train->has_clip_norm && (!is_amount(train->clip_norm) || (float)train->clip_norm == 0))
    return spec_bad(err, "train.clip_norm", "must be above 0 and finite");
  if (train->has_clip_value && (!is_amount(train->clip_value) || (float)train->clip_value == 0))
    return spec_bad(err, "train.clip_value", "must be above 0 and finite");
  return 0;
}

bool spec_names_collective(const Weir__TrainSpec *train) {
  return strcmp(train->collective, "auto") != 0 && strcmp(train->collective, "none") != 0;
}

/* The backends that a collective names are the workers' (worker/collective/collective.def, weir-cuda.so). */
static int check_computation(const Weir__TrainSpec *train, struct err *err) {
  const char *precision = train->precision, *collective = train->collective;
  if (strcmp(precision, "fp32") != 0 && strcmp(precision, "fp32-fast") != 0 &&
      strcmp(precision, "tf32") != 0 && strcmp(precision, "bf16") != 0)
    return err_set(err, ERR_INVALID,
                   "train.precision: '%.60s' is not known (known: bf16, fp32, fp32-fast, tf32)", precision);
  if (strcmp(collective, "auto") != 0 && strcmp(collective, "none") != 0 && strcmp(collective, "nccl") != 0 &&
      strcmp(collective, "shm") != 0)
    return err_set(err, ERR_INVALID, "train.collective: '%.60s' is not known (known: auto, nccl, none, shm)",
                   collective);
  return 0;
}

static int check_average(const Weir__AverageSpec *average, struct err *err) {
  if (!(average->decay >= 0 && average->decay <= 1))
    return spec_bad(err, "train.average.decay", "must be from 0 to 1");
  if (average->every_steps == 0)
    return spec_bad(err, "train.average.every_steps", "must be at least 1");
  return 0;
}

static int check_train(const Weir__TrainSpec *train, bool has_eval, struct err *err) {
  if (!train)
    return spec_bad(err, "train", "is missing");
  if (train->has_epochs == train->has_steps)
    return spec_bad(err, "train", "needs either epochs or steps");
  if (train->has_epochs && !(train->epochs > 0 && train->epochs <= PLAN_EPOCHS_MAX))
    return err_set(err, ERR_INVALID, "train.epochs: must be above 0 and at most %d", PLAN_EPOCHS_MAX);
  if (train->has_steps && train->steps > 1000000000)
    return spec_bad(err, "train.steps", "must be at most 1000000000");
  if (train->has_steps && train->steps == 0 && !has_eval)
    return spec_bad(err, "train.steps",
                    "0 trains nothing and evaluates the model as it is, which needs data.eval or data.split");
  if (!train->has_batch || train->batch == 0 || train->batch > 1u << 20)
    return spec_bad(err, "train.batch", "must be given, from 1 to 1048576");
  if (train->microbatches == 0 || train->microbatches > MICROBATCHES_MAX)
    return err_set(err, ERR_INVALID, "train.microbatches: must be from 1 to %d", MICROBATCHES_MAX);
  if (train->batch % train->microbatches)
    return err_set(err, ERR_INVALID, "train.microbatches: %u does not divide train.batch %u",
                   train->microbatches, train->batch);
  if (check_computation(train, err))
    return err->code;
  if (check_clipping(train, err) || (train->average && check_average(train->average, err)))
    return err->code;
  if (train->local && spec_local_check(train, err))
    return err->code;
  return check_optimizer(train->optimizer, err);
}

static int check_stages(const Weir__WorkersSpec *workers, const Weir__TrainSpec *train, struct err *err) {
  if (workers->stages > SPEC_STAGES_MAX)
    return err_set(err, ERR_INVALID, "workers.stages: must be from 1 to %d, or auto", SPEC_STAGES_MAX);
  if (workers->n_cuts && workers->stages == SPEC_STAGES_AUTO)
    return err_set(err, ERR_INVALID,
                   "workers.cuts: %zu of them make %zu stages, and workers.stages says auto", workers->n_cuts,
                   workers->n_cuts + 1);
  if (workers->n_cuts && workers->n_cuts + 1 != workers->stages)
    return err_set(err, ERR_INVALID, "workers.cuts: %zu of them make %zu stages, and workers.stages says %u",
                   workers->n_cuts, workers->n_cuts + 1, workers->stages);
  if (workers->stages != 1 && spec_names_collective(train))
    return err_set(err, ERR_INVALID,
                   "workers.stages: a model in stages is trained without train.collective, which says %s",
                   train->collective);
  return 0;
}

static int check_workers(const Weir__WorkersSpec *workers, struct err *err) {
  if (workers->min == 0)
    return spec_bad(err, "workers.min", "must be at least 1");
  if (workers->has_max && workers->max < workers->min)
    return spec_bad(err, "workers.max", "is below workers.min");
  if (strcmp(workers->recompute, "none") != 0 && strcmp(workers->recompute, "auto") != 0 &&
      strcmp(workers->recompute, "full") != 0)
    return err_set(err, ERR_INVALID, "workers.recompute: '%.60s' is not known (known: auto, full, none)",
                   workers->recompute);
  if (!(workers->weight >= 1e-3 && workers->weight <= 1e3))
    return spec_bad(err, "workers.weight", "must be from 0.001 to 1000");
  if (labels_check((struct labels){workers->require, workers->n_require}, err))
    return err_prefix(err, "workers.require");
  return 0;
}

static int check_eval_at(const Weir__EvalSpec *eval, bool has_eval, struct err *err) {
  if (eval->n_at > PLAN_EVAL_AT_MAX)
    return err_set(err, ERR_INVALID, "eval.at: %zu versions, of at most %d: eval.every_steps evaluates many",
                   eval->n_at, PLAN_EVAL_AT_MAX);
  for (size_t i = 0; i < eval->n_at; i++)
    if (eval->at[i] <= (i ? eval->at[i - 1] : 0))
      return spec_bad(err, "eval.at", "wants versions above 0, from the lowest, each once, as [300, 900]");
  if (eval->n_at && !has_eval)
    return spec_bad(err, "eval.at", "needs data.eval or data.split: there is nothing to evaluate");
  return ERR_OK;
}

static int check_eval_at_epochs(const Weir__EvalSpec *eval, bool has_eval, struct err *err) {
  if (eval->n_at_epochs && eval->n_at)
    return spec_bad(err, "eval.at_epochs", "is given beside eval.at: give one of them");
  if (eval->n_at_epochs > PLAN_EVAL_AT_MAX)
    return err_set(err, ERR_INVALID, "eval.at_epochs: %zu of them; at most %d", eval->n_at_epochs,
                   PLAN_EVAL_AT_MAX);
  for (size_t i = 0; i < eval->n_at_epochs; i++)
    if (!(eval->at_epochs[i] > (i ? eval->at_epochs[i - 1] : 0) && eval->at_epochs[i] <= PLAN_EPOCHS_MAX))
      return err_set(
          err, ERR_INVALID,
          "eval.at_epochs: wants epochs above 0 and up to %d, from the least, each once, as [1, 3]",
          PLAN_EPOCHS_MAX);
  if (eval->n_at_epochs && !has_eval)
    return spec_bad(err, "eval.at_epochs", "needs data.eval or data.split: there is nothing to evaluate");
  return ERR_OK;
}

static int check_eval(const Weir__EvalSpec *eval, bool has_eval, struct err *err) {
  if (eval->has_every_steps && eval->every_steps == 0)
    return spec_bad(err, "eval.every_steps", "must be at least 1");
  if (check_eval_at(eval, has_eval, err) || check_eval_at_epochs(eval, has_eval, err))
    return err->code;
  if (eval->n_metrics && !has_eval)
    return spec_bad(err, "eval.metrics", "needs data.eval or data.split: there is nothing to evaluate");
  return ERR_OK;
}

/* What is told by epochs lies within those of the run. */
static int check_epochs(const Weir__RunSpec *spec, struct err *err) {
  const Weir__TrainSpec *train = spec->train;
  size_t n = spec->eval ? spec->eval->n_at_epochs : 0;
  double last = n ? spec->eval->at_epochs[n - 1] : 0;
  if (train->has_hold_epochs && train->has_hold)
    return spec_bad(err, "train.hold_epochs", "is given beside train.hold: give one of them");
  if (train->has_hold_epochs && !(train->hold_epochs > 0 && train->hold_epochs <= PLAN_EPOCHS_MAX))
    return err_set(err, ERR_INVALID, "train.hold_epochs: must be above 0 and at most %d", PLAN_EPOCHS_MAX);
  if (train->has_epochs && train->has_hold_epochs && train->hold_epochs > train->epochs)
    return err_set(err, ERR_INVALID, "train.hold_epochs: %g is above train.epochs, %g", train->hold_epochs,
                   train->epochs);
  if (train->has_epochs && last > train->epochs)
    return err_set(err, ERR_INVALID, "eval.at_epochs: %g is above train.epochs, %g", last, train->epochs);
  return ERR_OK;
}

/* As far as that is known without the data: how many steps there are by epochs, and which versions are
   evaluated after each, the plan says. */
static int check_versions(const Weir__RunSpec *spec, struct err *err) {
  const Weir__TrainSpec *train = spec->train;
  size_t n_at = spec->eval ? spec->eval->n_at : 0;
  struct plan plan = {.train_samples = 1,
                      .batch = train->batch,
                      .steps = UINT64_MAX,
                      .inner_steps = train->local ? train->local->inner_steps : 0};
  if (n_at && train->has_steps && spec->eval->at[n_at - 1] > train->steps)
    return err_set(err, ERR_INVALID, "eval.at: there will be no version %llu, the run's last is %llu",
                   (unsigned long long)spec->eval->at[n_at - 1], (unsigned long long)train->steps);
  if (train->has_steps)
    plan.steps = train->steps;
  for (size_t i = 0; i < n_at && train->has_steps; i++)
    if (plan_check_version(&plan, "eval.at", spec->eval->at[i], err))
      return err->code;
  if (!train->has_hold)
    return ERR_OK;
  if (train->hold == 0)
    return spec_bad(err, "train.hold", "must be at least 1: version 0 is the model as it is");
  if (spec_evaluates(spec) && spec->eval && spec->eval->has_every_steps && !spec->eval->n_at_epochs) {
    plan.eval_samples = 1;
    plan.eval_every_steps = spec->eval->every_steps;
    for (size_t i = 0; i < n_at; i++)
      plan.eval_at[plan.n_eval_at++] = spec->eval->at[i];
  }
  return plan_check_hold(&plan, train->hold, err);
}

/* By the loss, or by what the evaluations say besides. */
static bool is_evaluated(const char *name, const Weir__EvalSpec *eval) {
  if (strcmp(name, "loss") == 0 || strcmp(name, "accuracy") == 0)
    return true;
  for (size_t i = 0; eval && i < eval->n_metrics; i++)
    if (strcmp(eval->metrics[i], name) == 0)
      return true;
  return false;
}

static int check_metric(const char *key, const char *name, const Weir__EvalSpec *eval, struct err *err) {
  if (is_evaluated(name, eval))
    return 0;
  return err_set(err, ERR_INVALID,
                 "%s: '%.60s' is not known (known: accuracy, loss and what eval.metrics names)", key, name);
}

static int check_early_stopping(const Weir__EarlyStoppingSpec *stopping, const Weir__EvalSpec *eval,
                                bool has_eval, struct err *err) {
  const char *goal = stopping->goal;
  if (!has_eval)
    return spec_bad(err, "train.early_stopping",
                    "needs data.eval or data.split: nothing says that the run gets no better");
  if (check_metric("train.early_stopping.metric", stopping->metric, eval, err))
    return err->code;
  if (goal && strcmp(goal, "min") != 0 && strcmp(goal, "max") != 0)
    return err_set(err, ERR_INVALID, "train.early_stopping.goal: '%.60s' is neither min nor max", goal);
  if (stopping->patience == 0 || stopping->patience > PATIENCE_MAX)
    return err_set(err, ERR_INVALID, "train.early_stopping.patience: must be from 1 to %d evaluations",
                   PATIENCE_MAX);
  if (!(stopping->min_delta >= 0 && stopping->min_delta <= 1e9))
    return spec_bad(err, "train.early_stopping.min_delta", "must be from 0 to 1000000000");
  return 0;
}

static int check_checkpoint(const Weir__CheckpointSpec *checkpoint, const Weir__EvalSpec *eval, bool has_eval,
                            struct err *err) {
  if (checkpoint->has_every_steps && checkpoint->every_steps == 0)
    return spec_bad(err, "checkpoint.every_steps", "must be at least 1");
  if (checkpoint->has_every_seconds && !(checkpoint->every_seconds > 0 && checkpoint->every_seconds <= 1e9))
    return spec_bad(err, "checkpoint.every_seconds", "must be above 0 and at most 1000000000");
  if (checkpoint->keep == 0 || checkpoint->keep > CHECKPOINTS_KEPT_MAX)
    return err_set(err, ERR_INVALID, "checkpoint.keep: must be from 1 to %d", CHECKPOINTS_KEPT_MAX);
  if (checkpoint->keep_best && check_metric("checkpoint.keep_best", checkpoint->keep_best, eval, err))
    return err->code;
  if (checkpoint->keep_best && !has_eval)
    return spec_bad(err, "checkpoint.keep_best",
                    "needs data.eval or data.split: nothing says which version is the best");
  return 0;
}

/* Readers need no NULL checks: every message that has defaults is there. */
static void add_defaults(Weir__RunSpec *spec) {
  if (!spec->workers) {
    spec->workers = mem_new(sizeof *spec->workers);
    weir__workers_spec__init(spec->workers);
  }
  if (!spec->checkpoint) {
    spec->checkpoint = mem_new(sizeof *spec->checkpoint);
    weir__checkpoint_spec__init(spec->checkpoint);
  }
  if (!spec->checkpoint->has_every_steps && !spec->checkpoint->has_every_seconds) {
    spec->checkpoint->has_every_seconds = true;
    spec->checkpoint->every_seconds = CHECKPOINT_EVERY_SECONDS;
  }
  if (spec->train->local)
    spec_local_add_outer(spec->train->local);
  if (!spec->train->schedule) {
    spec->train->schedule = mem_new(sizeof *spec->train->schedule);
    weir__schedule_spec__init(spec->train->schedule);
  }
}

int spec_check(Weir__RunSpec *spec, struct err *err) {
  if (check_name(spec, err))
    return err->code;
  if (check_model(spec->model, err) || check_data(spec->data, err) ||
      check_train(spec->train, spec_evaluates(spec), err))
    return err->code;
  if ((spec->eval && check_eval(spec->eval, spec_evaluates(spec), err)) || check_epochs(spec, err) ||
      check_versions(spec, err))
    return err->code;
  if (spec->train->early_stopping &&
      check_early_stopping(spec->train->early_stopping, spec->eval, spec_evaluates(spec), err))
    return err->code;
  if (spec->priority < -PRIORITY_MAX || spec->priority > PRIORITY_MAX)
    return spec_bad(err, "priority", "must be from -1000 to 1000");
  add_defaults(spec);
  if (check_checkpoint(spec->checkpoint, spec->eval, spec_evaluates(spec), err))
    return err->code;
  if (check_workers(spec->workers, err) || check_stages(spec->workers, spec->train, err))
    return err->code;
  return spec->train->compression ? spec_compression_check(spec, err) : 0;
}
