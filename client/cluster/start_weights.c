/* Starting from existing weights. */
#include "client/cluster/start_weights.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cluster/download.h"
#include "client/cluster/run_step.h"
#include "client/cluster/weights_sources.h"
#include "client/files/safetensors.h"
#include "client/terminal/output.h"
#include "common/base/message.h"
#include "model/export_tensors.h"
#include "model/onnx/onnx_patch.h"
#include "training.pb-c.h"

enum { NAMES_SHOWN_MAX = 8 };

/* Named tensors, and what they live in: one of the two kinds is used. */
struct source {
  const char *from;
  const struct trained_tensor *tensors;
  int n;
  struct safetensors file;
  struct trained_tensors trained;
  struct trained_weights weights;
};

/* Those of the source's tensors that the model takes. */
struct matches {
  struct trained_tensor *tensors;
  int n;
};

static int source_open(struct source *source, struct connection *connection, struct err *err);
static int source_download(struct source *source, struct connection *connection, struct err *err);
static int model_open_unfrozen(const struct submission *submission, struct model **out, struct err *err);
static int source_match(const struct source *source, const struct model *trained, const struct model *model,
                        struct matches *matches, struct err *err);
static int check_tensor(const struct source *source, const struct trained_tensor *tensor,
                        const struct shape *shape, struct err *err);
static void note_extra(const struct source *source, const struct matches *matches);
static void source_close(struct source *source);

/* Else it can only be RUN or RUN@STEP. */
static bool is_file(const char *from) {
  static const char ending[] = ".safetensors";
  size_t length = strlen(from);
  return strchr(from, '/') ||
         (length > strlen(ending) && strcmp(from + length - strlen(ending), ending) == 0);
}

int start_weights_apply(struct submission *submission, const char *from, struct connection *connection,
                        struct err *err) {
  const Weir__TrainSpec *train = submission->spec->train;
  struct source source = {.from = from};
  struct matches matches = {0};
  struct model *model = NULL, *unfrozen = NULL;
  struct err none = ERR_NONE;
  if (source_open(&source, connection, err) ||
      model_open(&(struct model_source){.onnx = submission->onnx,
                                        .size_bytes = submission->onnx_size,
                                        .spec = submission->spec,
                                        .samples = train->batch / train->microbatches},
                 &model, err))
    goto out;
  model_open_unfrozen(submission, &unfrozen, &none); /* where that cannot be trained, what can be is taken */
  if (source_match(&source, model, unfrozen ? unfrozen : model, &matches, err) == 0 &&
      onnx_patch(&submission->onnx, &submission->onnx_size, matches.tensors, matches.n, err) == 0)
    note_extra(&source, &matches);
out:
  model_close(unfrozen);
  model_close(model);
  free(matches.tensors);
  source_close(&source);
  return err->code;
}

static int source_open(struct source *source, struct connection *connection, struct err *err) {
  if (is_file(source->from)) {
    if (safetensors_read(source->from, &source->file, err))
      return err->code;
    source->tensors = source->file.tensors;
    source->n = source->file.n;
    return ERR_OK;
  }
  if (!connection)
    return err_set(err, ERR_INVALID, "--from: '%s' is not a FILE.safetensors", source->from);
  return source_download(source, connection, err);
}

static int source_download(struct source *source, struct connection *connection, struct err *err) {
  Weir__RunRequest request = WEIR__RUN_REQUEST__INIT;
  Weir__WeightsRequest wanted = WEIR__WEIGHTS_REQUEST__INIT;
  struct piece_download pieces = {connection, NULL};
  Weir__RunInfo *info = NULL;
  void *onnx = NULL;
  size_t onnx_size;
  struct trained_model model;
  struct run_step from;
  if (run_step_parse(source->from, &from, err))
    return err_prefix(err, "--from");
  request.run = from.run;
  if (connection_call(connection, RPC_GET_RUN, &request, (void **)&info, err) ||
      download_model(connection, info->run, &onnx, &onnx_size, err))
    goto out;
  wanted.run = info->run;
  wanted.has_step = from.has_step;
  wanted.step = from.has_step && from.step == 0 ? info->parent_step : from.step;
  model = (struct trained_model){
      .onnx = onnx, .onnx_size = onnx_size, .spec = info->spec, .pieces = {piece_download_read, &pieces}};
  pieces.run = info->run;
  if (wanted.has_step && wanted.step == 0)
    download_initial_weights(&model, info->parameters, err);
  else
    download_weights(connection, &wanted, info->parameters, &model.weights, err);
  source->weights = model.weights;
  if (err->code == ERR_OK && trained_tensors_init(&source->trained, &model, err) == 0) {
    source->tensors = source->trained.tensors;
    source->n = source->trained.n;
  }
out:
  if (err->code)
    err_prefix(err, "--from %s", source->from);
  free(onnx);
  free(request.run);
  message_free(info);
  return err->code;
}

static const struct trained_tensor *source_find(const struct source *source, const char *name) {
  for (int i = 0; i < source->n; i++)
    if (strcmp(source->tensors[i].name, name) == 0)
      return &source->tensors[i];
  return NULL;
}

/* Adds a name to a list that is shown; those that are too many are counted by the caller. */
static void list_add(char *list, size_t size, int n, const char *name) {
  size_t length = strlen(list);
  if (n < NAMES_SHOWN_MAX)
    snprintf(list + length, size - length, "%s'%.100s'", n > 0 ? ", " : "", name);
  else if (n == NAMES_SHOWN_MAX)
    snprintf(list + length, size - length, ", ...");
}

/* The model with all that its run could train if it froze nothing. */
static int model_open_unfrozen(const struct submission *submission, struct model **out, struct err *err) {
  Weir__RunSpec spec = *submission->spec;
  Weir__ModelSpec model = *spec.model;
  Weir__TrainSpec train = *spec.train;
  Weir__OptimizerSpec optimizer = *train.optimizer;
  model.n_frozen = optimizer.n_groups = 0;
  model.batch_norm = (char *)"auto";
  train.optimizer = &optimizer;
  spec.model = &model;
  spec.train = &train;
  return model_open(&(struct model_source){.onnx = submission->onnx,
                                           .size_bytes = submission->onnx_size,
                                           .spec = &spec,
                                           .samples = train.batch / train.microbatches},
                    out, err);
}

static bool is_trained(const struct model *model, const char *name) {
  for (int i = 0; i < model->n_initializers; i++)
    if (strcmp(model->initializers[i].name, name) == 0)
      return model->initializers[i].param >= 0 || model->initializers[i].statistic >= 0;
  return false;
}

/* The source's tensors for all that training would change, which must be there, and for what is frozen: model
   is `trained` without what freezes. matches->tensors is freed by the caller. */
static int source_match(const struct source *source, const struct model *trained, const struct model *model,
                        struct matches *matches, struct err *err) {
  char missing[1024] = "";
  int n_missing = 0;
  matches->tensors = mem_new((size_t)model->n_initializers * sizeof *matches->tensors);
  for (int i = 0; i < model->n_initializers; i++) {
    const struct initializer *initializer = &model->initializers[i];
    const struct shape *shape = initializer->param >= 0 ? &model->params[initializer->param].shape
                                : initializer->statistic >= 0
                                    ? &model->statistics[initializer->statistic].shape
                                    : NULL;
    const struct trained_tensor *tensor = shape ? source_find(source, initializer->name) : NULL;
    if (!shape)
      continue;
    if (!tensor && is_trained(trained, initializer->name))
      list_add(missing, sizeof missing, n_missing++, initializer->name);
    else if (!tensor)
      continue;
    else if (check_tensor(source, tensor, shape, err))
      return err->code;
    else
      matches->tensors[matches->n++] = *tensor;
  }
  if (n_missing > 0)
    return err_set(err, ERR_INVALID, "--from %s: %d of the model's trained tensors are not there: %s",
                   source->from, n_missing, missing);
  return ERR_OK;
}

static int check_tensor(const struct source *source, const struct trained_tensor *tensor,
                        const struct shape *shape, struct err *err) {
  char has[128], wants[128];
  if (!shape_is_same(tensor->shape, shape))
    return err_set(err, ERR_INVALID, "--from %s: tensor '%s' is %s there and %s in the model", source->from,
                   tensor->name, shape_text(tensor->shape, has, sizeof has),
                   shape_text(shape, wants, sizeof wants));
  if (!tensor->data)
    return err_set(err, ERR_INVALID, "--from %s: tensor '%s' is of type %s; F32, F16 and BF16 are taken",
                   source->from, tensor->name, source->file.dtypes[tensor - source->tensors]);
  for (uint64_t i = 0; i < tensor->elems; i++)
    if (!isfinite(tensor->data[i]))
      return err_set(err, ERR_INVALID, "--from %s: tensor '%s' holds values that are not finite",
                     source->from, tensor->name);
  return ERR_OK;
}

static void note_extra(const struct source *source, const struct matches *matches) {
  char extra[1024] = "";
  int n = 0;
  for (int i = 0; i < source->n; i++) {
    bool is_matched = false;
    for (int m = 0; m < matches->n && !is_matched; m++)
      is_matched = matches->tensors[m].name == source->tensors[i].name;
    if (!is_matched)
      list_add(extra, sizeof extra, n++, source->tensors[i].name);
  }
  output_clean(extra);
  if (n > 0)
    fprintf(stderr, "weir: note: %d tensor%s of %s %s nothing that the model could train: %s\n", n,
            n == 1 ? "" : "s", source->from, n == 1 ? "is" : "are", extra);
}

static void source_close(struct source *source) {
  safetensors_fini(&source->file);
  trained_tensors_fini(&source->trained);
  download_fini(&source->weights);
}
