/* The hot loops of workers and servers, for counting their instructions: `valgrind --tool=callgrind
   loops_bench`. Each loop is run once, and once more counted; callgrind then writes a file of its own, which
   has the loop's name. On stdout come the same names in the same order, each with how many elements its loop
   treats. The processor that valgrind emulates has AVX2, so the counts are those of that form of each loop.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <valgrind/callgrind.h>

#include "client/models/model_kind.h"
#include "common/agree/float_setting.h"
#include "common/agree/random.h"
#include "common/agree/spec.h"
#include "common/agree/sum.h"
#include "common/base/hash.h"
#include "common/compress/compressor.h"
#include "common/optim/optimizer.h"
#include "model/graph/autodiff.h"
#include "model/model.h"
#include "tests/support/model/model_bytes.h"
#include "worker/backend/backend.h"

enum { ELEMS = 16384, SLOTS_MAX = 4, INPUTS_MAX = 4, VALUES_MAX = 256, KEY = 5 };

/* valgrind has no flushing of subnormals, which these say is on: no number here is subnormal. */
void float_setting_apply(void) {
}

bool float_setting_holds(void) {
  return true;
}

void float_setting_require(const char *thread) {
  (void)thread;
}

int float_setting_check(const char *culprit, struct err *err) {
  (void)culprit;
  (void)err;
  return ERR_OK;
}

static float a[ELEMS], b[ELEMS], out[ELEMS], slots[SLOTS_MAX * ELEMS];
static unsigned char bytes[ELEMS * sizeof(float)];

static void die(const char *what) {
  fprintf(stderr, "loops_bench: %s\n", what);
  exit(1);
}

static void fill(float *values, size_t elems, uint64_t key) {
  for (size_t i = 0; i < elems; i++)
    values[i] = 2 * random_uniform(key, i) - 1;
}

static void count(const char *name, size_t elems, void (*run)(const void *), const void *user) {
  run(user);
  CALLGRIND_ZERO_STATS;
  run(user);
  CALLGRIND_DUMP_STATS_AT(name);
  printf("%s %zu\n", name, elems);
}

static void run_sum(const void *user) {
  (void)user;
  CHECK(sum_add(out, a, ELEMS));
}

static void run_copy(const void *user) {
  (void)user;
  CHECK(sum_copy(out, a, ELEMS));
}

static void run_draws(const void *user) {
  (void)user;
  random_uniforms(KEY, 0, out, ELEMS);
}

static void run_hash(const void *user) {
  (void)user;
  CHECK(hash_bytes(a, sizeof a) != 0);
}

static void run_update(const void *user) {
  const Weir__OptimizerSpec *spec = user;
  struct optimizer_update update = {.step = 3,
                                    .lr = 1e-3,
                                    .elems = ELEMS,
                                    .weights = a,
                                    .grad = b,
                                    .out = out,
                                    .slots = slots,
                                    .next_slots = slots};
  optimizer_find(spec->name)->update(spec, &update);
}

static void count_update(const char *name, const char *options) {
  struct err err = ERR_NONE;
  char *text = mem_printf("train: {optimizer: %s}", options);
  Weir__RunSpec *spec;
  if (spec_read("options", text, strlen(text), &spec, &err) || optimizer_settle(spec->train->optimizer, &err))
    die(err.text);
  memset(slots, 0, sizeof slots);
  CHECK(optimizer_find(spec->train->optimizer->name)->slots(spec->train->optimizer) <= SLOTS_MAX);
  count(name, ELEMS, run_update, spec->train->optimizer);
  spec_free(spec);
  free(text);
}

/* As it is done for gradients. */
static void run_encode(const void *user) {
  const struct compressor_def *compressor = user;
  if (compressor->has_feedback)
    compressor_encode_with_feedback(compressor, KEY, memcpy(out, a, sizeof out), slots, ELEMS);
  else
    compressor_encode(compressor, KEY, a, ELEMS, bytes);
}

static void run_decode(const void *user) {
  struct err err = ERR_NONE;
  if (compressor_decode(user, bytes, ELEMS, out, &err))
    die(err.text);
}

static void count_compressor(const struct compressor_def *compressor) {
  char name[64];
  snprintf(name, sizeof name, "encode-%s", compressor->name);
  memset(slots, 0, sizeof slots); /* the residual */
  count(name, ELEMS, run_encode, compressor);
  compressor_encode(compressor, KEY, a, ELEMS, bytes);
  snprintf(name, sizeof name, "decode-%s", compressor->name);
  count(name, ELEMS, run_decode, compressor);
}

/* Something that a worker computes: a program of the cpu backend. */
struct computing {
  const struct graph *graph;
  struct backend_program *program;
  const void *inputs[VALUES_MAX];
  int watched[VALUES_MAX], n_watched;
};

static void run_program(const void *user) {
  const struct computing *computing = user;
  static uint64_t version;
  struct backend_run run = {.inputs = computing->inputs, .weights_version = ++version};
  struct err err = ERR_NONE;
  if (backend_find("cpu")->run(computing->program, &run, &err))
    die(err.text);
}

/* Reals are drawn; whole numbers are 0, which is an index of every table. */
static void computing_feed(struct computing *computing) {
  for (int i = 0; i < computing->graph->n_inputs; i++) {
    const struct value *value = &computing->graph->values[computing->graph->inputs[i]];
    size_t elems = (size_t)shape_elems(&value->shape);
    void *data = mem_new(elems * dtype_size(value->dtype));
    if (value->dtype == DTYPE_F32)
      fill(data, elems, (uint64_t)i);
    computing->inputs[i] = data;
  }
}

static void computing_count(struct computing *computing, const char *name, size_t elems,
                            enum precision precision) {
  const struct backend_def *cpu = backend_find("cpu");
  struct backend_request request = {.graph = computing->graph,
                                    .watched = computing->watched,
                                    .n_watched = computing->n_watched,
                                    .options = {.precision = precision}};
  struct err err = ERR_NONE;
  CHECK(computing->graph->n_inputs <= VALUES_MAX && computing->n_watched <= VALUES_MAX);
  if (cpu->prepare(&request, &computing->program, &err))
    die(err.text);
  computing_feed(computing);
  count(name, elems, run_program, computing);
  cpu->release(computing->program);
  for (int i = 0; i < computing->graph->n_inputs; i++)
    free((void *)computing->inputs[i]);
}

/* An op, forward and with the gradients of all its inputs. */
struct op_loop {
  const char *name, *op;
  int n_inputs, n_outputs;
  struct shape shapes[INPUTS_MAX]; /* of the inputs; the first one's elements are those that are counted by */
  struct attr_list attrs;
};

#define SHAPE(...)                                                                                           \
  {                                                                                                          \
    sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t), {                                              \
      __VA_ARGS__                                                                                            \
    }                                                                                                        \
  }
#define IMAGES SHAPE(2, 16, 16, 16)
#define ROWS SHAPE(64, 128)
#define VECTOR(n) SHAPE(n)

static const struct attr square_attrs[] = {
    {.name = "kernel_shape", .type = ATTR_INTS, .n = 2, .ints = (const int64_t[]){3, 3}},
    {.name = "pads", .type = ATTR_INTS, .n = 4, .ints = (const int64_t[]){1, 1, 1, 1}},
    {.name = "group", .type = ATTR_INT, .i = 1}};
static const struct attr depthwise_attrs[] = {
    {.name = "kernel_shape", .type = ATTR_INTS, .n = 2, .ints = (const int64_t[]){3, 3}},
    {.name = "pads", .type = ATTR_INTS, .n = 4, .ints = (const int64_t[]){1, 1, 1, 1}},
    {.name = "group", .type = ATTR_INT, .i = 16}};
static const struct attr pool_attrs[] = {
    {.name = "kernel_shape", .type = ATTR_INTS, .n = 2, .ints = (const int64_t[]){2, 2}},
    {.name = "strides", .type = ATTR_INTS, .n = 2, .ints = (const int64_t[]){2, 2}}};
static const struct attr turn_attrs[] = {
    {.name = "perm", .type = ATTR_INTS, .n = 4, .ints = (const int64_t[]){0, 2, 3, 1}}};

static const struct op_loop op_loops[] = {
    {"relu", "Relu", 1, 1, {ROWS}, {NULL, 0}},
    {"tanh", "Tanh", 1, 1, {ROWS}, {NULL, 0}},
    {"sigmoid", "Sigmoid", 1, 1, {ROWS}, {NULL, 0}},
    {"gelu", "Gelu", 1, 1, {ROWS}, {NULL, 0}},
    {"exp", "Exp", 1, 1, {ROWS}, {NULL, 0}},
    {"add", "Add", 2, 1, {ROWS, ROWS}, {NULL, 0}},
    {"mul", "Mul", 2, 1, {ROWS, ROWS}, {NULL, 0}},
    {"softmax", "Softmax", 1, 1, {ROWS}, {NULL, 0}},
    {"log-softmax", "LogSoftmax", 1, 1, {ROWS}, {NULL, 0}},
    {"layer-norm", "LayerNormalization", 3, 1, {ROWS, VECTOR(128), VECTOR(128)}, {NULL, 0}},
    {"batch-norm", "BatchNormTraining", 3, 4, {IMAGES, VECTOR(16), VECTOR(16)}, {NULL, 0}},
    {"max-pool", "MaxPool", 1, 1, {IMAGES}, {pool_attrs, 2}},
    {"average-pool", "AveragePool", 1, 1, {IMAGES}, {pool_attrs, 2}},
    {"global-average-pool", "GlobalAveragePool", 1, 1, {IMAGES}, {NULL, 0}},
    {"transpose", "Transpose", 1, 1, {IMAGES}, {turn_attrs, 1}},
    {"matmul", "MatMul", 2, 1, {ROWS, SHAPE(128, 64)}, {NULL, 0}},
    {"conv", "Conv", 2, 1, {IMAGES, SHAPE(16, 16, 3, 3)}, {square_attrs, 3}},
    {"conv-depthwise", "Conv", 2, 1, {IMAGES, SHAPE(16, 1, 3, 3)}, {depthwise_attrs, 3}},
};

static void op_differentiate(struct graph *graph, struct computing *computing, int output) {
  int n_inputs = graph->n_inputs, grads[VALUES_MAX];
  bool wanted[VALUES_MAX] = {false};
  struct err err = ERR_NONE;
  for (int i = 0; i < n_inputs; i++)
    wanted[graph->inputs[i]] = true;
  int seed = graph_add_input(graph, NULL, DTYPE_F32, &graph->values[output].shape);
  if (autodiff_run(graph,
                   &(struct derivative){.roots = &output, .seeds = &seed, .n_roots = 1, .wanted = wanted},
                   grads, &err))
    die(err.text);
  for (int i = 0; i < n_inputs; i++)
    computing->watched[computing->n_watched++] = grads[graph->inputs[i]];
}

static void count_op(const struct op_loop *loop) {
  struct graph *graph = graph_new();
  struct computing computing = {.graph = graph};
  int inputs[INPUTS_MAX], output;
  graph->opset = 20;
  graph->is_training = true;
  for (int i = 0; i < loop->n_inputs; i++)
    inputs[i] = graph_add_input(graph, NULL, DTYPE_F32, &loop->shapes[i]);
  output = graph_add_node(graph, loop->op, (struct value_list){inputs, loop->n_inputs}, loop->n_outputs,
                          loop->attrs)
               ->outputs[0];
  computing.watched[computing.n_watched++] = output;
  op_differentiate(graph, &computing, output);
  computing_count(&computing, loop->name, (size_t)shape_elems(&loop->shapes[0]), PRECISION_F32);
  graph_free(graph);
}

/* A model's whole step, by sample. */
struct model_loop {
  const char *name;
  const struct model_kind_def *kind;
  const char *options[12];
  int samples;
};

extern const struct model_kind_def model_kind_lenet, model_kind_mobilenet_v2, model_kind_gpt;

static const struct model_loop model_loops[] = {
    {"lenet", &model_kind_lenet, {"--input", "1,28,28", "--classes", "10"}, 4},
    {"mobilenet_v2",
     &model_kind_mobilenet_v2,
     {"--input", "3,32,32", "--classes", "10", "--width", "0.25"},
     2},
    {"gpt",
     &model_kind_gpt,
     {"--vocabulary", "64", "--context", "32", "--depth", "2", "--heads", "2", "--width", "64"},
     2},
};

static void count_model(const struct model_loop *loop) {
  struct model_recipe recipe = {.kind = loop->kind, .options = loop->options, .seed = 1};
  Weir__ModelSpec model_spec = WEIR__MODEL_SPEC__INIT;
  Weir__RunSpec spec = WEIR__RUN_SPEC__INIT;
  struct computing computing = {.n_watched = 1};
  struct model *model;
  struct err err = ERR_NONE;
  size_t size_bytes;
  void *file;
  model_spec.loss = (char *)"cross_entropy";
  spec.model = &model_spec;
  if (model_bytes(&recipe, &file, &size_bytes, &err) ||
      model_open(
          &(struct model_source){
              .onnx = file, .size_bytes = size_bytes, .spec = &spec, .samples = loop->samples},
          &model, &err))
    die(err.text);
  computing.graph = model->train;
  computing.watched[0] = model->train_loss.loss_sum;
  for (int p = 0; p < model->n_params && p < VALUES_MAX - 1; p++)
    computing.watched[computing.n_watched++] = model->params[p].grad;
  computing_count(&computing, loop->name, (size_t)loop->samples, PRECISION_F32);
  model_close(model);
  free(file);
}

int main(void) {
  if (!RUNNING_ON_VALGRIND) {
    fprintf(stderr, "usage: valgrind --tool=callgrind loops_bench\n");
    return 2;
  }
  fill(a, ELEMS, 1);
  fill(b, ELEMS, 2);
  count("sum", ELEMS, run_sum, NULL);
  count("copy", ELEMS, run_copy, NULL);
  count("draws", ELEMS, run_draws, NULL);
  count("hash", ELEMS, run_hash, NULL);
  count_update("sgd", "{name: sgd, momentum: 0.9}");
  count_update("adam", "{name: adam}");
  count_update("adamw", "{name: adamw}");
  count_update("adagrad", "{name: adagrad}");
  count_update("lion", "{name: lion}");
  for (int i = 0; compressor_at(i); i++)
    count_compressor(compressor_at(i));
  for (size_t i = 0; i < sizeof op_loops / sizeof *op_loops; i++)
    count_op(&op_loops[i]);
  for (size_t i = 0; i < sizeof model_loops / sizeof *model_loops; i++)
    count_model(&model_loops[i]);
  return 0;
}
