/* Train graphs of models and graphs drawn by chance. */
#include "tests/support/model/train_subject.h"

#include <stdlib.h>

#include "common/agree/random.h"
#include "model/graph/autodiff.h"
#include "model/graph/op.h"
#include "tests/support/model/model_bytes.h"

enum { SAMPLES = 6, NODES = 24, WANTED_MAX = 64 };

static void subject_watch(struct subject *subject, int value) {
  if (value < 0)
    return;
  array_reserve((void **)&subject->watched, &subject->watched_capacity, subject->n_watched,
                sizeof *subject->watched);
  subject->watched[subject->n_watched++] = value;
}

void *const *subject_inputs_new(const struct graph *graph, uint64_t seed) {
  void **inputs = mem_new(((size_t)graph->n_inputs + 1) * sizeof *inputs);
  for (int i = 0; i < graph->n_inputs; i++) {
    const struct value *value = &graph->values[graph->inputs[i]];
    int64_t elems = shape_elems(&value->shape);
    inputs[i] = mem_new((size_t)elems * dtype_size(value->dtype) + 1);
    for (int64_t e = 0; e < elems; e++) {
      double drawn = random_uniform(random_key(seed, (uint64_t)i, 0, 0), (uint64_t)e);
      if (value->dtype == DTYPE_F32)
        ((float *)inputs[i])[e] = (float)(2 * drawn - 1);
      else if (value->dtype == DTYPE_I64)
        ((int64_t *)inputs[i])[e] = (int64_t)(4 * drawn);
    }
  }
  return inputs;
}

void subject_inputs_free(const struct graph *graph, void *const *inputs) {
  for (int i = 0; i < graph->n_inputs; i++)
    free(inputs[i]);
  free((void *)inputs);
}

float **subject_weights_new(const struct subject *subject, float factor) {
  const struct graph *graph = subject->graph;
  float **weights = mem_new(((size_t)graph->n_values + 1) * sizeof *weights);
  for (int p = 0; subject->model && p < subject->model->n_params; p++) {
    const struct param *param = &subject->model->params[p];
    int value = graph == subject->model->train ? param->train_value : param->eval_value;
    if (value < 0)
      continue;
    int64_t elems = shape_elems(&graph->values[value].shape);
    const float *own = graph->values[value].data;
    weights[value] = mem_new((size_t)elems * sizeof(float) + 1);
    for (int64_t e = 0; e < elems; e++)
      weights[value][e] = own[e] * factor;
  }
  return weights;
}

void subject_weights_free(const struct subject *subject, float **weights) {
  for (int v = 0; v < subject->graph->n_values; v++)
    free(weights[v]);
  free(weights);
}

void subject_fini(struct subject *subject) {
  free(subject->watched);
  if (subject->model)
    model_close(subject->model);
  else
    graph_free(subject->graph);
}

#define MODEL_KIND(name) extern const struct model_kind_def model_kind_##name;
#include "client/models/model_kind.def"
#undef MODEL_KIND

const struct subject_model subject_models[] = {
    {.name = "layers with norms and dropout",
     .kind = &model_kind_mlp,
     .options = {"--input", "1,6,6", "--hidden", "48,40,32,24", "--batch-norm", "--dropout", "0.3"},
     .is_small = true},
    {.name = "convolutions with norms and pooling",
     .kind = &model_kind_lenet,
     .options = {"--input", "1,20,20", "--channels", "8,16", "--hidden", "40", "--batch-norm", "--dropout",
                 "0.2"},
     .is_small = true},
    {.name = "residual blocks",
     .kind = &model_kind_resnet18,
     .options = {"--input", "3,16,16", "--width", "8", "--classes", "7"}},
    {.name = "residual blocks with bottlenecks and a large stem",
     .kind = &model_kind_resnet50,
     .options = {"--input", "3,64,64", "--width", "4", "--depth", "2,1,1,1", "--classes", "7"}},
    {.name = "depthwise convolutions",
     .kind = &model_kind_mobilenet_v2,
     .options = {"--input", "3,32,32", "--width", "0.25", "--classes", "9"}},
    {.name = "attention over patches",
     .kind = &model_kind_vit,
     .options = {"--input", "3,32,32", "--patch", "8", "--width", "32", "--heads", "4", "--depth", "3",
                 "--dropout", "0.1"}},
    {.name = "causal attention",
     .kind = &model_kind_gpt,
     .options = {"--vocabulary", "40", "--context", "24", "--width", "32", "--heads", "4", "--depth", "3"}},
    {.name = "causal attention whose weights drop",
     .kind = &model_kind_gpt,
     .options = {"--vocabulary", "40", "--context", "24", "--width", "32", "--heads", "4", "--depth", "3",
                 "--dropout", "0.1"}},
    {.name = "embeddings and their products",
     .kind = &model_kind_dlrm,
     .options = {"--tables", "50x4", "--bottom", "32,16", "--top", "24"},
     .is_small = true},
    {.name = NULL},
};

static void model_load(struct subject *subject, const struct subject_model *row) {
  struct err err = ERR_NONE;
  void *bytes;
  size_t size_bytes;
  *subject = (struct subject){0};
  if (model_bytes(&(struct model_recipe){.kind = row->kind, .options = row->options, .seed = 3}, &bytes,
                  &size_bytes, &err) ||
      model_open(&(struct model_source){.onnx = bytes, .size_bytes = size_bytes, .samples = SAMPLES},
                 &subject->model, &err))
    check_failed(err.text, __FILE__, __LINE__);
  free(bytes);
}

static void watch_loss(struct subject *subject, const struct loss_values *loss) {
  const int metrics[] = {loss->loss_sum, loss->correct, loss->scored, loss->denominator};
  for (int m = 0; m < 4; m++)
    subject_watch(subject, metrics[m]);
}

void subject_of_model(struct subject *subject, const struct subject_model *row) {
  model_load(subject, row);
  const struct model *model = subject->model;
  subject->graph = model->train;
  watch_loss(subject, &model->train_loss);
  for (int s = 0; s < model->n_statistics; s++)
    subject_watch(subject, model->statistics[s].batch_value);
  for (int p = 0; p < model->n_params; p++)
    subject_watch(subject, model->params[p].grad);
}

void subject_of_eval(struct subject *subject, const struct subject_model *row) {
  model_load(subject, row);
  subject->graph = subject->model->eval;
  watch_loss(subject, &subject->model->eval_loss);
}

/* A graph as it is drawn. */
struct sketch {
  struct graph *graph;
  struct shape shape; /* of most values */
  uint64_t key, drawn;
  int values[NODES + 2], n_values;
  int wanted[WANTED_MAX], n_wanted; /* inputs whose gradients are asked for */
};

static uint64_t draw(struct sketch *sketch, uint64_t below) {
  return random_bits(sketch->key, sketch->drawn++) % below;
}

static int add_wanted(struct sketch *sketch, struct shape shape) {
  return sketch->wanted[sketch->n_wanted++] = graph_add_input(sketch->graph, NULL, DTYPE_F32, &shape);
}

/* Mostly one of the latest, so that the graph is deep. */
static int draw_value(struct sketch *sketch) {
  uint64_t n = (uint64_t)sketch->n_values, back = draw(sketch, 4) ? 0 : draw(sketch, n);
  return sketch->values[n - 1 - back];
}

static int add_node(struct sketch *sketch, const char *op, struct value_list inputs, int n_outputs) {
  return graph_add_node(sketch->graph, op, inputs, n_outputs, ATTRS_NONE)->outputs[0];
}

static int64_t channels_of(const struct sketch *sketch, int x) {
  return sketch->graph->values[x].shape.dim[1];
}

static int add_conv(struct sketch *sketch, int x, int64_t channels) {
  struct attr pads = {.name = "pads", .type = ATTR_INTS, .n = 4, .ints = (const int64_t[]){1, 1, 1, 1}};
  int w = add_wanted(sketch, (struct shape){4, {channels, channels_of(sketch, x), 3, 3}});
  return graph_add_node(sketch->graph, "Conv", VALUES(x, w), 1, ATTR_LIST(pads))->outputs[0];
}

static int add_norm(struct sketch *sketch, int x) {
  struct shape channels = {1, {channels_of(sketch, x)}};
  int scale = add_wanted(sketch, channels), bias = add_wanted(sketch, channels);
  return add_node(sketch, "BatchNormTraining", VALUES(x, scale, bias), 4);
}

/* Rows of the image times a matrix, as one tall product. */
static int add_product(struct sketch *sketch, int x) {
  int64_t width = sketch->shape.dim[3];
  return add_node(sketch, "MatMul", VALUES(x, add_wanted(sketch, (struct shape){2, {width, width}})), 1);
}

/* Over windows of 3 x 3 that overlap. */
static int add_pool(struct sketch *sketch, int x) {
  const struct attr attrs[] = {
      {.name = "kernel_shape", .type = ATTR_INTS, .n = 2, .ints = (const int64_t[]){3, 3}},
      {.name = "pads", .type = ATTR_INTS, .n = 4, .ints = (const int64_t[]){1, 1, 1, 1}}};
  return graph_add_node(sketch->graph, "MaxPool", VALUES(x), 1, (struct attr_list){attrs, 2})->outputs[0];
}

static int add_dropout(struct sketch *sketch, int x) {
  int ratio = graph_add_constant_f32(sketch->graph, 0.25f);
  return add_node(sketch, "Dropout", VALUES(x, ratio), 1 + (int)draw(sketch, 2));
}

static int add_one(struct sketch *sketch) {
  static const char *const unary[] = {"Relu", "Tanh", "Sigmoid", "Softplus", "Identity", "Neg"};
  int x = draw_value(sketch);
  switch (draw(sketch, 10)) {
  case 0:
    return add_conv(sketch, x, channels_of(sketch, x));
  case 1:
    return add_norm(sketch, x);
  case 2:
    return add_product(sketch, x);
  case 3:
    return add_pool(sketch, x);
  case 4:
    return add_dropout(sketch, x);
  case 5:
    return add_node(sketch, "Mul", VALUES(x, draw_value(sketch)), 1);
  case 6:
    return add_node(sketch, "Add", VALUES(x, draw_value(sketch)), 1);
  default:
    return add_node(sketch, unary[draw(sketch, 6)], VALUES(x), 1);
  }
}

/* The gradients of all that is wanted, of the last value. */
static void differentiate(struct sketch *sketch, struct subject *subject) {
  struct graph *graph = sketch->graph;
  int root = sketch->values[sketch->n_values - 1], n_values = graph->n_values;
  int seed = graph_add_input(graph, NULL, DTYPE_F32, &graph->values[root].shape);
  bool *wanted = mem_new((size_t)graph->n_values);
  int *grads = mem_new((size_t)graph->n_values * sizeof *grads);
  struct err err = ERR_NONE;
  for (int i = 0; i < sketch->n_wanted; i++)
    wanted[sketch->wanted[i]] = true;
  if (autodiff_run(graph,
                   &(struct derivative){.roots = &root, .seeds = &seed, .n_roots = 1, .wanted = wanted},
                   grads, &err))
    check_failed(err.text, __FILE__, __LINE__);
  for (int i = 0; i < sketch->n_wanted; i++)
    subject_watch(subject, grads[sketch->wanted[i]]);
  for (int v = 0; v < n_values; v++) /* some of what lies between, as statistics are */
    if (graph->values[v].kind == VALUE_RESULT && graph->values[v].dtype == DTYPE_F32 && draw(sketch, 12) == 0)
      subject_watch(subject, v);
  free(wanted);
  free(grads);
}

/* To what is needed for what is watched: there may be gradients of nodes that are gone. */
static void prune(struct subject *subject) {
  int *map = graph_prune(subject->graph, subject->watched, subject->n_watched);
  for (int w = 0; w < subject->n_watched; w++)
    subject->watched[w] = map[subject->watched[w]];
  free(map);
}

void subject_of_seed(struct subject *subject, uint64_t seed) {
  struct sketch sketch = {.graph = graph_new(), .key = random_key(seed, 1, 0, 0)};
  sketch.graph->opset = 17;
  sketch.graph->is_training = true;
  sketch.shape = (struct shape){
      4,
      {2 + (int64_t)draw(&sketch, 3), 4 * (1 + (int64_t)draw(&sketch, 3)), 3 + (int64_t)draw(&sketch, 6), 8}};
  sketch.values[sketch.n_values++] = add_wanted(&sketch, sketch.shape);
  for (int n = 4 + (int)draw(&sketch, NODES - 4); n > 0; n--) {
    int value = add_one(&sketch);
    sketch.values[sketch.n_values++] = value;
  }
  *subject = (struct subject){.graph = sketch.graph};
  differentiate(&sketch, subject);
  if (draw(&sketch, 2))
    prune(subject);
}

void subject_of_lstm(struct subject *subject) {
  enum { STEPS = 7, IN = 6, HIDDEN = 8 };
  struct sketch s = {.graph = graph_new(), .key = 5};
  struct attr hidden = {.name = "hidden_size", .type = ATTR_INT, .i = HIDDEN};
  struct attr both[] = {hidden, {.name = "direction", .type = ATTR_STRING, .s = "bidirectional"}};
  s.graph->opset = 17;
  s.graph->is_training = true;
  int x = add_wanted(&s, (struct shape){3, {STEPS, SAMPLES, IN}});
  const int first[] = {x, add_wanted(&s, (struct shape){3, {1, 4 * HIDDEN, IN}}),
                       add_wanted(&s, (struct shape){3, {1, 4 * HIDDEN, HIDDEN}})};
  int y = graph_add_node(s.graph, "LSTM", (struct value_list){first, 3}, 1, ATTR_LIST(hidden))->outputs[0];
  int form = graph_add_constant_i64(s.graph, (int64_t[]){STEPS, SAMPLES, HIDDEN}, 3);
  y = add_node(&s, "Tanh", VALUES(add_node(&s, "Reshape", VALUES(y, form), 1)), 1);
  const int second[] = {y, add_wanted(&s, (struct shape){3, {2, 4 * HIDDEN, HIDDEN}}),
                        add_wanted(&s, (struct shape){3, {2, 4 * HIDDEN, HIDDEN}})};
  y = graph_add_node(s.graph, "LSTM", (struct value_list){second, 3}, 2, (struct attr_list){both, 2})
          ->outputs[1];
  s.values[s.n_values++] = add_node(&s, "Mul", VALUES(y, y), 1);
  *subject = (struct subject){.graph = s.graph};
  differentiate(&s, subject);
}

static int add_level(struct sketch *sketch, int x, int64_t channels) {
  x = add_norm(sketch, add_conv(sketch, x, channels));
  return add_node(sketch, "Relu", VALUES(x), 1);
}

/* To half the size, or by a product with weights to twice the size. */
static int add_down(struct sketch *sketch, int x) {
  static const int64_t two[] = {2, 2};
  const struct attr attrs[] = {{.name = "kernel_shape", .type = ATTR_INTS, .n = 2, .ints = two},
                               {.name = "strides", .type = ATTR_INTS, .n = 2, .ints = two}};
  return graph_add_node(sketch->graph, "MaxPool", VALUES(x), 1, (struct attr_list){attrs, 2})->outputs[0];
}

static int add_up(struct sketch *sketch, int x, int64_t channels) {
  struct attr strides = {.name = "strides", .type = ATTR_INTS, .n = 2, .ints = (const int64_t[]){2, 2}};
  int w = add_wanted(sketch, (struct shape){4, {channels_of(sketch, x), channels, 2, 2}});
  return graph_add_node(sketch->graph, "ConvTranspose", VALUES(x, w), 1, ATTR_LIST(strides))->outputs[0];
}

static int add_beside(struct sketch *sketch, int x, int y) {
  struct attr axis = {.name = "axis", .type = ATTR_INT, .i = 1};
  return graph_add_node(sketch->graph, "Concat", VALUES(x, y), 1, ATTR_LIST(axis))->outputs[0];
}

void subject_of_unet(struct subject *subject) {
  struct sketch s = {.graph = graph_new(), .key = 9};
  s.graph->opset = 17;
  s.graph->is_training = true;
  int x = add_wanted(&s, (struct shape){4, {SAMPLES, 3, 16, 16}});
  int wide = add_level(&s, x, 8), middle = add_level(&s, add_down(&s, wide), 16);
  x = add_level(&s, add_down(&s, middle), 16);
  x = add_level(&s, add_beside(&s, add_up(&s, x, 16), middle), 16);
  x = add_level(&s, add_beside(&s, add_up(&s, x, 8), wide), 8);
  x = add_conv(&s, x, 4);
  s.values[s.n_values++] = add_node(&s, "Mul", VALUES(x, x), 1);
  *subject = (struct subject){.graph = s.graph};
  differentiate(&s, subject);
}
