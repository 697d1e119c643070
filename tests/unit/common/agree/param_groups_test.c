/* Parameter groups: what a spec may say, which tensors are in which, blocks that do not straddle them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "common/agree/param_groups.h"
#include "common/agree/spec.h"
#include "common/optim/optimizer.h"
#include "model/model.h"
#include "tests/support/model/onnx_build.h"

enum { TEXT_MAX = 2000, SAMPLES = 4 };

static const char *spec_text(const char *optimizer, char text[TEXT_MAX]) {
  snprintf(text, TEXT_MAX,
           "name: groups\nmodel: {onnx: mlp.onnx}\n"
           "data: {train: {format: npy, columns: {x: x.npy, labels: y.npy}}}\n"
           "train: {steps: 3, batch: 4, optimizer: {%s}}\n",
           optimizer);
  return text;
}

static int read_spec(const char *optimizer, Weir__RunSpec **spec, struct err *err) {
  char text[TEXT_MAX];
  spec_text(optimizer, text);
  *err = ERR_NONE;
  if (spec_read("spec", text, strlen(text), spec, err) == 0 && spec_check(*spec, err)) {
    spec_free(*spec);
    *spec = NULL;
  }
  return err->code;
}

static Weir__RunSpec *good_spec(const char *optimizer) {
  struct err err;
  Weir__RunSpec *spec;
  if (read_spec(optimizer, &spec, &err))
    fail_msg("%s", err.text);
  return spec;
}

static void refuse_spec(const char *optimizer, const char *text) {
  struct err err;
  Weir__RunSpec *spec;
  assert_int_equal(read_spec(optimizer, &spec, &err), ERR_INVALID);
  if (!strstr(err.text, text))
    fail_msg("'%s' does not hold '%s'", err.text, text);
}

static void what_a_group_may_not_say_is_named_with_its_path(void **state) {
  (void)state;
  refuse_spec("lr: 1, params: [w1]", "train.optimizer.params: is for an entry of train.optimizer.groups");
  refuse_spec("lr: 1, frozen: true", "train.optimizer.frozen: is for an entry");
  refuse_spec("lr: 1, groups: [{lr: 2}]", "train.optimizer.groups[0].params: is missing");
  refuse_spec("lr: 1, groups: [{params: [b], lr: 2}, {params: [\"\"]}]",
              "train.optimizer.groups[1].params: a pattern has from 1 to 255 letters");
  refuse_spec("lr: 1, groups: [{params: [b], name: adam}]", "train.optimizer.groups[0].name: all groups");
  refuse_spec("lr: 1, groups: [{params: [b], groups: [{params: [w]}]}]",
              "train.optimizer.groups[0].groups: a group has no groups");
  refuse_spec("lr: 1, groups: [{params: [b]}, {params: b}]", "train.optimizer.groups[1].params: a list is");
  refuse_spec("lr: 1, groups: [{params: [b], lrr: 1}]", "unknown key 'lrr' in train.optimizer.groups[0]");
}

static void aliases_make_no_spec_endless(void **state) {
  static const char bomb[] =
      "lr: 1, groups: [{params: &a [x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x], "
      "groups: &b [{params: *a}, {params: *a}, {params: *a}, {params: *a}, {params: *a}, {params: *a}]}, "
      "{groups: &c [{groups: *b}, {groups: *b}, {groups: *b}, {groups: *b}, {groups: *b}, {groups: *b}]}, "
      "{groups: &d [{groups: *c}, {groups: *c}, {groups: *c}, {groups: *c}, {groups: *c}, {groups: *c}]}, "
      "{groups: &e [{groups: *d}, {groups: *d}, {groups: *d}, {groups: *d}, {groups: *d}, {groups: *d}]}, "
      "{groups: &f [{groups: *e}, {groups: *e}, {groups: *e}, {groups: *e}, {groups: *e}, {groups: *e}]}, "
      "{groups: &g [{groups: *f}, {groups: *f}, {groups: *f}, {groups: *f}, {groups: *f}, {groups: *f}]}, "
      "{groups: [{groups: *g}, {groups: *g}, {groups: *g}, {groups: *g}, {groups: *g}, {groups: *g}]}]";
  (void)state;
  refuse_spec("lr: 1, groups: &a [{groups: *a}]", "nested more than 16 deep");
  refuse_spec(bomb, "with its aliases written out, the spec is too long");
}

static void too_many_groups_or_patterns_are_refused(void **state) {
  Weir__OptimizerSpec optimizer = WEIR__OPTIMIZER_SPEC__INIT, group = WEIR__OPTIMIZER_SPEC__INIT;
  Weir__OptimizerSpec *groups[101];
  char *patterns[11], pattern[] = "w";
  struct err err = ERR_NONE;
  (void)state;
  for (int i = 0; i < 101; i++)
    groups[i] = &group;
  for (int i = 0; i < 11; i++)
    patterns[i] = pattern;
  group.params = patterns;
  group.n_params = 10;
  optimizer.groups = groups;
  optimizer.n_groups = 100;
  assert_int_equal(param_groups_check(&optimizer, &err), 0);
  group.n_params = 11;
  assert_int_equal(param_groups_check(&optimizer, &err), ERR_INVALID);
  assert_string_equal(err.text, "train.optimizer.groups: 1100 patterns, at most 1000 are taken");
  optimizer.n_groups = 101;
  assert_int_equal(param_groups_check(&optimizer, &err), ERR_INVALID);
  assert_string_equal(err.text, "train.optimizer.groups: 101 of them, at most 100 are taken");
}

static void a_group_has_what_it_says_and_the_rest_from_the_optimizer(void **state) {
  Weir__RunSpec *spec = good_spec("name: sgd, lr: 0.5, momentum: 0.9, weight_decay: 0.01, groups: "
                                  "[{params: [b1], weight_decay: 0, nesterov: true}, {params: [b2], lr: 2}]");
  struct err err = ERR_NONE;
  const Weir__OptimizerSpec *group;
  (void)state;
  for (int times = 0; times < 2; times++) { /* settling again changes nothing */
    assert_int_equal(optimizer_settle(spec->train->optimizer, &err), 0);
    group = optimizer_group(spec->train->optimizer, 0);
    assert_true(group->lr == 0.5 && group->weight_decay == 0.01 && !group->nesterov);
    assert_int_equal(group->n_groups, 2);
    group = optimizer_group(spec->train->optimizer, 1);
    assert_string_equal(group->name, "sgd");
    assert_true(group->lr == 0.5 && group->momentum == 0.9 && group->has_dampening);
    assert_true(group->weight_decay == 0 && group->nesterov);
    assert_int_equal(group->n_groups, 0);
    assert_string_equal(group->params[0], "b1");
    group = optimizer_group(spec->train->optimizer, 2);
    assert_true(group->lr == 2 && group->weight_decay == 0.01 && !group->nesterov);
  }
  spec_free(spec);
}

static void refuse_options(const char *optimizer, const char *text) {
  Weir__RunSpec *spec = good_spec(optimizer);
  struct err err = ERR_NONE;
  assert_int_equal(optimizer_settle(spec->train->optimizer, &err), ERR_INVALID);
  if (!strstr(err.text, text))
    fail_msg("'%s' does not hold '%s'", err.text, text);
  spec_free(spec);
}

static void options_of_a_group_are_checked_as_the_optimizers(void **state) {
  (void)state;
  refuse_spec("lr: 1, groups: [{params: [b1], lr: 0}]", "train.optimizer.groups[0].lr: must be above 0");
  refuse_options("lr: 1, groups: [{params: [b1]}, {params: [b2], momentum: -1}]",
                 "train.optimizer.groups[1].momentum: must be at least 0");
  refuse_options("lr: 1, groups: [{params: [b1], rho: 0.5}]",
                 "train.optimizer.groups[0].rho: is not an option of 'sgd'");
  refuse_options("lr: 1, momentum: 0.9, nesterov: true, groups: [{params: [b1], momentum: 0}]",
                 "train.optimizer.groups[0].nesterov: needs a momentum above 0");
}

static int open_mlp(const char *optimizer, int64_t width, struct model **model, struct err *err) {
  Weir__RunSpec *spec = good_spec(optimizer);
  struct onnx_build build;
  const void *bytes;
  size_t size;
  int code;
  onnx_build_mlp(&build, 3, width, 2); /* w1 [3,width], b1, w2 [width,2], b2 */
  bytes = onnx_build_pack(&build, &size);
  *err = ERR_NONE;
  code =
      model_open(&(struct model_source){.onnx = bytes, .size_bytes = size, .spec = spec, .samples = SAMPLES},
                 model, err);
  onnx_build_fini(&build);
  spec_free(spec);
  return code;
}

static struct model *good_mlp(const char *optimizer, int64_t width) {
  struct model *model;
  struct err err;
  if (open_mlp(optimizer, width, &model, &err))
    fail_msg("%s", err.text);
  return model;
}

static void the_first_group_that_names_a_tensor_has_it(void **state) {
  struct model *model =
      good_mlp("lr: 1, groups: [{params: [b2, \"?1\"], lr: 2}, {params: [\"b*\", \"w?\"], lr: 3}]", 4);
  (void)state;
  assert_int_equal(model->n_params, 4);
  assert_int_equal(model->params[0].group, 1); /* w1 */
  assert_int_equal(model->params[1].group, 1);
  assert_int_equal(model->params[2].group, 2); /* w2 */
  assert_int_equal(model->params[3].group, 1);
  model_close(model);
}

static void assert_block(const struct model *model, uint32_t index, uint64_t begin, uint32_t elems,
                         uint32_t group) {
  const struct block *block = &model->blocks[index];
  assert_int_equal(block->begin, begin);
  assert_int_equal(block->elems, elems);
  assert_int_equal(block->group, group);
}

static void no_block_straddles_two_groups(void **state) {
  struct model *model = good_mlp("lr: 1, groups: [{params: [b1], lr: 2}]", 4);
  (void)state;
  assert_int_equal(model->n_param_blocks, 3);
  assert_block(model, 0, 0, 12, 0);
  assert_block(model, 1, 12, 4, 1);
  assert_block(model, 2, 16, 10, 0); /* w2 and b2 */
  model_close(model);

  model = good_mlp("lr: 1, groups: [{params: [\"w?\"], lr: 2}]", 30000);
  assert_int_equal(model->n_param_blocks, 5);
  assert_block(model, 0, 0, BLOCK_ELEMS_MAX, 1);
  assert_block(model, 1, BLOCK_ELEMS_MAX, 90000 - BLOCK_ELEMS_MAX, 1);
  assert_block(model, 2, 90000, 30000, 0);
  assert_block(model, 3, 120000, 60000, 1);
  assert_block(model, 4, 180000, 2, 0);
  assert_int_equal(model->blocks[5].kind, BLOCK_STATISTICS);
  model_close(model);
}

static void a_frozen_group_is_not_trained(void **state) {
  struct model *model = good_mlp("lr: 1, groups: [{params: [\"?1\"], frozen: true}, {params: [b2]}]", 4);
  (void)state;
  assert_int_equal(model->n_params, 2);
  assert_string_equal(model->params[0].name, "w2");
  assert_int_equal(model->params[0].group, 0);
  assert_int_equal(model->params[1].group, 2);
  model_close(model);
}

static void refuse_mlp(const char *optimizer, const char *text) {
  struct model *model;
  struct err err;
  assert_int_equal(open_mlp(optimizer, 4, &model, &err), ERR_INVALID);
  assert_string_equal(err.text, text);
}

static void a_pattern_that_names_nothing_trained_is_refused(void **state) {
  (void)state;
  refuse_mlp("lr: 1, groups: [{params: [b1]}, {params: [b2, norm*]}]",
             "train.optimizer.groups[1].params: 'norm*' matches no tensor that is trained");
  refuse_mlp("lr: 1, groups: [{params: [conv*], frozen: true}]",
             "train.optimizer.groups[0].params: 'conv*' matches no initializer of the model");
  refuse_mlp("lr: 1, groups: [{params: [b1], frozen: true}, {params: [b1]}]",
             "train.optimizer.groups[1].params: 'b1' matches no tensor that is trained");
  refuse_mlp("lr: 1, groups: [{params: [\"b*\"]}, {params: [b1, b2]}]",
             "train.optimizer.groups[1].params: all that they match is in groups before it");
  refuse_mlp("lr: 1, groups: [{params: [\"*\"], frozen: true}]",
             "nothing to train: no f32 initializer that is not frozen leads to the loss");
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_a_group_may_not_say_is_named_with_its_path),
      cmocka_unit_test(aliases_make_no_spec_endless),
      cmocka_unit_test(too_many_groups_or_patterns_are_refused),
      cmocka_unit_test(a_group_has_what_it_says_and_the_rest_from_the_optimizer),
      cmocka_unit_test(options_of_a_group_are_checked_as_the_optimizers),
      cmocka_unit_test(the_first_group_that_names_a_tensor_has_it),
      cmocka_unit_test(no_block_straddles_two_groups),
      cmocka_unit_test(a_frozen_group_is_not_trained),
      cmocka_unit_test(a_pattern_that_names_nothing_trained_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
