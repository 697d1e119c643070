/* Writing a spec for a model. */
#include "client/drafts/draft.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/specs/yaml_text.h"
#include "common/agree/spec.h"
#include "common/base/memory.h"
#include "common/base/text.h"
#include "common/settle/spec_settle.h"
#include "model/onnx/model_file.h"

enum { NAME_MAX_BYTES = 40, MICROBATCHES = 8, SHAPE_TEXT = 128 };

static int find_root(const struct draft_request *request, char **root, struct err *err);
static int check_path(char *path, const char *what, struct err *err);
static char *spec_name(const char *model);
static char *model_path(const struct draft_request *request);
static char *draft_text(const struct draft_request *request, const struct draft *draft, const char *root);
static int check_text(const struct draft *draft, const struct model_file *file, const char *path,
                      struct err *err);

int draft_make(const struct draft_request *request, struct draft *out, struct err *err) {
  struct model_file file = {0};
  char *root = NULL;
  *out = (struct draft){0};
  if (model_file_open(request->model, &file, err) || find_root(request, &root, err) ||
      check_path(mem_strdup(root), "the folder", err) || check_path(model_path(request), "the model", err))
    goto out;
  if (task_find(file.bytes, file.size_bytes, &out->task, err)) {
    err_prefix(err, "%s", request->model);
    goto out;
  }
  data_guess_find(&out->task, root, &out->data);
  out->text = draft_text(request, out, root);
  check_text(out, &file, request->spec, err);
out:
  model_file_close(&file);
  free(root);
  return err->code;
}

void draft_fini(struct draft *draft) {
  data_guess_fini(&draft->data);
  task_fini(&draft->task);
  free(draft->text);
  *draft = (struct draft){0};
}

/* The folder that a file would lie in; freed by the caller. */
static char *folder_of(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? mem_printf("%.*s", (int)(slash - path) + (slash == path), path) : mem_strdup(".");
}

static bool is_folder(const char *path) {
  struct stat status;
  return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

/* Workers know no current folder: an absolute path. */
static int find_root(const struct draft_request *request, char **root, struct err *err) {
  char *folder = request->data ? mem_strdup(request->data) : folder_of(request->spec);
  *root = realpath(folder, NULL);
  if (!*root)
    err_open(err, errno, "init: the folder '%s'", folder);
  else if (!is_folder(folder))
    err_set(err, ERR_INVALID, "init: '%s' is no folder: give --data the folder that the data is in", folder);
  free(folder);
  return err->code;
}

/* Releases the path, which the spec is to say. */
static int check_path(char *path, const char *what, struct err *err) {
  char *shown = text_copy_clean(path, strlen(path));
  if (!yaml_can_say(path))
    err_set(err, ERR_INVALID, "init: the name of %s '%s' is not UTF-8, as a spec is: rename it", what, shown);
  free(shown);
  free(path);
  return err->code;
}

/* As seen from the spec, where the model lies beside it or below. */
static char *model_path(const struct draft_request *request) {
  char *beside = folder_of(request->spec), *folder = realpath(beside, NULL);
  char *path = realpath(request->model, NULL), *found;
  size_t length = folder ? strlen(folder) : 0;
  bool is_below = folder && path && strncmp(path, folder, length) == 0 && path[length] == '/';
  found = mem_strdup(is_below ? path + length + 1 : path ? path : request->model);
  free(beside);
  free(folder);
  free(path);
  return found;
}

/* [a-z0-9-]{1,40} of the model's file name. */
static char *spec_name(const char *model) {
  const char *slash = strrchr(model, '/'), *file = slash ? slash + 1 : model, *dot = strrchr(file, '.');
  char *name = mem_printf("%.*s", dot ? (int)(dot - file) : NAME_MAX_BYTES, file);
  if (strlen(name) > NAME_MAX_BYTES)
    name[NAME_MAX_BYTES] = '\0';
  for (char *c = name; *c; c++)
    *c = isalnum((unsigned char)*c) ? (char)tolower((unsigned char)*c) : '-';
  if (*name)
    return name;
  free(name);
  return mem_strdup("model");
}

/* Without the samples' dimension: "f32[3,32,32]". */
static const char *sample_text(const struct value *value, char text[SHAPE_TEXT]) {
  char shape[SHAPE_TEXT - 16];
  struct shape sample = {.rank = value->shape.rank > 0 ? value->shape.rank - 1 : 0};
  memcpy(sample.dim, value->shape.dim + 1, (size_t)sample.rank * sizeof *sample.dim);
  snprintf(text, SHAPE_TEXT, "%s%s", dtype_name(value->dtype),
           sample.rank ? shape_text(&sample, shape, sizeof shape) : "");
  return text;
}

static void write_ends(FILE *out, const struct task *task) {
  const struct model *model = task->model;
  char text[SHAPE_TEXT];
  for (int i = 0; i < model->n_columns; i++)
    fprintf(out, "#   input   %s: %s a sample\n", task_input(task, i)->name,
            sample_text(task_input(task, i), text));
  fprintf(out, "#   output  %s: %s\n", model->output.name, sample_text(&model->output, text));
  if (!model->has_labels)
    return;
  fprintf(out, "#   labels  %s", sample_text(task_input(task, model->n_columns), text));
  if (model->labels.classes > 0)
    fprintf(out, ", classes 0 to %lld", (long long)model->labels.classes - 1);
  fprintf(out, "\n");
}

static void write_inputs(FILE *out, const struct task *task) {
  if (task->model->n_columns == 1)
    return;
  fprintf(out, "  inputs: {");
  for (int i = 0; i < task->model->n_columns; i++) {
    char *name = yaml_quoted(task_input(task, i)->name), *column = data_guess_column(task, i);
    fprintf(out, "%s%s: %s", i ? ", " : "", name, column);
    free(name);
    free(column);
  }
  fprintf(out, "}    # input: column of the data\n");
}

static void write_model(FILE *out, const struct draft_request *request, const struct task *task) {
  char *path = model_path(request), *onnx = yaml_quoted(path), *loss = yaml_quoted(task->loss);
  fprintf(out, "model:\n  onnx: %s    # relative to this file\n  loss: %s\n", onnx, loss);
  if (task->note)
    fprintf(out, "    # %s\n", task->note);
  write_inputs(out, task);
  free(path);
  free(onnx);
  free(loss);
}

static void write_data(FILE *out, const struct data_guess *data, const char *root) {
  char *quoted = yaml_quoted(root);
  const char *fill_in = data->is_found ? "" : "FILL IN: ";
  fprintf(out, "data:\n  root: %s    # a folder on the workers, below their --data-root\n", quoted);
  fprintf(out, "  # %s%s\n  train: %s\n", fill_in, data->meaning, data->train);
  if (data->doubt)
    fprintf(out, "  # FILL IN: %s\n", data->doubt);
  data_guess_write_notes(data, out, "  # ");
  if (data->eval)
    fprintf(out, "  eval: %s\n", data->eval);
  else
    fprintf(out, "  split: [0.9, 0.1]    # trained on and evaluated; or eval: {...}, as train\n");
  if (*data->transforms)
    fprintf(out, "  transforms:\n%s", data->transforms);
  free(quoted);
}

static char *draft_text(const struct draft_request *request, const struct draft *draft, const char *root) {
  const struct task *task = &draft->task;
  char *name = spec_name(request->model), *text = NULL;
  size_t size;
  FILE *out = open_memstream(&text, &size);
  CHECK(out);
  fprintf(out, "# Made by `weir init` for a model that %s:\n", task->summary);
  write_ends(out, task);
  fprintf(out, "# `weir inspect` shows what would be trained; docs/SPEC.md has every key.\nname: %s\n", name);
  write_model(out, request, task);
  write_data(out, &draft->data, root);
  fprintf(out,
          "train:\n"
          "  epochs: 5            # how often each sample is used; or steps: 2000\n"
          "  batch: %lld            # samples of a step, over all workers\n"
          "  microbatches: %d      # equal parts of a batch, shared out among the workers\n"
          "  seed: 1\n"
          "  optimizer: {name: adamw, lr: 0.001, weight_decay: 0.01}    # the first to try others of is lr\n"
          "  schedule: {name: cosine}\n"
          "checkpoint: {every_seconds: 60, keep: 3}\n"
          "workers: {min: 1}\n",
          (long long)task->samples * MICROBATCHES, MICROBATCHES);
  fclose(out);
  free(name);
  return text;
}

static int check_text(const struct draft *draft, const struct model_file *file, const char *path,
                      struct err *err) {
  Weir__RunSpec *spec = NULL;
  struct model *model = NULL;
  if (spec_read(path, draft->text, strlen(draft->text), &spec, err) == 0 && spec_check(spec, err) == 0 &&
      spec_settle_check(spec, err) == 0)
    model_open(&(struct model_source){.onnx = file->bytes,
                                      .size_bytes = file->size_bytes,
                                      .spec = spec,
                                      .samples = draft->task.samples},
               &model, err);
  model_close(model);
  spec_free(spec);
  return err->code ? err_prefix(err, "init: no spec can be written for this model") : 0;
}
