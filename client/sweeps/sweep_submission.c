/* A sweep's spec and files. */
#include "client/sweeps/sweep_submission.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/message.h"
#include "common/sweep/sweep_spec.h"
#include "model/model.h"

/* Whether the model has what a metric is made of. */
static int check_metric(const struct sweep_submission *sweep, const char *key, const char *metric,
                        struct err *err) {
  Weir__SweepObjective objective = *sweep->spec->objective;
  Weir__SweepSpec by_metric = *sweep->spec;
  const struct submission *submission = &sweep->submission;
  const Weir__TrainSpec *train = submission->spec->train;
  Weir__RunSpec *spec;
  struct model *model = NULL;
  objective.metric = (char *)metric;
  by_metric.objective = &objective;
  by_metric.n_objectives = 0;
  spec = sweep_model_spec(&by_metric, submission->spec);
  if (submission->pieces.read)
    err_set(err, ERR_UNSUPPORTED, "%s: a sweep's model is one file, without external data",
            submission->model_path);
  else if (model_open(&(struct model_source){.onnx = submission->onnx,
                                             .size_bytes = submission->onnx_size,
                                             .spec = spec,
                                             .samples = train->batch / train->microbatches},
                      &model, err))
    err_prefix(err, "%s", key);
  model_close(model);
  spec_free(spec);
  return err->code;
}

static int check_objectives(const struct sweep_submission *sweep, struct err *err) {
  const Weir__SweepSpec *spec = sweep->spec;
  if (spec->n_objectives == 0)
    return check_metric(sweep, "objective.metric", spec->objective->metric, err);
  for (size_t i = 0; i < spec->n_objectives && !err->code; i++) {
    char key[40];
    snprintf(key, sizeof key, "objective[%zu].metric", i);
    check_metric(sweep, key, spec->objectives[i]->metric, err);
  }
  return err->code;
}

static int check_model(const struct sweep_submission *sweep, struct err *err) {
  const Weir__SweepConstraint *constraint = sweep->spec->constraint;
  if (check_objectives(sweep, err) || !constraint)
    return err->code;
  return check_metric(sweep, "constraint.metric", constraint->metric, err);
}

int sweep_submission_load(struct sweep_submission *sweep, const struct spec_source *source, struct err *err) {
  struct spec_source base = {0};
  char *path;
  *sweep = (struct sweep_submission){.source = source};
  if (sweep_spec_read(source, &sweep->spec, err))
    return err->code;
  if (sweep_spec_check(sweep->spec, err))
    return spec_blame(source, err);
  if (!sweep->spec->spec)
    return err_set(err, ERR_INVALID, "%s: spec: name the run spec that trials begin with", source->file);
  base.file = path = submission_path_beside(source->file, sweep->spec->spec);
  if (submission_load(&sweep->submission, &base, err) == 0 &&
      (sweep_spec_check_base(sweep->spec, sweep->submission.spec, err) || check_model(sweep, err)))
    spec_blame(source, err);
  free(path);
  sweep->submission.sweep = sweep->spec;
  return err->code;
}

int sweep_submission_send(const struct sweep_submission *sweep, struct connection *connection, char **id,
                          struct err *err) {
  submission_send(&sweep->submission, connection, id, err);
  if (err->code == ERR_INVALID && strncmp(err->text, "from: ", strlen("from: ")) == 0)
    spec_blame(sweep->source, err);
  return err->code;
}

void sweep_submission_fini(struct sweep_submission *sweep) {
  message_free(sweep->spec);
  submission_fini(&sweep->submission);
  *sweep = (struct sweep_submission){0};
}
