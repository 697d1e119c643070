/* What memory a model needs, and what is said when it is too much. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "tests/support/model/onnx_build.h"
#include "worker/backend/backend.h"
#include "worker/backend/memory.h"
#include "worker/train/run/load_memory.h"

/* x f32[N,8,32,32] -> three convolutions with Relu -> pooled -> y f32[N,32] */
static struct model *open_cnn(int64_t samples) {
  struct onnx_build build;
  struct model *model;
  struct err err = ERR_NONE;
  size_t size;
  const void *bytes;
  onnx_build_init(&build, 17);
  onnx_build_input(&build, "x", DIMS(-1, 8, 32, 32));
  onnx_build_weight(&build, "w1", DIMS(32, 8, 3, 3));
  onnx_build_weight(&build, "w2", DIMS(32, 32, 3, 3));
  onnx_build_weight(&build, "w3", DIMS(32, 32, 1, 1));
  onnx_build_node(&build, "Conv", NULL, "x,w1", "a");
  onnx_build_node(&build, "Relu", NULL, "a", "b");
  onnx_build_node(&build, "Conv", NULL, "b,w2", "c");
  onnx_build_node(&build, "Relu", NULL, "c", "d");
  onnx_build_node(&build, "Conv", NULL, "d,w3", "e");
  onnx_build_node(&build, "GlobalAveragePool", NULL, "e", "f");
  onnx_build_node(&build, "Flatten", NULL, "f", "y");
  onnx_build_output(&build, "y");
  bytes = onnx_build_pack(&build, &size);
  if (model_open(&(struct model_source){.onnx = bytes, .size_bytes = size, .samples = samples}, &model, &err))
    fail_msg("%s", err.text);
  onnx_build_fini(&build);
  return model;
}

static void the_estimate_is_within_a_factor_of_two_of_what_backends_take(void **state) {
  (void)state;
  for (int64_t samples = 8; samples <= 32; samples *= 4)
    for (int b = 0; backend_at(b); b++) {
      struct model *model = open_cnn(samples);
      struct backend_request request = {
          .graph = model->train, .watched = &model->train_loss.loss_sum, .n_watched = 1};
      struct backend_program *program;
      struct model_memory memory;
      struct err err = ERR_NONE;
      uint64_t estimate, taken;
      model_memory(model, &memory);
      estimate = memory.train_bytes + memory.kept_bytes;
      assert_int_equal(backend_at(b)->prepare(&request, &program, &err), 0);
      taken = backend_at(b)->memory_bytes(program);
      assert_in_range(taken, estimate / 2, 2 * estimate);
      assert_true(memory.eval_bytes < memory.train_bytes);
      backend_at(b)->release(program);
      model_close(model);
    }
}

static void a_run_that_does_not_fit_is_refused_with_a_microbatch_that_does(void **state) {
  const uint64_t mib = 1 << 20;
  struct load_memory memory = {.model = {.train_bytes = 640 * mib,
                                         .eval_bytes = 160 * mib,
                                         .kept_bytes = 20 * mib,
                                         .weights_bytes = 10 * mib,
                                         .file_bytes = 10 * mib,
                                         .gradients_bytes = 10 * mib},
                               .executors = 4,
                               .versions = 2,
                               .has_eval = true,
                               .batch = 96,
                               .microbatch_samples = 16};
  struct err err = ERR_NONE;
  (void)state;
  memory.available_bytes = 3320 * mib; /* 4 * 800 + 4 * 20 + 3 * 10 + 10 */
  assert_int_equal(load_memory_check(&memory, &err), 0);
  memory.available_bytes -= 1;
  assert_int_equal(load_memory_check(&memory, &err), ERR_NO_MEMORY);
  assert_string_equal(err.text,
                      "the run needs 3320 MiB here (4 executors with 800 MiB of activations each, 120 MiB "
                      "of weights), and 3320 MiB are available: microbatches of 12 samples would fit "
                      "(train.microbatches: 8), or fewer threads");
  memory.available_bytes = 130 * mib;
  assert_int_equal(load_memory_check(&memory, &err), ERR_NO_MEMORY);
  assert_non_null(strstr(err.text, "not even microbatches of one sample fit"));
  memory.has_eval = false;
  memory.available_bytes = 2680 * mib;
  assert_int_equal(load_memory_check(&memory, &err), 0);
}

static void a_run_that_does_not_fit_on_a_gpu_is_refused_with_a_microbatch_that_does(void **state) {
  const uint64_t mib = 1 << 20;
  struct load_memory memory = {
      .model = {.train_bytes = 640 * mib, .eval_bytes = 160 * mib, .weights_bytes = 10 * mib},
      .device = "cuda:1",
      .executors = 1,
      .has_eval = true,
      .batch = 96,
      .microbatch_samples = 16,
      .available_bytes = 820 * mib}; /* 800 + 2 * 10 */
  struct err err = ERR_NONE;
  (void)state;
  assert_int_equal(load_memory_check(&memory, &err), 0);
  memory.available_bytes -= mib;
  assert_int_equal(load_memory_check(&memory, &err), ERR_NO_MEMORY);
  assert_string_equal(err.text,
                      "the run needs 820 MiB on cuda:1 (800 MiB of activations, 20 MiB of weights), "
                      "which has 819 MiB: microbatches of 12 samples would fit "
                      "(train.microbatches: 8)");
  memory.model.gradients_bytes = 8 * mib;
  memory.versions = 2; /* of a group, of what is trained */
  memory.available_bytes = 836 * mib;
  assert_int_equal(load_memory_check(&memory, &err), 0);
  memory.available_bytes -= mib;
  assert_int_equal(load_memory_check(&memory, &err), ERR_NO_MEMORY);
  memory.versions = 0;
  /* The device knew better than the estimate. */
  memory.available_bytes = 1000 * mib;
  err_set(&err, ERR_NO_MEMORY, "cuda:1 is full");
  assert_int_equal(load_memory_advise(&memory, &err), ERR_NO_MEMORY);
  assert_string_equal(err.text,
                      "cuda:1 is full: microbatches of 8 samples would fit (train.microbatches: 12)");
}

static void memory_that_is_not_there_is_refused(void **state) {
  struct err err = ERR_NONE;
  unsigned char *memory = backend_memory_new(3 << 20, &err);
  (void)state;
  assert_non_null(memory);
  assert_int_equal(memory[0] | memory[(3 << 20) - 1], 0);
  free(memory);
  assert_null(backend_memory_new((size_t)1 << 60, &err));
  assert_int_equal(err.code, ERR_NO_MEMORY);
  assert_null(backend_memory_new(SIZE_MAX, &err));
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_estimate_is_within_a_factor_of_two_of_what_backends_take),
      cmocka_unit_test(a_run_that_does_not_fit_is_refused_with_a_microbatch_that_does),
      cmocka_unit_test(a_run_that_does_not_fit_on_a_gpu_is_refused_with_a_microbatch_that_does),
      cmocka_unit_test(memory_that_is_not_there_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
