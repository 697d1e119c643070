/* A sweep's spec and files. */
#include "client/sweeps/sweep_submission.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/message.h"
#include "common/sweep/sweep_spec.h"
#include "model/model.h"
#include "model/stages/cuts.h"

/* The files of the space; NULL: it has none. */
static const Weir__Dimension *find_files(const Weir__SweepSpec *spec) {
  for (size_t i = 0; i < spec->n_space; i++)
    if (spec->space[i]->n_files > 0)
      return spec->space[i];
  return NULL;
}

static const char *file_name(const struct sweep_submission *sweep, size_t file) {
  return find_files(sweep->spec)->files[file];
}

static int file_bad(const struct sweep_submission *sweep, size_t file, struct err *err) {
  return err_prefix(err, "space.model.onnx: files: %s", file_name(sweep, file));
}

/* A model that another one is as well is not sent, and not a value of its own. */
static int find_same(struct sweep_submission *sweep, size_t file, struct err *err) {
  struct submission_model *model = &sweep->files[file];
  const struct submission *base = &sweep->submission;
  for (size_t other = 0; other < file; other++) {
    const struct submission_model *before = &sweep->files[other];
    const void *onnx = before->onnx ? before->onnx : base->onnx;
    if (before->size_bytes == model->size_bytes && memcmp(onnx, model->onnx, model->size_bytes) == 0) {
      err_set(err, ERR_INVALID, "is the same model as %s", file_name(sweep, other));
      return file_bad(sweep, file, err);
    }
  }
  if (model->size_bytes == base->onnx_size && memcmp(model->onnx, base->onnx, model->size_bytes) == 0) {
    free(model->onnx);
    model->onnx = NULL;
  }
  return 0;
}

static int read_file(struct sweep_submission *sweep, size_t i, struct err *err) {
  struct submission_model *model = &sweep->files[i];
  struct model_file file;
  model->path = submission_path_beside(sweep->source->file, file_name(sweep, i));
  if (model_file_open(model->path, &file, err)) {
    err->code = err->code == ERR_NOT_FOUND ? ERR_INVALID : err->code; /* what the spec names */
    err_prefix(err, "space.model.onnx: files");
  } else if (model_file_pieces(&file).read) {
    err_set(err, ERR_UNSUPPORTED, "a sweep's model is one file, without external data");
    file_bad(sweep, i, err);
  } else {
    model->onnx = file.bytes;
    model->size_bytes = file.size_bytes;
    file.bytes = NULL;
  }
  model_file_close(&file);
  return err->code ? (int)err->code : find_same(sweep, i, err);
}

static int read_files(struct sweep_submission *sweep, struct err *err) {
  const Weir__Dimension *files = find_files(sweep->spec);
  const size_t n = files ? files->n_files : 0;
  sweep->models = mem_new((1 + n) * sizeof *sweep->models);
  sweep->files = mem_new(n * sizeof *sweep->files + 1);
  for (; sweep->n_files < n && !err->code; sweep->n_files++)
    read_file(sweep, sweep->n_files, err);
  sweep->submission.files = sweep->files;
  sweep->submission.n_files = sweep->n_files;
  return err->code;
}

/* The spec that the model, from 0 as in `models`, has to go with; freed with spec_free. */
static int model_spec(const struct sweep_submission *sweep, const Weir__SweepSpec *by, size_t model,
                      Weir__RunSpec **out, struct err *err) {
  if (model > 0)
    return sweep_file_spec(by, sweep->submission.spec, (uint32_t)model - 1, out, err);
  *out = sweep_model_spec(by, sweep->submission.spec);
  return 0;
}

static int open_model(struct sweep_submission *sweep, const Weir__RunSpec *spec, size_t i, struct err *err) {
  const struct model_cuts_wanted wanted = {.n_stages = (int)spec->workers->stages};
  const struct submission_model *file = i > 0 && sweep->files[i - 1].onnx ? &sweep->files[i - 1] : NULL;
  const struct model_source source = {.onnx = file ? file->onnx : sweep->submission.onnx,
                                      .size_bytes = file ? file->size_bytes : sweep->submission.onnx_size,
                                      .spec = spec,
                                      .samples = spec->train->batch / spec->train->microbatches};
  struct model_cuts cuts = {0};
  struct model *model = NULL;
  if (model_open(&source, &model, err) == 0 && model_cuts_find(model, spec, &wanted, &cuts, err) == 0)
    sweep->models[i] = (struct sweep_model){(double)model_multiply_adds(model, source.samples), ""};
  model_cuts_fini(&cuts);
  model_close(model);
  return err->code;
}

/* Whether the models have what a metric is made of, and can be trained. */
static int check_metric(struct sweep_submission *sweep, const char *key, const char *metric,
                        struct err *err) {
  Weir__SweepObjective objective = *sweep->spec->objective;
  Weir__SweepSpec by_metric = *sweep->spec;
  objective.metric = (char *)metric;
  by_metric.objective = &objective;
  by_metric.n_objectives = 0;
  for (size_t i = 0; i <= sweep->n_files && !err->code; i++) {
    Weir__RunSpec *spec;
    if (model_spec(sweep, &by_metric, i, &spec, err) == 0 && open_model(sweep, spec, i, err)) {
      if (i > 0)
        file_bad(sweep, i - 1, err);
      else
        err_prefix(err, "%s", key);
    }
    spec_free(spec);
  }
  return err->code;
}

static int check_objectives(struct sweep_submission *sweep, struct err *err) {
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

static int check_models(struct sweep_submission *sweep, struct err *err) {
  const Weir__SweepConstraint *constraint = sweep->spec->constraint;
  if (sweep->submission.pieces.read)
    return err_set(err, ERR_UNSUPPORTED, "%s: a sweep's model is one file, without external data",
                   sweep->submission.model_path);
  if (read_files(sweep, err) || check_objectives(sweep, err) || !constraint)
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
      (sweep_spec_check_base(sweep->spec, sweep->submission.spec, err) || check_models(sweep, err)))
    spec_blame(source, err);
  free(path);
  sweep->submission.sweep = sweep->spec;
  return err->code;
}

int sweep_submission_send(const struct sweep_submission *sweep, struct connection *connection, char **id,
                          struct err *err) {
  submission_send(&sweep->submission, connection, id, err);
  if (submission_blames_sweep(err))
    spec_blame(sweep->source, err);
  return err->code;
}

char *sweep_submission_model(const struct sweep_submission *sweep, const Weir__SweepTrial *trial) {
  char *path = mem_strdup(sweep->submission.model_path), *absolute;
  for (size_t i = 0; i < trial->n_values; i++)
    if (strcmp(trial->values[i]->path, "model.onnx") == 0) {
      free(path);
      path = submission_path_beside(sweep->source->file, trial->values[i]->value);
    }
  absolute = realpath(path, NULL);
  if (!absolute)
    return path;
  free(path);
  return absolute;
}

void sweep_submission_fini(struct sweep_submission *sweep) {
  for (size_t i = 0; i < sweep->n_files; i++) {
    free(sweep->files[i].path);
    free(sweep->files[i].onnx);
  }
  free(sweep->files);
  free(sweep->models);
  message_free(sweep->spec);
  submission_fini(&sweep->submission);
  *sweep = (struct sweep_submission){0};
}
