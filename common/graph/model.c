/* The model of a run: from an ONNX file and a spec to train and eval graph, parameters and statistics. */
#include "common/graph/model.h"

#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/graph/autodiff.h"
#include "common/graph/fuse.h"
#include "common/graph/model_parts.h"

static int find_loss(struct model_builder *builder, struct err *err);
static int note_initializers(struct model_builder *builder, struct err *err);
static void keep_output(struct model_builder *builder);
static int make_graphs(struct model_builder *builder, struct err *err);
static int attach_losses(struct model_builder *builder, struct err *err);
static int differentiate(struct model_builder *builder, struct err *err);
static void prune_graphs(struct model_builder *builder);
static int list_params(struct model_builder *builder, struct err *err);
static int list_statistics(struct model_builder *builder, struct err *err);

static int build(struct model_builder *builder, struct err *err) {
  if (find_loss(builder, err) || note_initializers(builder, err))
    return err->code;
  keep_output(builder);
  model_note_constants(builder);
  if (model_columns(builder, err) || make_graphs(builder, err) || attach_losses(builder, err) ||
      differentiate(builder, err))
    return err->code;
  prune_graphs(builder);
  if (list_params(builder, err) || list_statistics(builder, err))
    return err->code;
  model_cut_blocks(builder->model);
  return 0;
}

int model_open(const void *onnx, size_t size_bytes, const Weir__RunSpec *spec, int64_t microbatch_samples,
               uint64_t batch, struct model **out, struct err *err) {
  struct model_builder builder = {
      .spec = spec ? spec->model : NULL, .microbatch_samples = microbatch_samples, .batch = batch};
  int code;
  *out = NULL;
  if (microbatch_samples < 1 || batch < 1)
    return err_set(err, ERR_INVALID, "train.batch: a microbatch needs at least one sample");
  builder.model = mem_new(sizeof *builder.model);
  code = graph_load_onnx(onnx, size_bytes, &builder.model->train, err);
  if (!code)
    code = build(&builder, err);
  free(builder.notes);
  free(builder.note_of_value);
  if (code)
    model_close(builder.model);
  else
    *out = builder.model;
  return code;
}

void model_close(struct model *model) {
  if (!model)
    return;
  graph_free(model->eval); /* shares the train graph's names and data */
  graph_free(model->train);
  free(model);
}

static int find_loss(struct model_builder *builder, struct err *err) {
  const struct graph *graph = builder->model->train;
  const char *name = builder->spec && builder->spec->loss ? builder->spec->loss : "cross_entropy";
  builder->loss = loss_find(name);
  if (builder->loss)
    return 0;
  for (int o = 0; o < graph->n_outputs; o++)
    if (strcmp(graph->values[graph->outputs[o]].name, name) == 0)
      return err_set(err, ERR_UNSUPPORTED,
                     "model.loss: '%s' is an output of the model; losses are supported by name only: %s",
                     name, loss_names());
  return err_set(err, ERR_INVALID, "model.loss: there is no loss '%.100s', known are: %s", name,
                 loss_names());
}

static int freeze(struct model_builder *builder, const char *pattern, struct err *err) {
  const struct model *model = builder->model;
  bool is_used = false;
  for (int i = 0; i < model->n_initializers; i++)
    if (fnmatch(pattern, model->initializers[i].name, 0) == 0)
      is_used = builder->notes[i].is_frozen = true;
  if (!is_used)
    return err_set(err, ERR_INVALID, "model.frozen: '%.100s' matches no initializer of the model", pattern);
  return 0;
}

/* The loader puts the initializers before all other values, in the file's order. */
static int note_initializers(struct model_builder *builder, struct err *err) {
  struct model *model = builder->model;
  struct graph *graph = model->train;
  while (model->n_initializers < graph->n_values &&
         graph->values[model->n_initializers].kind == VALUE_INITIALIZER)
    model->n_initializers++;
  model->initializers = arena_new(&graph->arena, (size_t)model->n_initializers * sizeof *model->initializers);
  builder->notes = mem_new((size_t)model->n_initializers * sizeof *builder->notes);
  for (int i = 0; i < model->n_initializers; i++) {
    model->initializers[i] = (struct initializer){graph->values[i].name, -1, -1};
    builder->notes[i] =
        (struct initializer_note){.train_value = i, .eval_value = i, .batch_value = -1, .grad = -1};
  }
  for (size_t f = 0; builder->spec && f < builder->spec->n_frozen; f++)
    if (freeze(builder, builder->spec->frozen[f], err))
      return err->code;
  return 0;
}

/* What does not lead to the first output is not trained: it leaves the graph. */
static void keep_output(struct model_builder *builder) {
  struct model *model = builder->model;
  struct graph *graph = model->train;
  int *map;
  graph->n_outputs = 1;
  map = graph_prune(graph, graph->outputs, 1);
  builder->note_of_value = mem_new((size_t)graph->n_values * sizeof *builder->note_of_value);
  for (int i = 0; i < model->n_initializers; i++) {
    struct initializer_note *note = &builder->notes[i];
    note->train_value = note->eval_value = map[i];
    if (map[i] >= 0)
      builder->note_of_value[map[i]] = i;
  }
  free(map);
}

static int make_graphs(struct model_builder *builder, struct err *err) {
  struct model *model = builder->model;
  model->train->is_training = true;
  if (graph_bind_batch(model->train, builder->microbatch_samples, err) || graph_infer(model->train, err))
    return err->code;
  graph_fuse(model->train);
  model->eval = graph_clone(model->train);
  model->eval->is_training = false;
  return model_rewrite_train(builder, err) || model_rewrite_eval(builder, err) ? (int)err->code : 0;
}

static int attach_loss(struct model_builder *builder, struct graph *graph, struct loss_values *values,
                       struct err *err) {
  struct shape shape = {.rank = 1, .dim = {builder->microbatch_samples}};
  int labels = graph_add_input(graph, "weir.labels", DTYPE_I64, &shape);
  return builder->loss->attach(graph, graph->outputs[0], labels, values, err);
}

static int attach_losses(struct model_builder *builder, struct err *err) {
  struct model *model = builder->model;
  struct loss_values train, eval;
  const struct shape *output;
  if (attach_loss(builder, model->train, &train, err) || attach_loss(builder, model->eval, &eval, err))
    return err->code;
  output = &model->train->values[model->train->outputs[0]].shape;
  model->train_loss_sum = train.loss_sum;
  model->train_correct = train.correct;
  model->eval_loss_sum = eval.loss_sum;
  model->eval_correct = eval.correct;
  model->classes = train.correct >= 0 ? output->dim[output->rank - 1] : 0;
  return 0;
}

static bool is_trainable(const struct graph *graph, const struct initializer_note *note) {
  const struct value *value = note->train_value >= 0 ? &graph->values[note->train_value] : NULL;
  return value && value->dtype == DTYPE_F32 && shape_elems(&value->shape) > 0 && !note->is_frozen &&
         !note->is_fixed && !note->is_constant && note->batch_value < 0;
}

/* The step's loss is the mean over its samples, of which one microbatch gives a sum. */
static int differentiate(struct model_builder *builder, struct err *err) {
  struct model *model = builder->model;
  struct graph *graph = model->train;
  int seed = graph_add_constant_f32(graph, (float)(1.0 / (double)builder->batch));
  bool *wanted = mem_new((size_t)graph->n_values);
  int *grads = mem_new((size_t)graph->n_values * sizeof *grads);
  int code;
  for (int i = 0; i < model->n_initializers; i++)
    if (is_trainable(graph, &builder->notes[i]))
      wanted[builder->notes[i].train_value] = true;
  code = autodiff_run(graph, &model->train_loss_sum, &seed, 1, wanted, grads, err);
  for (int i = 0; i < model->n_initializers && !code; i++)
    if (is_trainable(graph, &builder->notes[i]))
      builder->notes[i].grad = grads[builder->notes[i].train_value];
  free(wanted);
  free(grads);
  return code;
}

static int remap(const int *map, int value) {
  return value >= 0 ? map[value] : -1;
}

static void prune_train(struct model_builder *builder) {
  struct model *model = builder->model;
  struct graph *graph = model->train;
  int *roots = mem_new((size_t)(2 + graph->n_inputs + 2 * model->n_initializers) * sizeof *roots), n = 0,
      *map;
  roots[n++] = model->train_loss_sum;
  roots[n++] = model->train_correct;
  for (int i = 0; i < graph->n_inputs; i++)
    roots[n++] = graph->inputs[i];
  for (int i = 0; i < model->n_initializers; i++) {
    roots[n++] = builder->notes[i].grad;
    roots[n++] = builder->notes[i].batch_value;
  }
  map = graph_prune(graph, roots, n);
  for (int i = 0; i < model->n_initializers; i++) {
    struct initializer_note *note = &builder->notes[i];
    note->train_value = remap(map, note->train_value);
    note->grad = remap(map, note->grad);
    note->batch_value = remap(map, note->batch_value);
  }
  model->train_loss_sum = remap(map, model->train_loss_sum);
  model->train_correct = remap(map, model->train_correct);
  free(map);
  free(roots);
}

static void prune_eval(struct model_builder *builder) {
  struct model *model = builder->model;
  struct graph *graph = model->eval;
  int *roots = mem_new((size_t)(2 + graph->n_inputs) * sizeof *roots), n = 0, *map;
  roots[n++] = model->eval_loss_sum;
  roots[n++] = model->eval_correct;
  for (int i = 0; i < graph->n_inputs; i++)
    roots[n++] = graph->inputs[i];
  map = graph_prune(graph, roots, n);
  for (int i = 0; i < model->n_initializers; i++)
    builder->notes[i].eval_value = remap(map, builder->notes[i].eval_value);
  model->eval_loss_sum = remap(map, model->eval_loss_sum);
  model->eval_correct = remap(map, model->eval_correct);
  free(map);
  free(roots);
}

static void prune_graphs(struct model_builder *builder) {
  prune_train(builder);
  prune_eval(builder);
}

static int check_finite(const struct value *value, struct err *err) {
  const float *data = value->data;
  for (int64_t i = 0; i < shape_elems(&value->shape); i++)
    if (!isfinite(data[i]))
      return err_set(err, ERR_INVALID, "initializer '%s': element %lld is %g, weights must be finite",
                     value->name, (long long)i, (double)data[i]);
  return 0;
}

static int list_params(struct model_builder *builder, struct err *err) {
  struct model *model = builder->model;
  struct graph *train = model->train;
  model->params = arena_new(&train->arena, (size_t)model->n_initializers * sizeof *model->params);
  for (int i = 0; i < model->n_initializers; i++) {
    const struct initializer_note *note = &builder->notes[i];
    struct value *value;
    if (note->grad < 0)
      continue;
    value = &train->values[note->train_value];
    if (check_finite(value, err))
      return err->code;
    value->param = model->initializers[i].param = model->n_params;
    if (note->eval_value >= 0)
      model->eval->values[note->eval_value].param = model->n_params;
    model->params[model->n_params++] = (struct param){.name = value->name,
                                                      .shape = value->shape,
                                                      .begin = model->param_elems,
                                                      .elems = (uint64_t)shape_elems(&value->shape),
                                                      .train_value = note->train_value,
                                                      .eval_value = note->eval_value,
                                                      .grad = note->grad};
    model->param_elems += (uint64_t)shape_elems(&value->shape);
  }
  if (model->n_params == 0)
    return err_set(err, ERR_INVALID,
                   "nothing to train: no f32 initializer that is not frozen leads to the loss");
  return 0;
}

static int list_statistics(struct model_builder *builder, struct err *err) {
  struct model *model = builder->model;
  model->statistics =
      arena_new(&model->train->arena, (size_t)model->n_initializers * sizeof *model->statistics);
  model->row_elems = METRICS;
  for (int i = 0; i < model->n_initializers; i++) {
    const struct initializer_note *note = &builder->notes[i];
    struct value *value;
    if (note->batch_value < 0)
      continue;
    value = &model->eval->values[note->eval_value];
    if (check_finite(value, err))
      return err->code;
    value->statistic = model->initializers[i].statistic = model->n_statistics;
    model->statistics[model->n_statistics++] =
        (struct statistic){.name = value->name,
                           .shape = value->shape,
                           .begin = model->row_elems,
                           .elems = (uint64_t)shape_elems(&value->shape),
                           .momentum = note->momentum,
                           .initial = value->data,
                           .batch_value = note->batch_value,
                           .eval_value = note->eval_value};
    model->row_elems += (uint64_t)shape_elems(&value->shape);
  }
  return 0;
}
