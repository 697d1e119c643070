/* Graphs of elementwise nodes drawn by chance, on the cuda backend and on ref: what is fused into one launch,
   and how operands, registers, outputs and bytes written over are shared out, does not show in the results.
   Without the word cuda it is the simulated device that executes them.
   usage: chain_test [cuda] [SEED | FIRST..LAST] */
#include <stdlib.h>

#include "common/agree/float_setting.h"
#include "common/agree/random.h"
#include "tests/conformance/harness.h"

enum { SEEDS = 60, NODES = 45, VALUES_MAX = NODES + 16, WATCHED_MAX = 64 };

static const struct tolerance f32_tolerance = {.relative = 1e-4, .absolute = 1e-5};
/* Activations of up to 45 nodes in turn, each rounded to 8 bits. */
static const struct tolerance bf16_tolerance = {.relative = 0.06, .absolute = 0.06};

struct trial {
  uint64_t key, drawn;
  struct graph *graph;
  struct shape shape;                       /* of all nodes */
  int whole[VALUES_MAX], n_whole;           /* values of that shape */
  int partial[16], n_partial;               /* those that broadcast to it */
  int conditions[VALUES_MAX], n_conditions; /* bools */
  const void *data[32];
  int watched[WATCHED_MAX], n_watched;
};

static uint64_t draw(struct trial *trial, uint64_t below) {
  return random_bits(trial->key, trial->drawn++) % below;
}

static int add_input(struct trial *trial, enum dtype dtype, const struct shape *shape) {
  int64_t elems = shape_elems(shape);
  void *data = mem_new((size_t)elems * dtype_size(dtype) + 1);
  for (int64_t i = 0; i < elems; i++)
    if (dtype == DTYPE_BOOL)
      ((uint8_t *)data)[i] = draw(trial, 2) != 0;
    else
      ((float *)data)[i] = (float)draw(trial, 2001) / 1000.0f - 1.0f;
  trial->data[trial->graph->n_inputs] = data;
  return graph_add_input(trial->graph, NULL, dtype, shape);
}

/* The shape with some dimensions of 1, or without its first. */
static struct shape draw_partial(struct trial *trial) {
  struct shape shape = trial->shape;
  for (int d = 0; d < shape.rank; d++)
    if (draw(trial, 2))
      shape.dim[d] = 1;
  for (uint64_t drop = draw(trial, 2) ? draw(trial, (uint64_t)shape.rank + 1) : 0; drop > 0; drop--) {
    memmove(shape.dim, shape.dim + 1, (size_t)(shape.rank - 1) * sizeof shape.dim[0]);
    shape.rank--;
  }
  return shape;
}

static void add_inputs(struct trial *trial) {
  trial->shape.rank = 1 + (int)draw(trial, 4);
  for (int d = 0; d < trial->shape.rank; d++)
    trial->shape.dim[d] = draw(trial, 2) ? 4 * (1 + (int64_t)draw(trial, 3)) : 1 + (int64_t)draw(trial, 9);
  for (int i = 0; i < 3; i++)
    trial->whole[trial->n_whole++] = add_input(trial, DTYPE_F32, &trial->shape);
  for (int i = 0; i < 6; i++) {
    struct shape shape = draw_partial(trial);
    trial->partial[trial->n_partial++] = add_input(trial, DTYPE_F32, &shape);
  }
  for (int i = 0; i < 2; i++)
    trial->partial[trial->n_partial++] =
        graph_add_constant_f32(trial->graph, (float)draw(trial, 200) / 100.0f - 1.0f);
  trial->conditions[trial->n_conditions++] = add_input(trial, DTYPE_BOOL, &trial->shape);
}

/* A value of the whole shape: mostly one of the latest. */
static int draw_whole(struct trial *trial) {
  uint64_t n = (uint64_t)trial->n_whole, near = n < 6 ? n : 6;
  return trial->whole[draw(trial, 3) ? n - 1 - draw(trial, near) : draw(trial, n)];
}

static int draw_any(struct trial *trial) {
  return draw(trial, 3) ? draw_whole(trial) : trial->partial[draw(trial, (uint64_t)trial->n_partial)];
}

static int add_node(struct trial *trial, const char *op, struct value_list inputs) {
  return graph_add_node(trial->graph, op, inputs, 1, ATTRS_NONE)->outputs[0];
}

/* Through a node that no chain takes, to the same shape. */
static int add_detour(struct trial *trial, int x) {
  struct shape turned = trial->shape;
  int64_t perm[RANK_MAX];
  for (int d = 0; d < turned.rank; d++)
    perm[d] = turned.rank - 1 - d;
  struct attr attr = {.name = "perm", .type = ATTR_INTS, .n = turned.rank, .ints = perm};
  int y = graph_add_node(trial->graph, "Transpose", VALUES(x), 1, ATTR_LIST(attr))->outputs[0];
  return graph_add_node(trial->graph, "Transpose", VALUES(y), 1, ATTR_LIST(attr))->outputs[0];
}

static int add_unary(struct trial *trial) {
  static const char *const ops[] = {"Relu", "Tanh", "Sigmoid", "Neg", "Abs", "Sin", "Softplus"};
  int x = draw_whole(trial);
  return draw(trial, 6) ? add_node(trial, ops[draw(trial, sizeof ops / sizeof *ops)], VALUES(x))
                        : add_detour(trial, x);
}

/* The sum and the product are kept small. */
static int add_binary(struct trial *trial) {
  static const char *const ops[] = {"Add", "Sub", "Mul", "Max", "Min"};
  int inputs[2], at = (int)draw(trial, 2), value;
  inputs[at] = draw_whole(trial);
  inputs[!at] = draw_any(trial);
  value = add_node(trial, ops[draw(trial, sizeof ops / sizeof *ops)], (struct value_list){inputs, 2});
  return draw(trial, 2) ? add_node(trial, "Tanh", VALUES(value)) : value;
}

static int add_mean(struct trial *trial) {
  int inputs[12], n = 2 + (int)draw(trial, 11);
  for (int i = 0; i < n; i++)
    inputs[i] = i == 0 ? draw_whole(trial) : draw_any(trial);
  return add_node(trial, "Mean", (struct value_list){inputs, n});
}

/* Its mask is a condition for others. */
static int add_dropout(struct trial *trial) {
  int inputs[] = {draw_whole(trial), graph_add_constant_f32(trial->graph, 0.25f)};
  struct node *node = graph_add_node(trial->graph, "Dropout", (struct value_list){inputs, 2}, 2, ATTRS_NONE);
  trial->conditions[trial->n_conditions++] = node->outputs[1];
  return node->outputs[0];
}

static int draw_condition(struct trial *trial) {
  return trial->conditions[draw(trial, (uint64_t)trial->n_conditions)];
}

/* Nothing grows, and nothing jumps that depends on rounding. */
static void add_one(struct trial *trial) {
  switch (draw(trial, 9)) {
  case 8:
    trial->whole[trial->n_whole] = add_dropout(trial);
    trial->n_whole++;
    break;
  case 0:
    trial->conditions[trial->n_conditions] =
        add_node(trial, draw(trial, 2) ? "Xor" : "And", VALUES(draw_condition(trial), draw_condition(trial)));
    trial->n_conditions++;
    break;
  case 1:
    trial->whole[trial->n_whole] =
        add_node(trial, "Where", VALUES(draw_condition(trial), draw_any(trial), draw_any(trial)));
    trial->n_whole++;
    break;
  case 2:
    trial->whole[trial->n_whole] = add_mean(trial);
    trial->n_whole++;
    break;
  case 3:
  case 4:
    trial->whole[trial->n_whole] = add_unary(trial);
    trial->n_whole++;
    break;
  default:
    trial->whole[trial->n_whole] = add_binary(trial);
    trial->n_whole++;
  }
}

static void trial_init(struct trial *trial, uint64_t seed) {
  *trial = (struct trial){.key = random_key(seed, 0, 0, 0), .graph = graph_new()};
  trial->graph->opset = 17;
  trial->graph->is_training = true;
  add_inputs(trial);
  for (int n = 0; n < NODES; n++)
    add_one(trial);
  trial->watched[trial->n_watched++] = trial->whole[trial->n_whole - 1];
  for (int i = 3; i < trial->n_whole - 1; i++)
    if (draw(trial, 8) == 0)
      trial->watched[trial->n_watched++] = trial->whole[i];
}

static void trial_fini(struct trial *trial) {
  for (int i = 0; i < trial->graph->n_inputs; i++)
    free((void *)trial->data[i]);
  graph_free(trial->graph);
}

static int execute(const struct trial *trial, const struct backend_def *backend, enum precision precision,
                   struct outcome *outcome, struct err *err) {
  struct backend_request request = {.graph = trial->graph,
                                    .watched = trial->watched,
                                    .n_watched = trial->n_watched,
                                    .options = {.precision = precision}};
  struct feed feed = {.inputs = trial->data, .seed = USUAL_SEED};
  struct backend_program *program = NULL;
  int code = backend->prepare(&request, &program, err);
  if (!code)
    code = program_run(backend, program, &feed, outcome, err);
  if (!code) /* again, as a captured graph */
    code = program_run(backend, program, &feed, outcome, err);
  backend->release(program);
  return code;
}

static bool agrees(const struct trial *trial, const struct backend_def *backend, enum precision precision,
                   const struct outcome *expected) {
  struct err err = ERR_NONE;
  struct outcome outcome;
  char text[256] = "";
  bool is_ok;
  outcome_init(&outcome, trial->graph, trial->watched, trial->n_watched);
  is_ok = !execute(trial, backend, precision, &outcome, &err);
  for (int i = 0; i < outcome.n && is_ok; i++)
    is_ok = tensors_agree(&(struct tensor_pair){.dtype = DTYPE_F32,
                                                .elems = value_elems(trial->graph, trial->watched[i]),
                                                .got = outcome.data[i],
                                                .want = expected->data[i]},
                          precision == PRECISION_BF16 ? bf16_tolerance : f32_tolerance, text, sizeof text);
  if (!is_ok)
    printf("# %s %s\n", err.text, text);
  outcome_fini(&outcome);
  return is_ok;
}

static void test_seed(const struct backend_def *backend, uint64_t seed, bool is_ok[2]) {
  struct err err = ERR_NONE;
  struct outcome expected;
  struct trial trial;
  trial_init(&trial, seed);
  outcome_init(&expected, trial.graph, trial.watched, trial.n_watched);
  if (execute(&trial, backend_find("ref"), PRECISION_F32, &expected, &err))
    check_failed(err.text, __FILE__, __LINE__);
  for (int p = 0; p < 2; p++)
    if (!agrees(&trial, backend, p ? PRECISION_BF16 : PRECISION_F32, &expected)) {
      printf("# seed %llu in %s\n", (unsigned long long)seed, p ? "bf16" : "fp32");
      is_ok[p] = false;
    }
  outcome_fini(&expected);
  trial_fini(&trial);
}

static int add_ints(struct trial *trial, const int64_t *values, int n) {
  return graph_add_constant_i64(trial->graph, values, n);
}

/* Behind a convolution, which in tf32 and bf16 leaves its channels last: broadcasting by channel, draws, and
   what only moves elements keep that layout, and count elements as if it were dense. */
static void build_channels_last(struct trial *trial) {
  struct shape x = {4, {2, 8, 5, 6}}, w = {4, {12, 8, 1, 1}}, slope = {3, {12, 1, 1}};
  struct attr axis = {.name = "axis", .type = ATTR_INT, .i = 1};
  struct attr mode = {.name = "mode", .type = ATTR_STRING, .s = "linear"};
  *trial = (struct trial){.key = 5, .graph = graph_new(), .shape = x};
  trial->graph->opset = 17;
  trial->graph->is_training = true;
  int a = add_input(trial, DTYPE_F32, &x), b = add_input(trial, DTYPE_F32, &w);
  int per_channel = add_input(trial, DTYPE_F32, &slope);
  int y = add_node(trial, "Conv", VALUES(a, b));
  y = add_node(trial, "Tanh", VALUES(add_node(trial, "Mul", VALUES(y, per_channel))));
  int dropped = graph_add_node(trial->graph, "Dropout", VALUES(y), 2, ATTRS_NONE)->outputs[0];
  y = graph_add_node(trial->graph, "Concat", VALUES(dropped, y), 1, ATTR_LIST(axis))->outputs[0];
  y = add_node(trial, "Pad", VALUES(y, add_ints(trial, (int64_t[]){0, 1, 2, 0, 0, 0, 1, 3}, 8)));
  y = graph_add_node(trial->graph, "Slice",
                     VALUES(y, add_ints(trial, (int64_t[]){3, 7}, 2), add_ints(trial, (int64_t[]){20, 0}, 2),
                            add_ints(trial, (int64_t[]){1, 2}, 2), add_ints(trial, (int64_t[]){1, -1}, 2)),
                     1, ATTRS_NONE)
          ->outputs[0];
  y = graph_add_node(trial->graph, "Resize", VALUES(y, -1, -1, add_ints(trial, (int64_t[]){2, 17, 12, 5}, 4)),
                     1, ATTR_LIST(mode))
          ->outputs[0];
  trial->watched[trial->n_watched++] = dropped;
  trial->watched[trial->n_watched++] = y;
}

/* A node whose result is watched: a chain of its own. */
static void add_alone(struct trial *trial, const char *op, struct value_list inputs,
                      struct attr_list attributes) {
  trial->watched[trial->n_watched++] = graph_add_node(trial->graph, op, inputs, 1, attributes)->outputs[0];
}

/* Of other operands that repeat as rows, as blocks of one element, in neither way, or are one element, which
   is known or not. */
static void add_sums_alone(struct trial *trial, int x, int y, int64_t width) {
  const struct shape shapes[] = {{1, {width}},   {2, {6, width}},    {3, {4, 6, 1}},
                                 {3, {4, 1, 1}}, {3, {4, 1, width}}, {1, {1}}};
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
    int other = add_input(trial, DTYPE_F32, &shapes[i]);
    add_alone(trial, i % 2 ? "Mul" : "Add", VALUES(x, other), ATTRS_NONE);
    add_alone(trial, "Sub", VALUES(other, y), ATTRS_NONE);
  }
  add_alone(trial, "Mul", VALUES(x, graph_add_constant_f32(trial->graph, -1.5f)), ATTRS_NONE);
  add_alone(trial, "Sub", VALUES(graph_add_constant_f32(trial->graph, 0.75f), x), ATTRS_NONE);
  add_alone(trial, "Add", VALUES(x, y), ATTRS_NONE);
}

/* x is from -5 to 5, where the functions are neither 0 nor 1 yet. */
static void build_alone(struct trial *trial) {
  static const char *const functions[] = {"Relu", "Sigmoid", "Tanh", "HardSwish"};
  static const char *const of_result[] = {"Relu", "Sigmoid", "Tanh"};
  struct attr to_i64 = {.name = "to", .type = ATTR_INT, .i = 7}, to_f32 = to_i64;
  struct attr by_tanh = {.name = "approximate", .type = ATTR_STRING, .s = "tanh"};
  struct shape shape = {3, {4, 6, 16}}, narrow = {3, {4, 6, 4}};
  *trial = (struct trial){.key = 3, .graph = graph_new(), .shape = shape};
  trial->graph->opset = 20;
  trial->graph->is_training = true;
  int small = add_input(trial, DTYPE_F32, &shape), dy = add_input(trial, DTYPE_F32, &shape);
  int mask = add_input(trial, DTYPE_BOOL, &shape);
  add_alone(trial, "Mul", VALUES(small, graph_add_constant_f32(trial->graph, 5.0f)), ATTRS_NONE);
  int x = trial->watched[0];
  add_sums_alone(trial, x, dy, 16);
  int narrow_x = add_input(trial, DTYPE_F32, &narrow), narrow_y = add_input(trial, DTYPE_F32, &narrow);
  add_sums_alone(trial, narrow_x, narrow_y, 4);
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
    add_alone(trial, functions[i], VALUES(x), ATTRS_NONE);
  for (size_t i = 0; i < sizeof of_result / sizeof *of_result; i++) {
    char name[32];
    snprintf(name, sizeof name, "%sGrad", of_result[i]);
    add_alone(trial, name, VALUES(dy, small), ATTRS_NONE);
  }
  add_alone(trial, "HardSwishGrad", VALUES(dy, x), ATTRS_NONE);
  add_alone(trial, "Gelu", VALUES(x), ATTRS_NONE);
  add_alone(trial, "GeluGrad", VALUES(dy, x), ATTRS_NONE);
  add_alone(trial, "Gelu", VALUES(x), ATTR_LIST(by_tanh));
  add_alone(trial, "GeluGrad", VALUES(dy, x), ATTR_LIST(by_tanh));
  add_alone(trial, "DropoutGrad", VALUES(dy, mask), ATTRS_NONE);
  int whole = graph_add_node(trial->graph, "Cast", VALUES(mask), 1, ATTR_LIST(to_i64))->outputs[0];
  to_f32.i = 1;
  add_alone(trial, "Cast", VALUES(add_detour(trial, whole)), ATTR_LIST(to_f32));
}

static bool agrees_built(const struct backend_def *backend, enum precision precision,
                         void (*build)(struct trial *trial)) {
  struct err err = ERR_NONE;
  struct outcome expected;
  struct trial trial;
  bool is_ok;
  build(&trial);
  outcome_init(&expected, trial.graph, trial.watched, trial.n_watched);
  if (execute(&trial, backend_find("ref"), PRECISION_F32, &expected, &err))
    check_failed(err.text, __FILE__, __LINE__);
  is_ok = agrees(&trial, backend, precision, &expected);
  outcome_fini(&expected);
  trial_fini(&trial);
  return is_ok;
}

/* Four functions of one tensor, summed: fused, none of them is ever in memory. */
static bool is_fused(const struct backend_def *backend) {
  static const char *const ops[] = {"Relu", "Tanh", "Sigmoid", "Neg"};
  struct trial trial = {.key = 1, .graph = graph_new(), .shape = {.rank = 2, .dim = {64, 256}}};
  struct backend_program *program = NULL;
  struct err err = ERR_NONE;
  int x = add_input(&trial, DTYPE_F32, &trial.shape), values[4];
  struct backend_request request;
  size_t size_bytes = 0, tensor_bytes = 64 * 256 * sizeof(float);
  trial.graph->opset = 17;
  for (int i = 0; i < 4; i++)
    values[i] = add_node(&trial, ops[i], VALUES(x));
  trial.watched[0] = add_node(&trial, "Sum", (struct value_list){values, 4});
  request = (struct backend_request){.graph = trial.graph, .watched = trial.watched, .n_watched = 1};
  if (!backend->prepare(&request, &program, &err))
    size_bytes = backend->memory_bytes(program);
  printf("# %zu bytes for tensors of %zu\n", size_bytes, tensor_bytes);
  backend->release(program);
  trial_fini(&trial);
  return size_bytes > 0 && size_bytes < 3 * tensor_bytes;
}

int main(int argc, char **argv) {
  float_setting_apply();
  unsigned long long first = 1, last = SEEDS;
  const struct backend_def *backend;
  struct err err = ERR_NONE;
  bool is_ok[2] = {true, true};
  tap_init();
  backend = suite_cuda(&argc, &argv, &err);
  if (!backend)
    return suite_skip("cuda", &err);
  if (argc > 1 && sscanf(argv[1], "%llu..%llu", &first, &last) == 1)
    last = first;
  for (unsigned long long seed = first; seed <= last; seed++)
    test_seed(backend, seed, is_ok);
  for (int p = 0; p < 2; p++)
    tap_result(is_ok[p], "graphs of elementwise nodes agree with ref in %s (%llu)", p ? "bf16" : "fp32",
               last - first + 1);
  tap_result(agrees_built(backend, PRECISION_F32, build_channels_last) &&
                 agrees_built(backend, PRECISION_BF16, build_channels_last),
             "channels may be last");
  tap_result(agrees_built(backend, PRECISION_F32, build_alone) &&
                 agrees_built(backend, PRECISION_BF16, build_alone),
             "nodes alone, of operands that are broadcast in each way");
  tap_result(is_fused(backend), "what only a chain reads is never in memory");
  return tap_finish();
}
