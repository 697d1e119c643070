/* precision bf16 on a CPU: what is rounded, and what is not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "common/agree/random.h"
#include "common/base/half.h"
#include "tests/support/worker/network.h"
#include "worker/backend/cpu/reals.h"

static const struct backend_options half = {.precision = PRECISION_BF16};

static void skip_without_bf16(void) {
  struct err err = ERR_NONE;
  if (backend_check_precision(backend_of("cpu"), PRECISION_BF16, &err) == ERR_OK)
    return;
  print_message("%s\n", err.text);
  skip();
}

/* The gradient of the first weight is one product; of the second the sum of two; of the third one that is
   transposed. */
static void network_init_products(struct network *f) {
  struct shape image = {2, {BATCH, 40}};
  *f = (struct network){.graph = graph_new()};
  f->graph->opset = 17;
  f->graph->is_training = true;
  int x = graph_add_input(f->graph, "images", DTYPE_F32, &image);
  int once = add_weight(f, (struct shape){2, {40, 24}}, 0.3f);
  int twice = add_weight(f, (struct shape){2, {24, 24}}, 0.3f);
  int turned = add_weight(f, (struct shape){2, {CLASSES, 24}}, 0.3f);
  x = add_node(f, "Relu", VALUES(add_node(f, "MatMul", VALUES(x, once), ATTRS_NONE)), ATTRS_NONE);
  x = add_node(f, "Relu", VALUES(add_node(f, "MatMul", VALUES(x, twice), ATTRS_NONE)), ATTRS_NONE);
  x = add_node(f, "MatMul", VALUES(x, twice), ATTRS_NONE);
  int last = add_node(f, "Transpose", VALUES(turned), ATTRS_NONE);
  add_backward(f, add_node(f, "MatMul", VALUES(x, last), ATTRS_NONE));
  network_feed(f, &image);
}

static void network_run_half(struct network *f, struct answer *a) {
  struct backend_program *program = network_prepare_with("cpu", f, &half);
  answer_init(a, f);
  network_run("cpu", program, NULL, 1, a);
  backend_of("cpu")->release(program);
}

/* Of what is not zero, the part that has bits beyond those of a sum of two bf16 numbers that are near each
   other. */
static double fine_part(const struct network *f, const struct answer *a, int watch) {
  size_t n = watched_bytes(f, watch) / sizeof(float), fine = 0, there = 0;
  for (size_t i = 0; i < n; i++) {
    uint32_t bits;
    memcpy(&bits, &a->values[watch][i], sizeof bits);
    there += bits << 1 != 0;
    fine += (bits & 0xfff) != 0;
  }
  assert_true(there > 0);
  return (double)fine / (double)there;
}

static void gradients_of_weights_are_not_rounded(void **state) {
  (void)state;
  struct network f;
  struct answer a;
  skip_without_bf16();
  network_init_products(&f);
  network_run_half(&f, &a);
  for (int w = 0; w < f.n_weights; w++)
    assert_true(fine_part(&f, &a, 1 + w) > 0.5);
  answer_fini(&a);
  network_fini(&f);
}

static void gradients_agree_with_ref_but_for_what_is_rounded(void **state) {
  (void)state;
  struct network f;
  struct answer got, whole, want;
  skip_without_bf16();
  network_init_products(&f);
  network_run_half(&f, &got);
  network_run_once("cpu", &f, &whole);
  network_run_once("ref", &f, &want);
  answer_check_near(&got, &want, 0.03);
  for (int w = 0; w < f.n_weights; w++)
    assert_memory_not_equal(got.values[1 + w], whole.values[1 + w], watched_bytes(&f, 1 + w));
  answer_fini(&got);
  answer_fini(&whole);
  answer_fini(&want);
  network_fini(&f);
}

/* Scores that are never made whole. */
static void network_init_linear(struct network *f) {
  struct shape image = {2, {BATCH, 40}}, labels = {1, {BATCH}};
  struct attr turned = {.name = "trans_weight", .type = ATTR_INT, .i = 1};
  *f = (struct network){.graph = graph_new()};
  f->graph->opset = 17;
  f->graph->is_training = true;
  int x = graph_add_input(f->graph, "images", DTYPE_F32, &image);
  int y = graph_add_input(f->graph, "labels", DTYPE_I64, &labels);
  int w = add_weight(f, (struct shape){2, {CLASSES, 40}}, 0.3f);
  int b = add_weight(f, (struct shape){1, {CLASSES}}, 0.3f);
  add_gradients(f,
                graph_add_node(f->graph, "LinearCrossEntropy", VALUES(x, w, b, y, -1), 4, ATTR_LIST(turned))
                    ->outputs[0]);
  network_feed(f, &image);
}

static void a_linear_loss_has_bf16_factors(void **state) {
  (void)state;
  struct network f;
  struct answer got, whole;
  skip_without_bf16();
  network_init_linear(&f);
  network_run_half(&f, &got);
  network_run_once("cpu", &f, &whole);
  answer_check_near(&got, &whole, 0.03);
  for (int w = 0; w < f.n_watched; w++)
    assert_memory_not_equal(got.values[w], whole.values[w], watched_bytes(&f, w));
  answer_fini(&got);
  answer_fini(&whole);
  network_fini(&f);
}

/* Halves between two numbers, infinities, NaN, and bits that are drawn. */
static void rows_are_rounded_to_nearest_with_ties_to_even(void **state) {
  (void)state;
  static const uint32_t edges[] = {0,          0x80000000, 0x3f808000, 0x3f818000, 0x3f808001, 0x3f807fff,
                                   0x7f7fffff, 0x7f800000, 0xff800000, 0x7f800001, 0x7fffffff, 0xffc00000};
  enum { EDGES = sizeof edges / sizeof edges[0], N = 4096 };
  float wide[N], again[N];
  uint16_t narrow[N];
  for (int i = 0; i < N; i++) {
    uint32_t bits = i < EDGES ? edges[i] : (uint32_t)random_bits(random_key(1, 0, 0, 0), (uint64_t)i);
    if ((bits >> 23 & 0xff) == 0)
      bits &= 0x80000000; /* subnormals are zeros to all that computes */
    memcpy(&wide[i], &bits, sizeof bits);
  }
  reals_narrow(wide, N, 1, narrow, 0);
  reals_widen(narrow, 0, N, again);
  for (int i = 0; i < N; i++) {
    float exact = f32_of_bf16(narrow[i]);
    bool is_nan = wide[i] != wide[i];
    assert_true(is_nan ? exact != exact : narrow[i] == bf16_of_f32(wide[i]));
    assert_memory_equal(&again[i], &exact, sizeof exact);
  }
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(gradients_of_weights_are_not_rounded),
      cmocka_unit_test(gradients_agree_with_ref_but_for_what_is_rounded),
      cmocka_unit_test(a_linear_loss_has_bf16_factors),
      cmocka_unit_test(rows_are_rounded_to_nearest_with_ties_to_even),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
