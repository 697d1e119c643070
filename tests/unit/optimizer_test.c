/* Optimizers do what PyTorch's do. The numbers are torch 2.15's, printed by

     import torch
     W = [1.5, -0.25, 3.0]
     G = [[0.25, -1.5, 0.75], [2.0, 0.125, -0.5], [-1.0, 1.0, 0.3], [0.7, -0.2, 0.1]]
     for name, kw in {"plain": dict(), "decay": dict(weight_decay=0.01), "momentum": dict(momentum=0.9),
                      "dampened": dict(momentum=0.9, dampening=0.5, weight_decay=0.01),
                      "nesterov": dict(momentum=0.9, nesterov=True, weight_decay=0.0005)}.items():
         p = torch.nn.Parameter(torch.tensor(W))
         o = torch.optim.SGD([p], lr=0.1, foreach=False, **kw)
         for g in G:
             p.grad = torch.tensor(g)
             o.step()
         print(name, [f"{x:.9g}" for x in p.tolist()]) */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "server/parameters/optimizer.h"

enum { ELEMS = 3, STEPS = 4 };

static const float first_weights[ELEMS] = {1.5f, -0.25f, 3.0f};
static const float grads[STEPS][ELEMS] = {
    {0.25f, -1.5f, 0.75f}, {2.0f, 0.125f, -0.5f}, {-1.0f, 1.0f, 0.3f}, {0.7f, -0.2f, 0.1f}};

/* Slots are updated in place, or in odd steps written to other memory, as while a checkpoint holds them. */
static void train(const Weir__OptimizerSpec *spec, bool is_in_place, float *weights) {
  const struct optimizer_def *optimizer = optimizer_find(spec->name);
  float next[ELEMS], slots[2][ELEMS] = {{0}};
  struct optimizer_update update = {.lr = 0.1, .elems = ELEMS, .weights = weights, .out = next};
  int present = 0;
  memcpy(weights, first_weights, sizeof next);
  for (update.step = 0; update.step < STEPS; update.step++) {
    update.grad = grads[update.step];
    update.slots = optimizer->slots(spec) ? slots[present] : NULL;
    present ^= !is_in_place && update.step % 2;
    update.next_slots = optimizer->slots(spec) ? slots[present] : NULL;
    optimizer->update(spec, &update);
    memcpy(weights, next, sizeof next);
  }
}

static void assert_trains_to(Weir__OptimizerSpec *spec, uint32_t slots, const double *expected) {
  const struct optimizer_def *optimizer = optimizer_find(spec->name);
  float weights[ELEMS], copied[ELEMS];
  struct err err = ERR_NONE;
  assert_int_equal(optimizer_settle(spec, "train.optimizer", &err), 0);
  assert_int_equal(optimizer->slots(spec), slots);
  train(spec, true, weights);
  train(spec, false, copied);
  assert_memory_equal(weights, copied, sizeof weights);
  for (int i = 0; i < ELEMS; i++)
    if (fabs(weights[i] - expected[i]) > 2e-7 * fmax(1, fabs(expected[i])))
      fail_msg("element %d: %.9g, expected %.9g", i, (double)weights[i], expected[i]);
}

static void sgd_descends_the_gradient(void **state) {
  Weir__OptimizerSpec spec = WEIR__OPTIMIZER_SPEC__INIT;
  (void)state;
  assert_trains_to(&spec, 0, (double[]){1.30499995, -0.19250001, 2.93499994});
}

static void sgd_decays_weights(void **state) {
  Weir__OptimizerSpec spec = WEIR__OPTIMIZER_SPEC__INIT;
  (void)state;
  spec.has_weight_decay = 1;
  spec.weight_decay = 0.01;
  assert_trains_to(&spec, 0, (double[]){1.29938376, -0.191826046, 2.92317271});
}

static void sgd_keeps_momentum(void **state) {
  Weir__OptimizerSpec spec = WEIR__OPTIMIZER_SPEC__INIT;
  (void)state;
  spec.has_momentum = 1;
  spec.momentum = 0.9;
  assert_trains_to(&spec, 1, (double[]){0.992025077, 0.0619749725, 2.81057501});
}

static void sgd_dampens_all_gradients_but_the_first(void **state) {
  Weir__OptimizerSpec spec = WEIR__OPTIMIZER_SPEC__INIT;
  (void)state;
  spec.has_momentum = 1;
  spec.momentum = 0.9;
  spec.has_dampening = 1;
  spec.dampening = 0.5;
  spec.has_weight_decay = 1;
  spec.weight_decay = 0.01;
  assert_trains_to(&spec, 1, (double[]){1.19394541, 0.164831921, 2.75790858});
}

static void sgd_looks_ahead_with_nesterov(void **state) {
  Weir__OptimizerSpec spec = WEIR__OPTIMIZER_SPEC__INIT;
  (void)state;
  spec.has_momentum = 1;
  spec.momentum = 0.9;
  spec.has_nesterov = 1;
  spec.nesterov = true;
  spec.has_weight_decay = 1;
  spec.weight_decay = 0.0005;
  assert_trains_to(&spec, 1, (double[]){0.847022176, 0.0883007124, 2.76275229});
}

static void assert_refused(Weir__OptimizerSpec *spec, const char *text) {
  struct err err = ERR_NONE;
  assert_int_equal(optimizer_settle(spec, "train.optimizer", &err), ERR_INVALID);
  assert_string_equal(err.text, text);
}

static void nesterov_needs_momentum_and_no_dampening(void **state) {
  Weir__OptimizerSpec spec = WEIR__OPTIMIZER_SPEC__INIT;
  (void)state;
  spec.has_nesterov = 1;
  spec.nesterov = true;
  assert_refused(&spec, "train.optimizer.nesterov: needs a momentum above 0");
  spec.has_momentum = 1;
  spec.momentum = 0.9;
  spec.has_dampening = 1;
  spec.dampening = 0.5;
  assert_refused(&spec, "train.optimizer.nesterov: needs a dampening of 0, not 0.5");
}

static void an_unknown_optimizer_is_refused_with_the_known_ones(void **state) {
  Weir__OptimizerSpec spec = WEIR__OPTIMIZER_SPEC__INIT;
  (void)state;
  spec.name = (char *)"sdg";
  assert_refused(&spec, "train.optimizer.name: unknown optimizer 'sdg'; known: sgd");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(sgd_descends_the_gradient),
      cmocka_unit_test(sgd_decays_weights),
      cmocka_unit_test(sgd_keeps_momentum),
      cmocka_unit_test(sgd_dampens_all_gradients_but_the_first),
      cmocka_unit_test(sgd_looks_ahead_with_nesterov),
      cmocka_unit_test(nesterov_needs_momentum_and_no_dampening),
      cmocka_unit_test(an_unknown_optimizer_is_refused_with_the_known_ones),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
