/* Gradients where there is none, strictly: at kinks, ties and zeros ours are PyTorch's. Finite differences
   cannot tell. The numbers are torch 2.15's gradients of each expression's sum, which the rows quote. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "model/graph/autodiff.h"
#include "model/ops/shared/backward.h"
#include "tests/support/model/graph_run.h"

enum { ELEMS_MAX = 4, INPUTS_MAX = 3 };

struct data {
  int n; /* 0: absent */
  float values[ELEMS_MAX];
};

static const struct kink {
  const char *torch;
  const char *op, *attr; /* a float attribute; NULL */
  float attr_value;
  struct data inputs[INPUTS_MAX], grads[INPUTS_MAX];
} kinks[] = {
    {"torch.abs(x)", "Abs", NULL, 0, {{3, {0, 1, -1}}}, {{3, {0, 1, -1}}}},
    {"F.relu(x)", "Relu", NULL, 0, {{3, {0, 1, -1}}}, {{3, {0, 1, 0}}}},
    {"F.relu6(x)", "Clip", NULL, 0, {{3, {0, 6, 3}}, {1, {0}}, {1, {6}}}, {{3, {0, 0, 1}}}},
    {"torch.clamp(x, min=0)", "Clip", NULL, 0, {{3, {0, 1, -1}}, {1, {0}}}, {{3, {0, 1, 0}}}},
    {"F.leaky_relu(x, 0.5)", "LeakyRelu", "alpha", 0.5f, {{3, {0, 1, -1}}}, {{3, {0.5f, 1, 0.5f}}}},
    {"F.elu(x, 0.5)", "Elu", "alpha", 0.5f, {{2, {0, 1}}}, {{2, {0.5f, 1}}}},
    {"F.hardswish(x)", "HardSwish", NULL, 0, {{3, {-3, 3, 4}}}, {{3, {0, 1, 1}}}},
    {"F.hardsigmoid(x)", "HardSigmoid", "alpha", 1 / 6.0f, {{3, {-3, 3, 0}}}, {{3, {0, 0, 1 / 6.0f}}}},
    {"F.softshrink(x)", "Shrink", "bias", 0.5f, {{3, {-0.5f, 0.5f, 0.75f}}}, {{3, {0, 0, 1}}}},
    {"F.threshold(x, 1, 0)", "ThresholdedRelu", "alpha", 1, {{2, {1, 2}}}, {{2, {0, 1}}}},
    {"torch.maximum(x, y)",
     "Max",
     NULL,
     0,
     {{3, {1, 1, 2}}, {3, {1, 2, 1}}},
     {{3, {0.5f, 0, 1}}, {3, {0.5f, 1, 0}}}},
    {"torch.minimum(x, y)",
     "Min",
     NULL,
     0,
     {{3, {1, 1, 2}}, {3, {1, 2, 1}}},
     {{3, {0.5f, 1, 0}}, {3, {0.5f, 0, 1}}}},
    {"F.prelu(x, y)", "PRelu", NULL, 0, {{3, {0, 1, -1}}, {1, {0.25f}}}, {{3, {0.25f, 1, 0.25f}}, {1, {-1}}}},
    {"torch.pow(x, y)",
     "Pow",
     NULL,
     0,
     {{4, {0, 0, 2, 0}}, {4, {0, 2, 0, 1}}},
     {{4, {0, 0, 0, 1}}, {4, {0, 0, 0.693147182f, 0}}}},
    {"torch.remainder(x, y)", "Mod", NULL, 0, {{2, {5, -5}}, {2, {3, 3}}}, {{2, {1, 1}}, {2, {-1, 2}}}},
};

static int add_op(struct graph *graph, const struct kink *kink, int *inputs) {
  struct attr attr = attr_of_float(kink->attr, kink->attr_value);
  int n = 0;
  for (; n < INPUTS_MAX && kink->inputs[n].n > 0; n++) {
    struct shape shape = {1, {kink->inputs[n].n}};
    inputs[n] = graph_add_input(graph, NULL, DTYPE_F32, &shape);
  }
  return backward_node(graph, kink->op, (struct value_list){inputs, n},
                       (struct attr_list){&attr, kink->attr != NULL});
}

static void check_grad(const struct kink *kink, int input, const float *grad) {
  for (int i = 0; i < kink->grads[input].n; i++)
    if (fabsf(grad[i] - kink->grads[input].values[i]) > 1e-6f)
      fail_msg("%s: gradient of input %d, element %d is %g, torch's is %g", kink->torch, input, i,
               (double)grad[i], (double)kink->grads[input].values[i]);
}

static void check_kink(const struct kink *kink) {
  struct graph *graph = graph_new();
  int inputs[INPUTS_MAX], y, seed, *grads;
  float ones[ELEMS_MAX] = {1, 1, 1, 1};
  struct err err = ERR_NONE;
  bool *wanted;
  void **data;
  graph->opset = 17;
  y = add_op(graph, kink, inputs);
  seed = graph_add_input(graph, NULL, DTYPE_F32, &(struct shape){1, {kink->inputs[0].n}});
  wanted = arena_new(&graph->arena, (size_t)graph->n_values * sizeof *wanted);
  grads = arena_new(&graph->arena, (size_t)graph->n_values * sizeof *grads);
  for (int i = 0; i < INPUTS_MAX && kink->grads[i].n > 0; i++)
    wanted[inputs[i]] = true;
  assert_int_equal(
      autodiff_run(graph, &(struct derivative){.roots = &y, .seeds = &seed, .n_roots = 1, .wanted = wanted},
                   grads, &err),
      ERR_OK);
  data = arena_new(&graph->arena, (size_t)graph->n_values * sizeof *data);
  for (int i = 0; i < INPUTS_MAX && kink->inputs[i].n > 0; i++)
    data[inputs[i]] = (void *)kink->inputs[i].values;
  data[seed] = ones;
  assert_int_equal(graph_run(graph, data, &graph->arena, &err), ERR_OK);
  for (int i = 0; i < INPUTS_MAX && kink->grads[i].n > 0; i++)
    check_grad(kink, i, data[grads[inputs[i]]]);
  graph_free(graph);
}

static void gradients_at_kinks_ties_and_zeros_are_those_of_pytorch(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof kinks / sizeof kinks[0]; i++)
    check_kink(&kinks[i]);
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(gradients_at_kinks_ties_and_zeros_are_those_of_pytorch),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
