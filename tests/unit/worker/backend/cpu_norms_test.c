/* Batch norms that compute their activations, too, beside the same norms and activations by themselves, which
   they are where the caller watches what the norms make. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "common/base/memory.h"
#include "tests/support/worker/network.h"

enum { CHANNELS = 20, SIDE = 9, NORMS = 2 };

/* Of Clip: between 0 and `high`. */
static int add_activation(struct network *f, const char *op, int x, float high) {
  if (strcmp(op, "Clip") != 0)
    return add_node(f, op, VALUES(x), ATTRS_NONE);
  int low = graph_add_constant_f32(f->graph, 0);
  return add_node(f, op, VALUES(x, low, graph_add_constant_f32(f->graph, high)), ATTRS_NONE);
}

/* conv-norm-activation twice, mean-gemm. The norms' results are watched, too, if they are to be made. */
static void network_init_norms(struct network *f, const char *op, bool are_watched) {
  struct shape images = {4, {BATCH, 3, SIDE, SIDE}};
  int norms[NORMS], x, channels = 3;
  *f = (struct network){.graph = graph_new()};
  f->graph->opset = 17;
  f->graph->is_training = true;
  x = graph_add_input(f->graph, "images", DTYPE_F32, &images);
  for (int n = 0; n < NORMS; n++, channels = CHANNELS) {
    norms[n] = add_batch_norm(f, add_conv(f, x, channels, CHANNELS, 1), CHANNELS);
    x = add_activation(f, op, norms[n], 0.75f);
  }
  add_backward(f, add_gemm(f, add_mean(f, x), CHANNELS, CLASSES));
  for (int n = 0; n < NORMS && are_watched; n++)
    f->watched[f->n_watched++] = norms[n];
  network_feed(f, &images);
}

static size_t bytes_of(const struct network *f) {
  struct backend_program *program = network_prepare("cpu", f);
  size_t bytes = backend_of("cpu")->memory_bytes(program);
  backend_of("cpu")->release(program);
  return bytes;
}

static void check_fused(const char *op) {
  struct network fused, apart;
  struct answer got, want, near;
  network_init_norms(&fused, op, false);
  network_init_norms(&apart, op, true);
  network_run_once("cpu", &fused, &got);
  network_run_once("cpu", &apart, &want);
  network_run_once("ref", &fused, &near);
  answer_check_near(&got, &near, 1e-5);
  for (int w = 0; w < fused.n_watched; w++)
    assert_memory_equal(got.values[w], want.values[w], watched_bytes(&fused, w));
  assert_true(bytes_of(&fused) < bytes_of(&apart)); /* what the norms make is not there */
  answer_fini(&got);
  answer_fini(&want);
  answer_fini(&near);
  network_fini(&fused);
  network_fini(&apart);
}

static void norms_with_relu_have_the_bits_of_norms_and_relu(void **state) {
  (void)state;
  check_fused("Relu");
}

static void norms_with_clip_have_the_bits_of_norms_and_clip(void **state) {
  (void)state;
  check_fused("Clip");
}

/* The second activation reads what the first norm made, too. */
static void a_norm_that_others_read_is_made(void **state) {
  struct shape images = {4, {BATCH, 3, SIDE, SIDE}};
  struct network f;
  struct answer got, want;
  (void)state;
  f = (struct network){.graph = graph_new()};
  f.graph->opset = 17;
  f.graph->is_training = true;
  int x = graph_add_input(f.graph, "images", DTYPE_F32, &images);
  int norm = add_batch_norm(&f, add_conv(&f, x, 3, CHANNELS, 1), CHANNELS);
  int low = add_activation(&f, "Clip", norm, 0.25f), high = add_activation(&f, "Relu", norm, 0);
  x = add_node(&f, "Add", VALUES(low, high), ATTRS_NONE);
  add_backward(&f, add_gemm(&f, add_mean(&f, x), CHANNELS, CLASSES));
  network_feed(&f, &images);
  network_run_once("cpu", &f, &got);
  network_run_once("ref", &f, &want);
  answer_check_near(&got, &want, 1e-5);
  answer_fini(&got);
  answer_fini(&want);
  network_fini(&f);
}

/* Each part by itself, and another execution between them that has other weights. */
static void the_backward_part_has_what_the_forward_part_was_computed_with(void **state) {
  const struct backend_def *cpu = backend_of("cpu");
  struct network f;
  struct answer once, parts;
  const float **others;
  (void)state;
  network_init_norms(&f, "Relu", false);
  network_run_once("cpu", &f, &once);
  answer_init(&parts, &f);
  struct backend_program *program =
      network_prepare_with("cpu", &f, &(struct backend_options){.n_contexts = 2});
  others = mem_new((size_t)f.graph->n_values * sizeof *others);
  for (int w = 0; w < f.n_weights; w++) /* the first serves for all that are no larger */
    others[f.weights[w]] =
        watched_bytes(&f, 1 + w) <= watched_bytes(&f, 1) ? f.graph->values[f.weights[0]].data : NULL;
  struct backend_run run = {
      .part = BACKEND_FORWARD, .inputs = f.inputs, .on_value = keep_value, .user = &parts};
  struct backend_run other = {.part = BACKEND_FORWARD, .in = 1, .inputs = f.inputs, .weights = others};
  struct err err = ERR_NONE;
  assert_int_equal(cpu->run(program, &run, &err), 0);
  other.weights_version = 2;
  assert_int_equal(cpu->run(program, &other, &err), 0);
  run.part = BACKEND_BACKWARD;
  assert_int_equal(cpu->run(program, &run, &err), 0);
  assert_true(answer_is_same(&once, &parts));
  cpu->release(program);
  free(others);
  answer_fini(&once);
  answer_fini(&parts);
  network_fini(&f);
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(norms_with_relu_have_the_bits_of_norms_and_relu),
      cmocka_unit_test(norms_with_clip_have_the_bits_of_norms_and_clip),
      cmocka_unit_test(a_norm_that_others_read_is_made),
      cmocka_unit_test(the_backward_part_has_what_the_forward_part_was_computed_with),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
