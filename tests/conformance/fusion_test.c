/* Small graphs whose nodes a backend may do together: each backend agrees with the reference kernels in
   results and gradients, in every precision that it knows. usage: fusion_test [BACKEND]
   [PRECISION]
 */
#include "common/agree/float_setting.h"
#include "common/agree/random.h"
#include "model/graph/autodiff.h"
#include "tests/conformance/harness.h"

enum { VALUES_MAX = 16 };

/* Parts of a tensor's greatest magnitude. */
static const double tolerances[] = {
    [PRECISION_F32] = 1e-4, [PRECISION_TF32] = 0.004, [PRECISION_BF16] = 0.03, [PRECISION_F32_FAST] = 1e-4};

/* A graph as it grows: the inputs of its next nodes are numbered in the order in which they came. */
struct sketch {
  struct graph *graph;
  int inputs[VALUES_MAX], n_inputs;
  uint64_t drawn;
};

static int input(struct sketch *sketch, int rank, const int64_t *dims) {
  struct shape shape = {.rank = rank};
  memcpy(shape.dim, dims, (size_t)rank * sizeof *dims);
  return sketch->inputs[sketch->n_inputs++] = graph_add_input(sketch->graph, NULL, DTYPE_F32, &shape);
}

#define INPUT(sketch, ...)                                                                                   \
  input(sketch, sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), (int64_t[]){__VA_ARGS__})

static int vector(struct sketch *sketch, int64_t n) {
  float values[64];
  for (int64_t i = 0; i < n; i++)
    values[i] = random_uniform(random_key(5, sketch->drawn, 0, 0), (uint64_t)i) - 0.5f;
  sketch->drawn++;
  return graph_add_constant_vector(sketch->graph, values, n);
}

static int node(struct sketch *sketch, const char *op, struct value_list inputs) {
  return graph_add_node(sketch->graph, op, inputs, 1, ATTRS_NONE)->outputs[0];
}

static int reshape(struct sketch *sketch, int x, const int64_t *dims, int rank) {
  return node(sketch, "Reshape", VALUES(x, graph_add_constant_i64(sketch->graph, dims, rank)));
}

static int gemm_relu(struct sketch *s) {
  int y = node(s, "Gemm", VALUES(INPUT(s, 6, 5), INPUT(s, 5, 7), vector(s, 7)));
  return node(s, "Relu", VALUES(y));
}

static int gemm_reshape_gelu(struct sketch *s, const char *kind, int64_t columns) {
  struct attr approximate = {.name = "approximate", .type = ATTR_STRING, .s = kind};
  int y = node(s, "Gemm", VALUES(INPUT(s, 6, 5), INPUT(s, 5, columns), vector(s, columns)));
  y = reshape(s, y, (const int64_t[]){2, 3, columns}, 3);
  return graph_add_node(s->graph, "Gelu", VALUES(y), 1, ATTR_LIST(approximate))->outputs[0];
}

static int gemm_gelu_kept(struct sketch *s) {
  return gemm_reshape_gelu(s, "tanh", 16);
}

static int gemm_gelu_odd(struct sketch *s) {
  return gemm_reshape_gelu(s, "tanh", 7);
}

static int gemm_gelu_exact(struct sketch *s) {
  return gemm_reshape_gelu(s, "none", 16);
}

static int matmul_add(struct sketch *s) {
  int y = node(s, "MatMul", VALUES(INPUT(s, 2, 3, 5), INPUT(s, 5, 8)));
  return node(s, "Add", VALUES(vector(s, 8), y));
}

static int matmul_add_relu(struct sketch *s) {
  return node(s, "Relu", VALUES(matmul_add(s)));
}

/* The sum is read twice: it must be there. */
static int matmul_add_twice(struct sketch *s) {
  int y = matmul_add(s);
  return node(s, "Mul", VALUES(node(s, "Relu", VALUES(y)), y));
}

/* A stack of products, and what is no bias. */
static int matmul_stack_add(struct sketch *s) {
  int y = node(s, "MatMul", VALUES(INPUT(s, 2, 3, 5), INPUT(s, 2, 5, 4)));
  return node(s, "Relu", VALUES(node(s, "Add", VALUES(y, vector(s, 4)))));
}

static int gemm_full_c_add_relu(struct sketch *s) {
  int y = node(s, "Gemm", VALUES(INPUT(s, 6, 5), INPUT(s, 5, 4), INPUT(s, 6, 1)));
  return node(s, "Relu", VALUES(node(s, "Add", VALUES(y, vector(s, 4)))));
}

/* Sums over so many windows are made in parts. */
static int conv_depthwise_of(struct sketch *s, int columns) {
  const int inputs[] = {INPUT(s, 2, 36, 49, 49), INPUT(s, 36, 1, 3, columns), INPUT(s, 36)};
  struct attr group = {.name = "group", .type = ATTR_INT, .i = 36};
  return graph_add_node(s->graph, "Conv", (struct value_list){inputs, 3}, 1, ATTR_LIST(group))->outputs[0];
}

static int conv_depthwise(struct sketch *s) {
  return conv_depthwise_of(s, 2);
}

static int conv_depthwise_square(struct sketch *s) {
  return conv_depthwise_of(s, 3);
}

static int conv_relu_conv(struct sketch *s) {
  int y = node(s, "Conv", VALUES(INPUT(s, 2, 3, 6, 5), INPUT(s, 8, 3, 3, 3), vector(s, 8)));
  y = node(s, "Relu", VALUES(y));
  return node(s, "Conv", VALUES(y, INPUT(s, 4, 8, 2, 2)));
}

/* Channels last as one layer leaves them, and rows of all as the next one takes them. */
static int conv_reshape_gemm(struct sketch *s) {
  int y = node(s, "Conv", VALUES(INPUT(s, 2, 3, 5, 4), INPUT(s, 4, 3, 2, 3)));
  y = reshape(s, y, (const int64_t[]){2, 32}, 2);
  return node(s, "Gemm", VALUES(y, INPUT(s, 32, 3), vector(s, 3)));
}

/* Masks: hides[i * columns + j]. */
static int mask(struct sketch *sketch, struct shape shape, bool (*hides)(int64_t row, int64_t column)) {
  int64_t columns = shape.dim[shape.rank - 1], rows = shape_elems(&shape) / columns;
  float *data = arena_new(&sketch->graph->arena, (size_t)(rows * columns) * sizeof *data);
  for (int64_t i = 0; i < rows * columns; i++)
    data[i] = hides(i / columns, i % columns) ? -INFINITY : 0;
  return graph_add_value(sketch->graph, (struct value){.kind = VALUE_CONSTANT,
                                                       .dtype = DTYPE_F32,
                                                       .shape = shape,
                                                       .data = data,
                                                       .producer = -1,
                                                       .param = -1,
                                                       .statistic = -1});
}

static bool is_later(int64_t row, int64_t column) {
  return column > row + 3;
}

static bool is_padding(int64_t row, int64_t column) {
  return column >= 20 + 6 * row;
}

/* Large enough for matrix products, and for several tiles. */
static int attend(struct sketch *s) {
  int query = INPUT(s, 3, 2, 40, 6), key = INPUT(s, 3, 2, 6, 33), value = INPUT(s, 3, 2, 33, 10);
  int padding = mask(s, (struct shape){.rank = 4, .dim = {3, 1, 1, 33}}, is_padding);
  const int inputs[] = {query, key, value, padding};
  struct attr scale = {.name = "scale", .type = ATTR_FLOAT, .f = 0.4f};
  return graph_add_node(s->graph, "ScaledAttention", (struct value_list){inputs, 4}, 1, ATTR_LIST(scale))
      ->outputs[0];
}

static int attend_before(struct sketch *s) {
  int query = INPUT(s, 2, 70, 40), key = INPUT(s, 2, 40, 75), value = INPUT(s, 2, 75, 140);
  int later = mask(s, (struct shape){.rank = 2, .dim = {70, 75}}, is_later);
  const int inputs[] = {query, key, value, later};
  struct attr scale = {.name = "scale", .type = ATTR_FLOAT, .f = 0.1f};
  return graph_add_node(s->graph, "ScaledAttention", (struct value_list){inputs, 4}, 1, ATTR_LIST(scale))
      ->outputs[0];
}

static bool is_after(int64_t row, int64_t column) {
  return column > row;
}

/* Heads as cuDNN takes them, in bf16. */
static int attend_heads(struct sketch *s, int64_t rows, int64_t columns, int64_t head, bool is_causal) {
  int query = INPUT(s, 3, 2, rows, head), key = INPUT(s, 3, 2, head, columns);
  int value = INPUT(s, 3, 2, columns, 16);
  const int inputs[] = {query, key, value,
                        is_causal ? mask(s, (struct shape){.rank = 2, .dim = {rows, columns}}, is_after)
                                  : -1};
  struct attr scale = {.name = "scale", .type = ATTR_FLOAT, .f = 0.3f};
  return graph_add_node(s->graph, "ScaledAttention", (struct value_list){inputs, is_causal ? 4 : 3}, 1,
                        ATTR_LIST(scale))
      ->outputs[0];
}

static int attend_all(struct sketch *s) {
  return attend_heads(s, 37, 50, 24, false);
}

static int attend_causally(struct sketch *s) {
  return attend_heads(s, 40, 40, 64, true);
}

static int attend_causally_unequal(struct sketch *s) {
  return attend_heads(s, 30, 19, 8, true);
}

/* Heads as layers leave them, side by side: keys are turned by a Transpose, and so is their gradient. */
static int attend_split(struct sketch *s, int *query, int *key, int *value) {
  static const int64_t turned[] = {0, 2, 3, 1};
  struct attr perm = {.name = "perm", .type = ATTR_INTS, .ints = turned, .n = 4};
  struct attr scale = {.name = "scale", .type = ATTR_FLOAT, .f = 0.3f};
  *query = INPUT(s, 3, 2, 37, 24);
  *key =
      graph_add_node(s->graph, "Transpose", VALUES(INPUT(s, 3, 50, 2, 24)), 1, ATTR_LIST(perm))->outputs[0];
  *value = INPUT(s, 3, 2, 50, 16);
  return graph_add_node(s->graph, "ScaledAttention", VALUES(*query, *key, *value), 1, ATTR_LIST(scale))
      ->outputs[0];
}

static int attend_turned(struct sketch *s) {
  int query, key, value;
  return attend_split(s, &query, &key, &value);
}

/* The gradient of the keys is a sum. */
static int attend_turned_twice(struct sketch *s) {
  int query, key, value, y = attend_split(s, &query, &key, &value);
  struct attr scale = {.name = "scale", .type = ATTR_FLOAT, .f = -0.2f};
  int again =
      graph_add_node(s->graph, "ScaledAttention", VALUES(query, key, value), 1, ATTR_LIST(scale))->outputs[0];
  return node(s, "Add", VALUES(y, again));
}

/* The keys are read as they are, too. */
static int attend_turned_and_multiply(struct sketch *s) {
  int query, key, value, y = attend_split(s, &query, &key, &value);
  return node(s, "Add", VALUES(y, node(s, "MatMul", VALUES(node(s, "MatMul", VALUES(query, key)), value))));
}

static const struct {
  const char *name;
  int (*build)(struct sketch *sketch);
} graphs[] = {
    {"Gemm and Relu", gemm_relu},
    {"Gemm, Reshape and Gelu by tanh", gemm_gelu_kept},
    {"Gemm, Reshape and Gelu by tanh of few columns", gemm_gelu_odd},
    {"Gemm, Reshape and exact Gelu", gemm_gelu_exact},
    {"MatMul and Add", matmul_add},
    {"MatMul, Add and Relu", matmul_add_relu},
    {"MatMul and Add that two nodes read", matmul_add_twice},
    {"a stack of MatMuls, Add and Relu", matmul_stack_add},
    {"Gemm with a column, Add and Relu", gemm_full_c_add_relu},
    {"attention under a mask of padding", attend},
    {"attention under a causal mask", attend_before},
    {"attention without a mask, of whole heads", attend_all},
    {"attention that sees nothing later, of whole heads", attend_causally},
    {"attention that sees nothing later, of more rows than columns", attend_causally_unequal},
    {"attention with keys that a Transpose turns", attend_turned},
    {"attention twice with keys that a Transpose turns", attend_turned_twice},
    {"attention and a product with keys that a Transpose turns", attend_turned_and_multiply},
    {"a depthwise Conv of many windows", conv_depthwise},
    {"a depthwise Conv of many square windows", conv_depthwise_square},
    {"Conv, Relu and Conv", conv_relu_conv},
    {"Conv, Reshape and Gemm", conv_reshape_gemm},
};

/* Adds the gradients of the inputs; values: what is compared. Returns how many. */
static int differentiate(struct sketch *sketch, int y, int *values) {
  struct graph *graph = sketch->graph;
  int n_inputs = sketch->n_inputs, n = 0;
  int seed = graph_add_input(graph, NULL, DTYPE_F32, &graph->values[y].shape);
  bool *wanted = mem_new((size_t)graph->n_values);
  int *grads = mem_new((size_t)graph->n_values * sizeof *grads);
  struct err err = ERR_NONE;
  for (int i = 0; i < n_inputs; i++)
    wanted[sketch->inputs[i]] = true;
  sketch->inputs[sketch->n_inputs++] = seed;
  if (autodiff_run(graph, &(struct derivative){.roots = &y, .seeds = &seed, .n_roots = 1, .wanted = wanted},
                   grads, &err))
    check_failed(err.text, __FILE__, __LINE__);
  values[n++] = y;
  for (int i = 0; i < n_inputs; i++)
    values[n++] = grads[sketch->inputs[i]];
  free(wanted);
  free(grads);
  return n;
}

static float *draw(const struct graph *graph, int value) {
  int64_t n = value_elems(graph, value);
  float *data = mem_new((size_t)n * sizeof *data);
  for (int64_t i = 0; i < n; i++)
    data[i] = 2.0f * random_uniform(random_key(3, (uint64_t)value, 0, 0), (uint64_t)i) - 1.0f;
  return data;
}

static bool outcomes_agree(const struct outcome *got, const struct outcome *want, enum precision precision) {
  char text[256];
  for (int i = 0; i < got->n; i++) {
    double greatest = 0.1;
    int64_t elems = value_elems(got->graph, got->values[i]);
    for (int64_t k = 0; k < elems; k++)
      greatest = fmax(greatest, fabs(((const float *)want->data[i])[k]));
    struct tolerance tolerance = {.absolute = tolerances[precision] * greatest};
    struct tensor_pair pair = {
        .dtype = DTYPE_F32, .elems = elems, .got = got->data[i], .want = want->data[i]};
    if (tensors_agree(&pair, tolerance, text, sizeof text))
      continue;
    printf("# %s %d: %s\n", i == 0 ? "output" : "gradient", i, text);
    return false;
  }
  return true;
}

static bool graph_agrees(int index, const struct backend_def *backend,
                         const struct backend_options *options) {
  struct sketch sketch = {.graph = graph_new()};
  int values[VALUES_MAX], y = graphs[index].build(&sketch), n;
  float *inputs[VALUES_MAX];
  struct outcome want, got;
  struct err err = ERR_NONE;
  sketch.graph->is_training = true;
  n = differentiate(&sketch, y, values);
  for (int i = 0; i < sketch.n_inputs; i++)
    inputs[i] = draw(sketch.graph, sketch.inputs[i]);
  outcome_init(&want, sketch.graph, values, n);
  outcome_init(&got, sketch.graph, values, n);
  bool is_ok = !graph_execute(backend_find("ref"), NULL, (const void *const *)inputs, &want, &err) &&
               !graph_execute(backend, options, (const void *const *)inputs, &got, &err);
  if (!is_ok)
    printf("# %s\n", err.text);
  is_ok = is_ok && outcomes_agree(&got, &want, options->precision);
  outcome_fini(&want);
  outcome_fini(&got);
  for (int i = 0; i < sketch.n_inputs; i++)
    free(inputs[i]);
  graph_free(sketch.graph);
  return is_ok;
}

int main(int argc, char **argv) {
  float_setting_apply();
  struct backend_options options = {0};
  const char *only = NULL;
  struct backends backends;
  struct err err = ERR_NONE;
  for (int i = 1; i < argc; i++)
    if (!precision_find(argv[i], &options.precision))
      only = argv[i];
  tap_init();
  if (!backends_init(&backends, only, options.precision, &err))
    return suite_skip(only, &err);
  for (size_t i = 0; i < sizeof graphs / sizeof *graphs; i++)
    for (int b = 0; backends.at[b]; b++)
      tap_result(graph_agrees((int)i, backends.at[b], &options), "%s on %s", graphs[i].name,
                 backends.at[b]->name);
  return tap_finish();
}
