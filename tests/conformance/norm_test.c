/* Graphs drawn by chance of batch norms, sums, ReLU, Clip and convolutions, trained and evaluated, on the
   cuda backend and on ref. What a norm does of its neighbours' work does not show: in f32 the bits are those
   that come out when every value is watched, so that nothing is done together. Without the word cuda it is
   the simulated device that executes them. usage: norm_test [cuda] [SEED | FIRST..LAST] */
#include <stdlib.h>

#include "common/agree/float_setting.h"
#include "common/agree/random.h"
#include "model/graph/autodiff.h"
#include "tests/conformance/harness.h"

enum { SEEDS = 60, NODES = 14, INPUTS_MAX = 64, VALUES_MAX = 512 };

static const struct tolerance f32_tolerance = {.relative = 2e-3, .absolute = 2e-3};
/* Of a whole tensor, as a part of it: rounded to 8 bits, ReLU's gradient may let through what it should not.
 */
static const double bf16_error = 1.5, tf32_error = 0.3;

struct trial {
  uint64_t key, drawn;
  struct graph *graph;
  struct shape shape; /* of all nodes */
  int whole[NODES + 2], n_whole;
  int wanted[INPUTS_MAX], n_wanted; /* inputs whose gradients are asked for */
  float *data[INPUTS_MAX];
  int watched[VALUES_MAX], n_watched;
};

static uint64_t draw(struct trial *trial, uint64_t below) {
  return random_bits(trial->key, trial->drawn++) % below;
}

static int add_input(struct trial *trial, const struct shape *shape, float least, float greatest) {
  int64_t elems = shape_elems(shape);
  float *data = mem_new((size_t)elems * sizeof *data + 1);
  for (int64_t i = 0; i < elems; i++)
    data[i] = least + (greatest - least) * (float)draw(trial, 10001) / 10000.0f;
  trial->data[trial->graph->n_inputs] = data;
  return graph_add_input(trial->graph, NULL, DTYPE_F32, shape);
}

static int add_wanted(struct trial *trial, const struct shape *shape, float least, float greatest) {
  return trial->wanted[trial->n_wanted++] = add_input(trial, shape, least, greatest);
}

/* Mostly the latest. */
static int draw_whole(struct trial *trial) {
  uint64_t n = (uint64_t)trial->n_whole;
  return trial->whole[draw(trial, 3) ? n - 1 : draw(trial, n)];
}

static int add_node(struct trial *trial, const char *op, const int *inputs, int n_inputs, int n_outputs) {
  return graph_add_node(trial->graph, op, (struct value_list){inputs, n_inputs}, n_outputs, ATTRS_NONE)
      ->outputs[0];
}

static int add_norm(struct trial *trial, int x) {
  struct shape channels = {.rank = 1, .dim = {trial->shape.dim[1]}};
  int inputs[5] = {x, add_wanted(trial, &channels, 0.5f, 1.5f), add_wanted(trial, &channels, -0.5f, 0.5f)};
  if (trial->graph->is_training)
    return add_node(trial, "BatchNormTraining", inputs, 3, 4);
  inputs[3] = add_input(trial, &channels, -0.5f, 0.5f);
  inputs[4] = add_input(trial, &channels, 0.5f, 2.0f);
  return add_node(trial, "BatchNormalization", inputs, 5, 1);
}

static int add_conv(struct trial *trial, int x) {
  struct shape weights = {.rank = 4, .dim = {trial->shape.dim[1], trial->shape.dim[1], 1, 1}};
  float bound = 1.5f / sqrtf((float)trial->shape.dim[1]);
  return add_node(trial, "Conv", (int[]){x, add_wanted(trial, &weights, -bound, bound)}, 2, 1);
}

static int add_activation(struct trial *trial, int x) {
  if (draw(trial, 2))
    return add_node(trial, "Relu", &x, 1, 1);
  int low = draw(trial, 3) ? graph_add_constant_f32(trial->graph, -0.25f) : -1;
  return add_node(trial, "Clip", (int[]){x, low, graph_add_constant_f32(trial->graph, 1.0f)}, 3, 1);
}

/* With an earlier value, or with a norm of one, as where a block changes its channels. */
static int add_sum(struct trial *trial, int x) {
  int other = draw_whole(trial);
  if (draw(trial, 4) == 0)
    other = add_norm(trial, other);
  int inputs[] = {x, other}, turned[] = {other, x};
  return add_node(trial, draw(trial, 4) ? "Add" : "Sum", draw(trial, 2) ? inputs : turned, 2, 1);
}

/* A norm, and what models have behind it. */
static int add_block(struct trial *trial) {
  int x = draw_whole(trial);
  if (draw(trial, 3))
    x = add_conv(trial, x);
  x = add_norm(trial, x);
  if (draw(trial, 8) == 0) /* read twice, and by a node that moves nothing */
    trial->whole[trial->n_whole++] = add_node(trial, "Identity", &x, 1, 1);
  if (draw(trial, 2))
    x = add_sum(trial, x);
  return draw(trial, 4) ? add_activation(trial, x) : x;
}

static int add_one(struct trial *trial) {
  int x = draw_whole(trial);
  switch (draw(trial, 6)) {
  case 0:
    return add_sum(trial, x);
  case 1:
    return add_node(trial, "Tanh", &x, 1, 1);
  default:
    return add_block(trial);
  }
}

/* The gradients of all that is wanted, of the last value and one more. */
static void differentiate(struct trial *trial) {
  struct graph *graph = trial->graph;
  int roots[2], seeds[2], n = trial->n_whole;
  roots[0] = trial->whole[n - 1];
  roots[1] = trial->whole[n - 2];
  for (int r = 0; r < 2; r++)
    seeds[r] = add_input(trial, &trial->shape, -1.0f, 1.0f);
  bool *wanted = mem_new((size_t)graph->n_values);
  int *grads = mem_new((size_t)graph->n_values * sizeof *grads);
  struct err err = ERR_NONE;
  for (int i = 0; i < trial->n_wanted; i++)
    wanted[trial->wanted[i]] = true;
  if (autodiff_run(graph,
                   &(struct derivative){.roots = roots, .seeds = seeds, .n_roots = 2, .wanted = wanted},
                   grads, &err))
    check_failed(err.text, __FILE__, __LINE__);
  for (int i = 0; i < trial->n_wanted; i++)
    if (grads[trial->wanted[i]] >= 0)
      trial->watched[trial->n_watched++] = grads[trial->wanted[i]];
  free(wanted);
  free(grads);
}

static void trial_init(struct trial *trial, uint64_t seed) {
  static const int64_t channels[] = {3, 8, 16, 24};
  *trial = (struct trial){.key = random_key(seed, 0, 0, 0), .graph = graph_new()};
  trial->graph->opset = 17;
  trial->graph->is_training = seed % 4 != 0;
  trial->shape =
      (struct shape){4,
                     {3 + (int64_t)draw(trial, 4), channels[draw(trial, 4)], 2 + (int64_t)draw(trial, 9),
                      4 + (int64_t)draw(trial, trial->key % 4 ? 7 : 60)}};
  trial->whole[trial->n_whole++] = add_wanted(trial, &trial->shape, -1.0f, 1.0f);
  int n_nodes = 2 + (int)draw(trial, 4);
  for (int n = 0; n < n_nodes; n++) {
    int value = add_one(trial);
    trial->whole[trial->n_whole++] = value;
  }
  trial->watched[trial->n_watched++] = trial->whole[trial->n_whole - 1];
  for (int i = 1; i < trial->n_whole - 1; i++)
    if (draw(trial, 6) == 0)
      trial->watched[trial->n_watched++] = trial->whole[i];
  if (trial->graph->is_training)
    differentiate(trial);
}

static void trial_fini(struct trial *trial) {
  for (int i = 0; i < trial->graph->n_inputs; i++)
    free(trial->data[i]);
  graph_free(trial->graph);
}

/* Into outcome, which says what is watched. */
static bool execute(const struct trial *trial, const struct backend_def *backend, enum precision precision,
                    struct outcome *outcome) {
  return graph_executes(backend, precision, (const void *const *)trial->data, outcome);
}

/* What the trial watches, and behind it every other result. */
static int list_all(const struct trial *trial, int *values) {
  int n = trial->n_watched;
  memcpy(values, trial->watched, (size_t)n * sizeof *values);
  for (int k = 0; k < trial->graph->n_nodes; k++)
    for (int o = 0; o < trial->graph->nodes[k]->n_outputs; o++)
      if (trial->graph->nodes[k]->outputs[o] >= 0 && n < VALUES_MAX)
        values[n++] = trial->graph->nodes[k]->outputs[o];
  return n;
}

static bool has_same_bits(const struct trial *trial, const struct backend_def *backend,
                          enum precision precision, const struct outcome *got) {
  int values[VALUES_MAX], n = list_all(trial, values);
  struct outcome apart;
  outcome_init(&apart, trial->graph, values, n);
  bool is_same = execute(trial, backend, precision, &apart);
  for (int i = 0; i < got->n && is_same; i++) {
    is_same = memcmp(got->data[i], apart.data[i], value_size(trial->graph, got->values[i])) == 0;
    if (!is_same)
      printf("# value %d of %d has other bits than if all are watched\n", i, got->n);
  }
  outcome_fini(&apart);
  return is_same;
}

static bool is_near(int64_t elems, const float *got, const float *want, double error) {
  double distance = 0.0, norm = (double)elems; /* some gradients are nothing but rounding */
  for (int64_t i = 0; i < elems; i++) {
    distance += pow((double)got[i] - want[i], 2.0);
    norm += pow(want[i], 2.0);
  }
  if (distance <= error * error * norm)
    return true;
  printf("# %.3g off\n", sqrt(distance / norm));
  return false;
}

static bool agrees(const struct trial *trial, enum precision precision, const struct outcome *got,
                   const struct outcome *want) {
  char text[256];
  for (int i = 0; i < got->n; i++) {
    int64_t elems = value_elems(trial->graph, got->values[i]);
    struct tensor_pair pair = {
        .dtype = DTYPE_F32, .elems = elems, .got = got->data[i], .want = want->data[i]};
    if (precision != PRECISION_F32) {
      if (!is_near(elems, got->data[i], want->data[i], precision == PRECISION_BF16 ? bf16_error : tf32_error))
        return false;
    } else if (!tensors_agree(&pair, f32_tolerance, text, sizeof text)) {
      printf("# value %d of %d: %s\n", i, got->n, text);
      return false;
    }
  }
  return true;
}

static bool test_seed(const struct backend_def *backend, uint64_t seed, enum precision precision) {
  struct trial trial;
  struct outcome want, got;
  trial_init(&trial, seed);
  outcome_init(&want, trial.graph, trial.watched, trial.n_watched);
  outcome_init(&got, trial.graph, trial.watched, trial.n_watched);
  bool is_ok = execute(&trial, backend_find("ref"), PRECISION_F32, &want) &&
               execute(&trial, backend, precision, &got) && agrees(&trial, precision, &got, &want) &&
               (precision == PRECISION_BF16 || has_same_bits(&trial, backend, precision, &got));
  if (!is_ok)
    printf("# seed %llu\n", (unsigned long long)seed);
  outcome_fini(&want);
  outcome_fini(&got);
  trial_fini(&trial);
  return is_ok;
}

/* Bytes of a program of a norm, a residual and ReLU, with what it is asked to return. */
static size_t count_bytes(const struct backend_def *backend, bool is_apart) {
  struct trial trial = {.key = 1, .graph = graph_new(), .shape = {4, {4, 8, 16, 16}}};
  struct backend_program *program = NULL;
  struct err err = ERR_NONE;
  int values[3], n = 0;
  trial.graph->opset = 17;
  trial.graph->is_training = true;
  int x = add_input(&trial, &trial.shape, -1.0f, 1.0f),
      residual = add_input(&trial, &trial.shape, -1.0f, 1.0f);
  int y = add_norm(&trial, x);
  int sum = add_node(&trial, "Add", (int[]){y, residual}, 2, 1);
  int relu = add_node(&trial, "Relu", &sum, 1, 1);
  struct attr axis = {.name = "axis", .type = ATTR_INT, .i = 1};
  values[n++] =
      graph_add_node(trial.graph, "Concat", VALUES(relu, x, residual), 1, ATTR_LIST(axis))->outputs[0];
  if (is_apart)
    values[n++] = y;
  size_t size_bytes = 0;
  if (!backend->prepare(&(struct backend_request){.graph = trial.graph, .watched = values, .n_watched = n},
                        &program, &err))
    size_bytes = backend->memory_bytes(program);
  backend->release(program);
  trial_fini(&trial);
  return size_bytes;
}

static bool is_fused(const struct backend_def *backend) {
  size_t together = count_bytes(backend, false), apart = count_bytes(backend, true);
  size_t tensor_bytes = 4 * 8 * 16 * 16 * sizeof(float);
  printf("# %zu bytes, %zu if the norm's own result is watched, tensors of %zu\n", together, apart,
         tensor_bytes);
  return together > 0 && together < 6 * tensor_bytes + tensor_bytes / 2 &&
         apart >= together + tensor_bytes / 2;
}

/* Two blocks; the second one's norm adds what the first has made. The last result is watched, and the second
   norm's own if is_apart. */
static void blocks_init(struct trial *trial, bool is_apart) {
  *trial = (struct trial){.key = 1, .graph = graph_new(), .shape = {4, {4, 8, 16, 16}}};
  trial->graph->opset = 17;
  trial->graph->is_training = true;
  int x = add_input(trial, &trial->shape, -1.0f, 1.0f), last = add_input(trial, &trial->shape, -1.0f, 1.0f);
  for (int block = 0; block < 2; block++) {
    int y = add_norm(trial, x), sum = add_node(trial, "Add", (int[]){y, last}, 2, 1);
    last = add_node(trial, "Relu", &sum, 1, 1);
    trial->watched[1] = y;
  }
  trial->watched[0] = last;
  trial->n_watched = 1 + is_apart;
}

/* In bf16, where the norm's result is rounded if a node of its own adds to it, but not if it is watched. */
static bool adds_residual(const struct backend_def *backend) {
  struct trial together, apart;
  struct outcome got, want;
  blocks_init(&together, false);
  blocks_init(&apart, true);
  outcome_init(&got, together.graph, together.watched, together.n_watched);
  outcome_init(&want, apart.graph, apart.watched, apart.n_watched);
  bool is_same = execute(&together, backend, PRECISION_BF16, &got) &&
                 execute(&apart, backend, PRECISION_BF16, &want) &&
                 memcmp(got.data[0], want.data[0], value_size(together.graph, together.watched[0])) == 0;
  outcome_fini(&got);
  outcome_fini(&want);
  trial_fini(&together);
  trial_fini(&apart);
  return is_same;
}

/* An element that is infinite: which results are NaN. */
static bool spoils_its_channel(const struct backend_def *backend) {
  struct trial trial = {.key = 1, .graph = graph_new(), .shape = {4, {4, 8, 16, 16}}};
  struct outcome want, got;
  trial.graph->opset = 17;
  trial.graph->is_training = true;
  add_norm(&trial, add_input(&trial, &trial.shape, -1.0f, 1.0f));
  trial.data[0][16 * 16] = INFINITY;
  const struct node *norm = trial.graph->nodes[0];
  outcome_init(&want, trial.graph, norm->outputs, norm->n_outputs);
  outcome_init(&got, trial.graph, norm->outputs, norm->n_outputs);
  bool is_same = execute(&trial, backend_find("ref"), PRECISION_F32, &want) &&
                 execute(&trial, backend, PRECISION_F32, &got);
  for (int o = 0; o < got.n && is_same; o++)
    for (int64_t i = 0; i < value_elems(trial.graph, got.values[o]); i++)
      is_same &= !isnan(((const float *)got.data[o])[i]) == !isnan(((const float *)want.data[o])[i]);
  outcome_fini(&want);
  outcome_fini(&got);
  trial_fini(&trial);
  return is_same;
}

int main(int argc, char **argv) {
  float_setting_apply();
  static const char *const names[] = {
      [PRECISION_F32] = "fp32", [PRECISION_TF32] = "tf32", [PRECISION_BF16] = "bf16"};
  unsigned long long first = 1, last = SEEDS;
  const struct backend_def *backend;
  struct err err = ERR_NONE;
  tap_init();
  backend = suite_cuda(&argc, &argv, &err);
  if (!backend)
    return suite_skip("cuda", &err);
  if (argc > 1 && sscanf(argv[1], "%llu..%llu", &first, &last) == 1)
    last = first;
  for (int p = 0; p < 3; p++) {
    bool is_ok = true;
    for (unsigned long long seed = first; seed <= last; seed++)
      is_ok &= test_seed(backend, seed, (enum precision)p);
    tap_result(is_ok, "graphs of norms agree with ref in %s (%llu)", names[p], last - first + 1);
  }
  tap_result(is_fused(backend), "a norm's result that only what follows reads is never in memory");
  tap_result(adds_residual(backend), "a norm adds what the norm of the block before has written");
  tap_result(spoils_its_channel(backend),
             "an infinite element makes its channel's variance NaN, and no other's");
  return tap_finish();
}
