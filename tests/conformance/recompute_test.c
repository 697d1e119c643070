/* Train graphs of models and graphs drawn by chance, whose forward nodes are computed again so that a program
   takes less memory: loss, statistics and gradients keep their bits, and no program takes more than without
   it. By default on the built-in backends. usage: recompute_test [BACKEND] [fp32 | tf32 | bf16] */
#include "common/agree/float_setting.h"
#include "common/agree/random.h"
#include "model/graph/autodiff.h"
#include "model/model.h"
#include "tests/conformance/harness.h"
#include "tests/support/model/model_bytes.h"

enum { SAMPLES = 6, RUNS = 3, SEEDS = 40, NODES = 24, INPUTS_MAX = 64, WORDS_MAX = 14 };

/* What is executed: a graph, its inputs and what is read of it. */
struct subject {
  struct graph *graph;
  struct model *model; /* whose graph it is; NULL */
  void *inputs[INPUTS_MAX];
  int *watched, n_watched, watched_capacity;
};

/* What a program gave: once enqueued, once captured and once replayed, where a device does so; each execution
   draws others. */
struct result {
  struct outcome outcomes[RUNS];
  size_t size_bytes;
};

static void subject_watch(struct subject *subject, int value) {
  if (value < 0)
    return;
  array_reserve((void **)&subject->watched, &subject->watched_capacity, subject->n_watched,
                sizeof *subject->watched);
  subject->watched[subject->n_watched++] = value;
}

/* Reals in [-1, 1); whole numbers below 4, which is less than any number of classes, rows and tokens here. */
static void subject_feed(struct subject *subject) {
  const struct graph *graph = subject->graph;
  CHECK(graph->n_inputs <= INPUTS_MAX);
  for (int i = 0; i < graph->n_inputs; i++) {
    const struct value *value = &graph->values[graph->inputs[i]];
    int64_t elems = shape_elems(&value->shape);
    subject->inputs[i] = mem_new((size_t)elems * dtype_size(value->dtype) + 1);
    for (int64_t e = 0; e < elems; e++) {
      double drawn = random_uniform(random_key(11, (uint64_t)i, 0, 0), (uint64_t)e);
      if (value->dtype == DTYPE_F32)
        ((float *)subject->inputs[i])[e] = (float)(2 * drawn - 1);
      else if (value->dtype == DTYPE_I64)
        ((int64_t *)subject->inputs[i])[e] = (int64_t)(4 * drawn);
    }
  }
}

static void subject_fini(struct subject *subject) {
  for (int i = 0; i < subject->graph->n_inputs; i++)
    free(subject->inputs[i]);
  free(subject->watched);
  if (subject->model)
    model_close(subject->model);
  else
    graph_free(subject->graph);
}

#define MODEL_KIND(name) extern const struct model_kind_def model_kind_##name;
#include "client/models/model_kind.def"
#undef MODEL_KIND

static const struct model_row {
  const char *name;
  const struct model_kind_def *kind;
  const char *options[WORDS_MAX];
  bool is_small; /* weights and their gradients are most of it */
} model_rows[] = {
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
};

static void subject_of_model(struct subject *subject, const struct model_row *row) {
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
  const struct model *model = subject->model;
  subject->graph = model->train;
  const int metrics[] = {model->train_loss.loss_sum, model->train_loss.correct, model->train_loss.scored,
                         model->train_loss.denominator};
  for (int m = 0; m < 4; m++)
    subject_watch(subject, metrics[m]);
  for (int s = 0; s < model->n_statistics; s++)
    subject_watch(subject, model->statistics[s].batch_value);
  for (int p = 0; p < model->n_params; p++)
    subject_watch(subject, model->params[p].grad);
  subject_feed(subject);
}

/* A graph as it is drawn. */
struct sketch {
  struct graph *graph;
  struct shape shape; /* of most values */
  uint64_t key, drawn;
  int values[NODES + 2], n_values;
  int wanted[INPUTS_MAX], n_wanted; /* inputs whose gradients are asked for */
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

static int add_conv(struct sketch *sketch, int x) {
  int64_t channels = sketch->shape.dim[1];
  struct attr pads = {.name = "pads", .type = ATTR_INTS, .n = 4, .ints = (const int64_t[]){1, 1, 1, 1}};
  int w = add_wanted(sketch, (struct shape){4, {channels, channels, 3, 3}});
  return graph_add_node(sketch->graph, "Conv", VALUES(x, w), 1, ATTR_LIST(pads))->outputs[0];
}

static int add_norm(struct sketch *sketch, int x) {
  struct shape channels = {1, {sketch->shape.dim[1]}};
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
    return add_conv(sketch, x);
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

static void subject_of_seed(struct subject *subject, uint64_t seed) {
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
  subject_feed(subject);
}

/* x f32[steps,batch,in] -> two LSTMs, of which the second has two directions -> the last states' product. */
static void subject_of_lstm(struct subject *subject) {
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
  subject_feed(subject);
}

static void result_init(struct result *result, const struct subject *subject) {
  for (int r = 0; r < RUNS; r++)
    outcome_init(&result->outcomes[r], subject->graph, subject->watched, subject->n_watched);
}

static void result_fini(struct result *result) {
  for (int r = 0; r < RUNS; r++)
    outcome_fini(&result->outcomes[r]);
}

static int execute(const struct backend_def *backend, const struct backend_options *options,
                   const struct subject *subject, struct result *result, struct err *err) {
  struct backend_request request = {.graph = subject->graph,
                                    .watched = subject->watched,
                                    .n_watched = subject->n_watched,
                                    .options = *options};
  struct backend_program *program = NULL;
  int code = backend->prepare(&request, &program, err);
  for (int r = 0; r < RUNS && !code; r++) {
    struct feed feed = {.inputs = (const void *const *)subject->inputs, .seed = USUAL_SEED + (uint64_t)r};
    code = program_run(backend, program, &feed, &result->outcomes[r], err);
  }
  result->size_bytes = code ? 0 : backend->memory_bytes(program);
  backend->release(program);
  return code;
}

/* A way to recompute, beside the program that keeps everything. */
struct trial {
  const struct backend_def *backend;
  const struct subject *subject;
  struct backend_options options;
  const struct result *plain;
};

/* *size_bytes: what the program took. Says what differs. */
static bool trial_agrees(const struct trial *trial, const char *name, size_t *size_bytes) {
  struct result got;
  struct err err = ERR_NONE;
  result_init(&got, trial->subject);
  bool is_ok = !execute(trial->backend, &trial->options, trial->subject, &got, &err);
  if (!is_ok)
    printf("# %s: %s\n", name, err.text);
  for (int r = 0; r < RUNS && is_ok; r++)
    for (int i = 0; i < trial->subject->n_watched && is_ok; i++) {
      int value = trial->subject->watched[i];
      is_ok = memcmp(got.outcomes[r].data[i], trial->plain->outcomes[r].data[i],
                     value_size(trial->subject->graph, value)) == 0;
      if (!is_ok)
        printf("# %s: execution %d has other bits of '%s'\n", name, r,
               trial->subject->graph->values[value].name);
    }
  *size_bytes = got.size_bytes;
  result_fini(&got);
  return is_ok;
}

/* Within budgets from all that there is down to the least. */
static bool budgets_hold(struct trial *trial, size_t least_bytes, size_t most_bytes) {
  enum { BUDGETS = 4 };
  trial->options.replay = REPLAY_AUTO;
  for (int b = 0; b < BUDGETS; b++) {
    size_t budget = most_bytes - (most_bytes - least_bytes) / (BUDGETS - 1) * (size_t)b, taken;
    budget = b == BUDGETS - 1 ? least_bytes : budget;
    trial->options.most_bytes = budget;
    if (!trial_agrees(trial, "auto", &taken))
      return false;
    if (taken <= budget && (b > 0 || taken == most_bytes))
      continue;
    printf("# auto takes %zu bytes of %zu, where none takes %zu\n", taken, budget, most_bytes);
    return false;
  }
  return true;
}

/* is_smaller: something is known to be saved. */
static bool subject_agrees(const struct backend_def *backend, const struct subject *subject,
                           enum precision precision, bool is_smaller) {
  struct result plain;
  struct trial trial = {
      .backend = backend, .subject = subject, .options = {.precision = precision}, .plain = &plain};
  struct err err = ERR_NONE;
  size_t always_bytes, full_bytes;
  result_init(&plain, subject);
  bool is_ok = !execute(backend, &trial.options, subject, &plain, &err);
  if (!is_ok)
    printf("# none: %s\n", err.text);
  trial.options.replay = REPLAY_ALWAYS;
  is_ok = is_ok && trial_agrees(&trial, "always", &always_bytes);
  trial.options.replay = REPLAY_FULL;
  is_ok = is_ok && trial_agrees(&trial, "full", &full_bytes);
  if (is_ok && full_bytes > plain.size_bytes - is_smaller) {
    printf("# full takes %zu bytes, none %zu\n", full_bytes, plain.size_bytes);
    is_ok = false;
  }
  is_ok = is_ok && budgets_hold(&trial, full_bytes, plain.size_bytes);
  if (is_ok)
    printf("# %zu bytes, %zu at the least\n", plain.size_bytes, full_bytes);
  result_fini(&plain);
  return is_ok;
}

static void suite_run(const struct backend_def *backend, enum precision precision) {
  struct subject subject;
  for (size_t m = 0; m < sizeof model_rows / sizeof *model_rows; m++) {
    subject_of_model(&subject, &model_rows[m]);
    tap_result(subject_agrees(backend, &subject, precision, !model_rows[m].is_small), "%s: %s", backend->name,
               model_rows[m].name);
    subject_fini(&subject);
  }
  subject_of_lstm(&subject);
  tap_result(subject_agrees(backend, &subject, precision, true), "%s: recurrent layers", backend->name);
  subject_fini(&subject);
  for (uint64_t seed = 1; seed <= SEEDS; seed++) {
    subject_of_seed(&subject, seed);
    tap_result(subject_agrees(backend, &subject, precision, false), "%s: seed %llu", backend->name,
               (unsigned long long)seed);
    subject_fini(&subject);
  }
}

int main(int argc, char **argv) {
  float_setting_apply();
  enum precision precision = PRECISION_F32;
  const char *only = NULL;
  struct backends backends;
  struct err err = ERR_NONE;
  for (int i = 1; i < argc; i++)
    if (!precision_find(argv[i], &precision))
      only = argv[i];
  tap_init();
  if (!backends_init(&backends, only, &err))
    return suite_skip(only, &err);
  for (int b = 0; backends.at[b]; b++)
    if (backends.at[b]->replayed)
      suite_run(backends.at[b], precision);
  return tap_finish();
}
