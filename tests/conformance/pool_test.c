/* Max pools behind a convolution that leaves all as it is, so that in tf32 and bf16 their channels are last:
   the bits of the windows' greatest elements and of the gradients, of values with many equals, infinities and
   NaN. Without the word cuda it is the simulated device that executes them. usage: pool_test [cuda] */
#include <stdlib.h>

#include "common/agree/float_setting.h"
#include "common/agree/random.h"
#include "model/graph/autodiff.h"
#include "tests/conformance/harness.h"

static const struct pool_case {
  int64_t dim[4]; /* of x */
  int64_t kernel[2], strides[2], pads[4], dilations[2];
} cases[] = {
    {{2, 16, 9, 8}, {3, 3}, {2, 2}, {1, 1, 1, 1}, {1, 1}},
    {{2, 64, 8, 8}, {3, 3}, {2, 2}, {1, 1, 1, 1}, {1, 1}},
    {{3, 8, 7, 10}, {2, 2}, {2, 2}, {0, 0, 0, 0}, {1, 1}},
    {{2, 24, 6, 7}, {3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}},
    {{2, 8, 9, 11}, {5, 4}, {1, 3}, {2, 0, 1, 3}, {1, 1}},
    {{1, 8, 9, 9}, {2, 3}, {3, 4}, {1, 2, 0, 0}, {1, 1}}, /* windows that leave some elements out */
    {{2, 8, 17, 16}, {16, 16}, {1, 1}, {0, 0, 0, 0}, {1, 1}},
    {{2, 8, 4, 4}, {4, 4}, {1, 1}, {0, 0, 0, 0}, {1, 1}}, /* one window has all of a plane */
    {{2, 16, 9, 8}, {2, 2}, {1, 2}, {1, 0, 0, 1}, {2, 3}},
    {{2, 12, 9, 8}, {3, 3}, {2, 2}, {1, 1, 1, 1}, {1, 1}},
};
enum { CASES = sizeof cases / sizeof *cases, INPUTS = 3 };

struct trial {
  struct graph *graph;
  float *data[INPUTS];
  int watched[2];
};

static int add_input(struct trial *trial, const struct shape *shape) {
  trial->data[trial->graph->n_inputs] = mem_new((size_t)shape_elems(shape) * sizeof(float));
  return graph_add_input(trial->graph, NULL, DTYPE_F32, shape);
}

/* Few values, so that equals meet in a window; they and their sums are exact in bf16. */
static void draw_values(float *data, int64_t n, bool has_specials) {
  uint64_t key = random_key(3, 1, has_specials, 0);
  for (int64_t i = 0; i < n; i++) {
    uint64_t bits = random_bits(key, (uint64_t)i);
    data[i] = (float)(int)(bits % 7) - 3.0f;
    if (has_specials && bits >> 32 & 4)
      data[i] = bits >> 40 & 7 ? -INFINITY : bits >> 43 & 1 ? NAN : INFINITY;
  }
}

static struct attr attr_ints(const char *name, const int64_t *ints, int n) {
  return (struct attr){.name = name, .type = ATTR_INTS, .ints = ints, .n = n};
}

/* The gradient of x by autodiff, for which the forward node leaves places; or by a node of its own. */
static void trial_init(struct trial *trial, const struct pool_case *of, bool is_alone) {
  struct shape x_shape = {.rank = 4}, w_shape = {4, {of->dim[1], 1, 1, 1}};
  struct attr_list attrs =
      ATTR_LIST(attr_ints("kernel_shape", of->kernel, 2), attr_ints("strides", of->strides, 2),
                attr_ints("pads", of->pads, 4), attr_ints("dilations", of->dilations, 2));
  struct attr groups = {.name = "group", .type = ATTR_INT, .i = of->dim[1]};
  struct err err = ERR_NONE;
  memcpy(x_shape.dim, of->dim, sizeof of->dim);
  *trial = (struct trial){.graph = graph_new()};
  trial->graph->opset = 17;
  trial->graph->is_training = true;
  int x = add_input(trial, &x_shape), w = add_input(trial, &w_shape);
  int same = graph_add_node(trial->graph, "Conv", VALUES(x, w), 1, ATTR_LIST(groups))->outputs[0];
  int y = graph_add_node(trial->graph, "MaxPool", VALUES(same), 1, attrs)->outputs[0], dy, dx;
  const struct shape y_shape = trial->graph->values[y].shape;
  dy = add_input(trial, &y_shape);
  draw_values(trial->data[0], shape_elems(&x_shape), true);
  for (int64_t c = 0; c < of->dim[1]; c++)
    trial->data[1][c] = 1.0f;
  draw_values(trial->data[2], shape_elems(&y_shape), false);
  if (is_alone) {
    dx = graph_add_node(trial->graph, "MaxPoolGrad", VALUES(dy, same), 1, attrs)->outputs[0];
  } else {
    bool *wanted = mem_new((size_t)trial->graph->n_values);
    int *grads = mem_new((size_t)trial->graph->n_values * sizeof *grads);
    wanted[same] = true;
    if (autodiff_run(trial->graph,
                     &(struct derivative){.roots = &y, .seeds = &dy, .n_roots = 1, .wanted = wanted}, grads,
                     &err))
      check_failed(err.text, __FILE__, __LINE__);
    dx = grads[same];
    free(wanted);
    free(grads);
  }
  trial->watched[0] = y;
  trial->watched[1] = dx;
}

static void trial_fini(struct trial *trial) {
  for (int i = 0; i < INPUTS; i++)
    free(trial->data[i]);
  graph_free(trial->graph);
}

static bool execute(const struct trial *trial, const struct backend_def *backend, enum precision precision,
                    struct outcome *outcome) {
  return graph_executes(backend, precision, (const void *const *)trial->data, outcome);
}

static bool test_case(const struct backend_def *backend, int c, enum precision precision, bool is_alone) {
  struct trial trial;
  struct outcome want, got;
  char text[256];
  trial_init(&trial, &cases[c], is_alone);
  outcome_init(&want, trial.graph, trial.watched, 2);
  outcome_init(&got, trial.graph, trial.watched, 2);
  bool is_ok =
      execute(&trial, backend_find("ref"), PRECISION_F32, &want) && execute(&trial, backend, precision, &got);
  for (int i = 0; i < 2 && is_ok; i++) {
    struct tensor_pair pair = {.dtype = DTYPE_F32,
                               .elems = value_elems(trial.graph, trial.watched[i]),
                               .got = got.data[i],
                               .want = want.data[i]};
    is_ok = tensors_agree(&pair, (struct tolerance){0}, text, sizeof text);
    if (!is_ok)
      printf("# case %d, %s: %s\n", c, i ? "dx" : "y", text);
  }
  outcome_fini(&want);
  outcome_fini(&got);
  trial_fini(&trial);
  return is_ok;
}

int main(int argc, char **argv) {
  float_setting_apply();
  static const char *const names[] = {
      [PRECISION_F32] = "fp32", [PRECISION_TF32] = "tf32", [PRECISION_BF16] = "bf16"};
  const struct backend_def *backend;
  struct err err = ERR_NONE;
  tap_init();
  backend = suite_cuda(&argc, &argv, &err);
  if (!backend)
    return suite_skip("cuda", &err);
  for (int p = 0; p < 3; p++)
    for (int is_alone = 0; is_alone < 2; is_alone++) {
      bool is_ok = true;
      for (int c = 0; c < CASES; c++)
        is_ok &= test_case(backend, c, (enum precision)p, is_alone);
      tap_result(is_ok, "max pools behind a convolution have ref's bits in %s%s", names[p],
                 is_alone ? ", and their gradients alone" : "");
    }
  return tap_finish();
}
