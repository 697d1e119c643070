/* The model of a run: from an ONNX file and a spec to train and eval graph, parameters and statistics. */
#include "model/model.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "model/fusions/fuse.h"
#include "model/graph/autodiff.h"
#include "model/model_parts.h"

static int note_initializers(struct model_builder *builder, struct err *err);
static void keep_output(struct model_builder *builder);
static int make_graphs(struct model_builder *builder, struct err *err);
static int loss_differentiate(struct model_builder *builder, struct err *err);
static void prune_graphs(struct model_builder *builder);
static int list_params(struct model_builder *builder, struct err *err);
static int list_statistics(struct model_builder *builder, struct err *err);

/* An export of a fixed batch often computes with that number, and so with no other. */
static int explain_batch(const struct model_builder *builder, struct err *err) {
  int64_t file_batch = builder->model->train->file_batch;
  if (file_batch == 0 || file_batch == builder->microbatch_samples)
    return err->code;
  return err_append(
      err,
      " (the file was exported for a batch of %lld, and this is a microbatch of %lld: export it "
      "with a dynamic batch, or choose train.batch and train.microbatches so that a microbatch "
      "has %lld samples)",
      (long long)file_batch, (long long)builder->microbatch_samples, (long long)file_batch);
}

static int model_build(struct model_builder *builder, struct err *err) {
  if (model_find_loss(builder, err) || note_initializers(builder, err))
    return err->code;
  keep_output(builder);
  model_note_constants(builder);
  if (model_columns(builder, err))
    return err->code;
  if (make_graphs(builder, err) || model_attach_losses(builder, err))
    return explain_batch(builder, err);
  if (loss_differentiate(builder, err))
    return err->code;
  prune_graphs(builder);
  if (list_params(builder, err) || model_freeze_rows(builder, err) || model_check_groups(builder, err) ||
      list_statistics(builder, err))
    return err->code;
  model_cut_blocks(builder->model);
  return 0;
}

/* What a key goes by is what an evaluation says: accuracy without being asked where there are classes. */
static int check_evaluated(const struct model *model, const Weir__RunSpec *spec, const char *key,
                           const char *name, struct err *err) {
  if (!name || strcmp(name, "accuracy") != 0 || model->labels.classes > 0)
    return 0;
  for (int m = 0; m < model->metrics.n; m++)
    if (strcmp(model->metrics.items[m]->name, name) == 0)
      return 0;
  return err_set(err, ERR_INVALID, "%s: the loss '%s' has no classes and so no accuracy; use loss", key,
                 spec->model->loss);
}

static int check_named(const struct model *model, const Weir__RunSpec *spec, struct err *err) {
  const Weir__EarlyStoppingSpec *stopping = spec && spec->train ? spec->train->early_stopping : NULL;
  const char *best = spec && spec->checkpoint ? spec->checkpoint->keep_best : NULL;
  if (check_evaluated(model, spec, "checkpoint.keep_best", best, err))
    return err->code;
  return check_evaluated(model, spec, "train.early_stopping.metric", stopping ? stopping->metric : NULL, err);
}

int model_open(const struct model_source *source, struct model **out, struct err *err) {
  const Weir__RunSpec *spec = source->spec;
  struct model_builder builder = {.spec = spec ? spec->model : NULL,
                                  .mixer = model_find_mixer(spec),
                                  .optimizer = spec && spec->train ? spec->train->optimizer : NULL,
                                  .eval = spec ? spec->eval : NULL,
                                  .microbatch_samples = source->samples};
  int code;
  *out = NULL;
  if (source->samples < 1)
    return err_set(err, ERR_INVALID, "train.batch: a microbatch needs at least one sample");
  builder.model = mem_new(sizeof *builder.model);
  code = graph_load_onnx(source->onnx, source->size_bytes, &builder.model->train, err);
  if (!code)
    code = model_build(&builder, err);
  if (!code)
    code = check_named(builder.model, spec, err);
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

static int params_freeze(struct model_builder *builder, const char *pattern, struct err *err) {
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
    if (params_freeze(builder, builder->spec->frozen[f], err))
      return err->code;
  model_assign_groups(builder);
  return 0;
}

/* What does not lead to the output is not trained: it leaves the graph. */
static void keep_output(struct model_builder *builder) {
  struct model *model = builder->model;
  struct graph *graph = model->train;
  int *map;
  graph->outputs[0] = graph->outputs[builder->output];
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

static bool is_trainable(const struct graph *graph, const struct initializer_note *note) {
  const struct value *value = note->train_value >= 0 ? &graph->values[note->train_value] : NULL;
  return value && value->dtype == DTYPE_F32 && shape_elems(&value->shape) > 0 && !note->is_frozen &&
         !note->is_fixed && !note->is_constant && note->batch_value < 0;
}

/* One microbatch gives a sum; the step's loss is the mean. */
static int loss_differentiate(struct model_builder *builder, struct err *err) {
  struct model *model = builder->model;
  struct graph *graph = model->train;
  bool *wanted = mem_new((size_t)graph->n_values);
  int *grads = mem_new((size_t)graph->n_values * sizeof *grads);
  int code;
  for (int i = 0; i < model->n_initializers; i++)
    if (is_trainable(graph, &builder->notes[i]))
      wanted[builder->notes[i].train_value] = true;
  code = autodiff_run(
      graph,
      &(struct derivative){
          .roots = &model->train_loss.loss_sum, .seeds = &builder->scale, .n_roots = 1, .wanted = wanted},
      grads, err);
  for (int i = 0; i < model->n_initializers && !code; i++)
    if (is_trainable(graph, &builder->notes[i]))
      builder->notes[i].grad = grads[builder->notes[i].train_value];
  free(wanted);
  free(grads);
  return code;
}

static int values_remap(const int *map, int value) {
  return value >= 0 ? map[value] : -1;
}

/* The loss's values and the fed inputs are needed. Returns how many roots that makes. */
static int list_roots(const struct graph *graph, const struct loss_values *loss, int *roots) {
  int n = 0;
  roots[n++] = loss->loss_sum;
  roots[n++] = loss->correct;
  roots[n++] = loss->scored;
  roots[n++] = loss->denominator;
  for (int i = 0; i < graph->n_inputs; i++)
    roots[n++] = graph->inputs[i];
  return n;
}

static void remap_loss(const int *map, struct loss_values *loss) {
  *loss = (struct loss_values){values_remap(map, loss->loss_sum), values_remap(map, loss->correct),
                               values_remap(map, loss->scored), values_remap(map, loss->denominator)};
}

static void prune_train(struct model_builder *builder) {
  struct model *model = builder->model;
  struct graph *graph = model->train;
  int *roots = mem_new((size_t)(4 + graph->n_inputs + 2 * model->n_initializers) * sizeof *roots), *map;
  int n = list_roots(graph, &model->train_loss, roots);
  for (int i = 0; i < model->n_initializers; i++) {
    roots[n++] = builder->notes[i].grad;
    roots[n++] = builder->notes[i].batch_value;
  }
  map = graph_prune(graph, roots, n);
  for (int i = 0; i < model->n_initializers; i++) {
    struct initializer_note *note = &builder->notes[i];
    note->train_value = values_remap(map, note->train_value);
    note->grad = values_remap(map, note->grad);
    note->batch_value = values_remap(map, note->batch_value);
  }
  remap_loss(map, &model->train_loss);
  free(map);
  free(roots);
}

static void prune_eval(struct model_builder *builder) {
  struct model *model = builder->model;
  struct graph *graph = model->eval;
  int *roots = mem_new((size_t)(5 + graph->n_inputs) * sizeof *roots), *map;
  int n = list_roots(graph, &model->eval_loss, roots);
  roots[n++] = model->eval_output;
  map = graph_prune(graph, roots, n);
  for (int i = 0; i < model->n_initializers; i++)
    builder->notes[i].eval_value = values_remap(map, builder->notes[i].eval_value);
  remap_loss(map, &model->eval_loss);
  model->eval_output = values_remap(map, model->eval_output);
  free(map);
  free(roots);
}

static void prune_graphs(struct model_builder *builder) {
  prune_train(builder);
  prune_eval(builder);
}

/* Of what is in pieces, model_initial_check. */
static int check_finite(const struct value *value, struct err *err) {
  return value->data
             ? model_check_finite(value->name, value->data, 0, (uint64_t)shape_elems(&value->shape), err)
             : 0;
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
                                                      .group = note->group,
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
