/* A model with the blocks of what replicas hand on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/optim/trained_model.h"
#include "tests/support/model/model_fixture.h"

static struct model *open_trained(struct onnx_build *build, const struct test_spec *spec) {
  struct err err = ERR_NONE;
  struct model *model;
  size_t size;
  const void *bytes = onnx_build_pack(build, &size);
  struct model_source source = {
      .onnx = bytes, .size_bytes = size, .spec = &spec->run, .samples = MODEL_SAMPLES};
  assert_int_equal(trained_model_open(&source, &model, &err), 0);
  return model;
}

/* With AdamW two of each weight. */
static void what_replicas_hand_on_of_each_weight_is_blocks_between_parameters_and_statistics(void **state) {
  Weir__TrainSpec train = WEIR__TRAIN_SPEC__INIT;
  Weir__LocalSpec local = WEIR__LOCAL_SPEC__INIT;
  Weir__OptimizerSpec inner = WEIR__OPTIMIZER_SPEC__INIT, outer = WEIR__OPTIMIZER_SPEC__INIT;
  struct onnx_build build;
  struct test_spec spec;
  struct model *model;
  (void)state;
  spec_init(&spec);
  spec.run.train = &train;
  train.optimizer = &inner;
  train.local = &local;
  local.outer = &outer;
  inner.name = "adamw";
  outer.name = "sgd";
  inner.has_lr = outer.has_lr = true;
  inner.lr = outer.lr = 0.1;
  onnx_build_mlp(&build, 11, 12000, 2);
  model = open_trained(&build, &spec);
  assert_int_equal(model->n_summed_blocks, model->n_param_blocks); /* reset */
  model_close(model);
  local.inner_state = "kept";
  model = open_trained(&build, &spec);
  assert_int_equal(model->kept_elems, 2 * model->param_elems);
  assert_int_equal(model->n_summed_blocks, 3 * model->n_param_blocks);
  for (uint32_t i = 0, at = 0; i < 2 * model->n_param_blocks; i++) {
    const struct block *kept = &model->blocks[model->n_param_blocks + i];
    assert_int_equal(kept->kind, BLOCK_KEPT);
    assert_int_equal(kept->kept_of, i / 2);
    assert_int_equal(kept->kept_n, i % 2);
    assert_int_equal(kept->elems, model->blocks[i / 2].elems);
    assert_int_equal(kept->begin, at);
    at += kept->elems;
  }
  assert_int_equal(model->blocks[model->n_summed_blocks].kind, BLOCK_STATISTICS);
  model_close(model);
  onnx_build_fini(&build);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_replicas_hand_on_of_each_weight_is_blocks_between_parameters_and_statistics),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
