/* A run's events as TensorBoard reads them. */
#include "client/files/tensorboard.h"

#include <math.h>
#include <stdlib.h>

#include "client/files/event_file.h"
#include "client/files/hparams.h"
#include "common/base/memory.h"
#include "model/metrics/metric.h"
#include "storage/checkpoint/checkpoint_parts.h"

enum { SCALARS_MAX = 8 + METRICS_NAMED_MAX };

struct tensorboard {
  struct event_sink sink;
  struct event_filter filter; /* of what the files have */
  struct event_file train, eval, trial;
  bool has_trial;
};

/* Those of one event. */
struct scalars {
  Weir__Tensorboard__Summary summary;
  Weir__Tensorboard__Summary__Value values[SCALARS_MAX], *list[SCALARS_MAX];
};

static int open_files(const char *folder, const Weir__RunInfo *info, const Weir__SweepTrial *trial,
                      struct tensorboard **out, struct err *err);
static int take(struct event_sink *sink, const Weir__RunEvent *event, struct err *err);
static int take_step(struct tensorboard *tensorboard, const Weir__StepEvent *step, struct err *err);
static int take_eval(struct tensorboard *tensorboard, const Weir__EvalEvent *eval, struct err *err);

static int open_file(struct event_file *file, const char *folder, const char *name, double begun_seconds,
                     struct err *err) {
  char *path = mem_printf("%s/%s", folder, name);
  event_file_open(file, path, begun_seconds, err);
  free(path);
  return err->code;
}

int tensorboard_open(const char *folder, const Weir__RunInfo *info, const Weir__SweepTrial *trial,
                     struct tensorboard **out, struct err *err) {
  if (!checkpoint_is_run_id(info->run))
    return err_set(err, ERR_INVALID, "the coordinator gave a run an id that is none");
  return open_files(folder, info, trial, out, err);
}

/* By the run's id, which can be a folder's name. */
static int open_files(const char *folder, const Weir__RunInfo *info, const Weir__SweepTrial *trial,
                      struct tensorboard **out, struct err *err) {
  struct tensorboard *tensorboard = mem_new(sizeof *tensorboard);
  double begun = (double)info->submitted_unix_ms / 1000;
  char *of_run = mem_printf("%s/%s", folder, info->run);
  char *group = mem_printf("%s-%u", info->sweep, info->trial);
  tensorboard->sink.take = take;
  if (open_file(&tensorboard->train, of_run, "train", begun, err) == 0 &&
      open_file(&tensorboard->eval, of_run, "eval", begun, err) == 0 && trial &&
      event_file_open(&tensorboard->trial, of_run, begun, err) == 0 && !tensorboard->trial.is_begun)
    hparams_begin(&tensorboard->trial, trial, group, err);
  tensorboard->has_trial = trial != NULL;
  tensorboard->filter = (struct event_filter){
      .step = tensorboard->train.mark, .eval = tensorboard->eval.mark, .is_done = tensorboard->train.is_over};
  free(group);
  free(of_run);
  if (err->code)
    tensorboard_close(tensorboard);
  else
    *out = tensorboard;
  return err->code;
}

struct event_sink *tensorboard_sink(struct tensorboard *tensorboard) {
  return &tensorboard->sink;
}

static int take(struct event_sink *sink, const Weir__RunEvent *event, struct err *err) {
  struct tensorboard *tensorboard = (struct tensorboard *)sink;
  if (!event_filter_take(&tensorboard->filter, event))
    return 0;
  switch (event->event_case) {
  case WEIR__RUN_EVENT__EVENT_STEP:
    return take_step(tensorboard, event->step, err);
  case WEIR__RUN_EVENT__EVENT_EVAL:
    return take_eval(tensorboard, event->eval, err);
  case WEIR__RUN_EVENT__EVENT_DONE:
    return event_file_stop(&tensorboard->train, event->done->steps, err);
  default:
    return 0;
  }
}

static void add(struct scalars *scalars, const char *tag, double value) {
  Weir__Tensorboard__Summary__Value *scalar = &scalars->values[scalars->summary.n_value];
  CHECK(scalars->summary.n_value < SCALARS_MAX);
  weir__tensorboard__summary__value__init(scalar);
  scalar->tag = (char *)tag;
  scalar->value_case = WEIR__TENSORBOARD__SUMMARY__VALUE__VALUE_SIMPLE_VALUE;
  scalar->simple_value = (float)value;
  scalars->list[scalars->summary.n_value++] = scalar;
}

static void begin(struct scalars *scalars) {
  weir__tensorboard__summary__init(&scalars->summary);
  scalars->summary.value = scalars->list;
}

static int take_step(struct tensorboard *tensorboard, const Weir__StepEvent *step, struct err *err) {
  struct scalars scalars;
  begin(&scalars);
  add(&scalars, "loss", step->loss);
  add(&scalars, "learning_rate", step->lr);
  add(&scalars, "epoch", (double)step->epoch);
  add(&scalars, "workers", step->workers);
  if (step->seconds > 0) {
    add(&scalars, "samples_per_second", (double)step->samples / step->seconds);
    tensorboard->train.seconds += step->seconds;
  }
  return event_file_scalars(&tensorboard->train, &tensorboard->filter.step, &scalars.summary, err);
}

/* What a loss without classes or the samples do not say has no point. */
static int take_eval(struct tensorboard *tensorboard, const Weir__EvalEvent *eval, struct err *err) {
  struct scalars scalars;
  begin(&scalars);
  add(&scalars, "loss", eval->loss);
  if (!isnan(eval->accuracy))
    add(&scalars, "accuracy", eval->accuracy);
  for (size_t m = 0; m < eval->n_metrics && m < METRICS_NAMED_MAX; m++)
    if (metric_find(eval->metrics[m]->name) && !isnan(eval->metrics[m]->value))
      add(&scalars, eval->metrics[m]->name, eval->metrics[m]->value);
  tensorboard->eval.seconds = fmax(tensorboard->eval.seconds, tensorboard->train.seconds);
  return event_file_scalars(&tensorboard->eval, &tensorboard->filter.eval, &scalars.summary, err);
}

int tensorboard_end(struct tensorboard *tensorboard, Weir__RunState state, struct err *err) {
  bool is_good = state == WEIR__RUN_STATE__DONE || state == WEIR__RUN_STATE__STOPPED;
  if (!tensorboard->has_trial || tensorboard->trial.is_over ||
      (!is_good && state != WEIR__RUN_STATE__FAILED && state != WEIR__RUN_STATE__CANCELLED))
    return 0;
  tensorboard->trial.seconds = fmax(tensorboard->trial.seconds, tensorboard->train.seconds);
  return hparams_end(&tensorboard->trial, is_good, err);
}

void tensorboard_close(struct tensorboard *tensorboard) {
  if (!tensorboard)
    return;
  event_file_close(&tensorboard->train);
  event_file_close(&tensorboard->eval);
  event_file_close(&tensorboard->trial);
  free(tensorboard);
}
