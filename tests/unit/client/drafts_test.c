/* What `weir init` makes of models and of data that it finds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client/drafts/data_guess.h"
#include "common/specs/yaml_text.h"
#include "common/agree/float_setting.h"
#include "tests/support/model/onnx_build.h"

/* x of these dimensions times a weight -> before -> op -> output. */
struct end {
  const char *op, *output;
  const int64_t *dims;
  int rank;
  int64_t in, out;
};

static void begin_model(struct onnx_build *build, const struct end *end) {
  onnx_build_init(build, 17);
  onnx_build_input(build, "x", end->dims, end->rank);
  onnx_build_weight(build, "w", DIMS(end->in, end->out));
  onnx_build_node(build, "MatMul", NULL, "x,w", "before");
  onnx_build_node(build, end->op, NULL, "before", end->output);
  onnx_build_output(build, end->output);
}

static void find(struct onnx_build *build, struct task *task) {
  struct err err = ERR_NONE;
  size_t size;
  const void *bytes = onnx_build_pack(build, &size);
  if (task_find(bytes, size, task, &err))
    fail_msg("%s", err.text);
}

static void the_loss_follows_from_how_a_model_ends(void **state) {
  const struct {
    struct end end;
    const char *loss;
    enum task_data data;
    bool has_note;
  } cases[] = {
      {{"Relu", "y", DIMS(-1, 4), 4, 3}, "cross_entropy", TASK_TABLE, false},
      {{"LogSoftmax", "y", DIMS(-1, 4), 4, 3}, "nll", TASK_TABLE, false},
      {{"Softmax", "y", DIMS(-1, 4), 4, 3}, "cross_entropy", TASK_TABLE, true},
      {{"Sigmoid", "y", DIMS(-1, 4), 4, 3}, "bce_with_logits", TASK_ARRAYS, true},
      {{"Relu", "y", DIMS(-1, 4), 4, 1}, "mse", TASK_TABLE, true},
      {{"Relu", "logit", DIMS(-1, 4), 4, 1}, "bce_with_logits", TASK_TABLE, false},
      {{"Relu", "y", DIMS(-1, 4), 4, 4}, "mse", TASK_ARRAYS, false},
      {{"Relu", "logits", DIMS(-1, 4), 4, 4}, "cross_entropy", TASK_TABLE, false},
      {{"Relu", "y", DIMS(-1, 2, 4), 4, 3}, "cross_entropy", TASK_ARRAYS, false},
  };
  (void)state;
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    struct onnx_build build;
    struct task task;
    begin_model(&build, &cases[c].end);
    find(&build, &task);
    assert_string_equal(task.loss, cases[c].loss);
    assert_int_equal(task.data, cases[c].data);
    assert_int_equal(task.note != NULL, cases[c].has_note);
    assert_true(task.model->has_labels);
    task_fini(&task);
    onnx_build_fini(&build);
  }
}

static void an_output_of_one_number_is_the_loss_and_its_inputs_are_columns(void **state) {
  struct onnx_build build;
  struct task task;
  (void)state;
  onnx_build_init(&build, 17);
  onnx_build_input(&build, "x", DIMS(-1, 4));
  onnx_build_input(&build, "unused", DIMS(-1, 4));
  onnx_build_input(&build, "target", DIMS(-1, 3));
  onnx_build_weight(&build, "w", DIMS(4, 3));
  onnx_build_node(&build, "MatMul", NULL, "x,w", "y");
  onnx_build_node(&build, "Sub", NULL, "y,target", "difference");
  onnx_build_int(&build, onnx_build_node(&build, "ReduceMean", NULL, "difference", "mean"), "keepdims", 0);
  onnx_build_output(&build, "y");
  onnx_build_output(&build, "mean");
  find(&build, &task);
  assert_string_equal(task.loss, "mean");
  assert_int_equal(task.data, TASK_ARRAYS);
  assert_int_equal(task.model->n_columns, 2);
  assert_string_equal(task_input(&task, 0)->name, "x");
  assert_string_equal(task_input(&task, 1)->name, "target");
  assert_false(task.model->has_labels);
  task_fini(&task);
  onnx_build_fini(&build);
}

static void a_model_without_outputs_is_refused(void **state) {
  struct onnx_build build;
  struct task task;
  struct err err = ERR_NONE;
  size_t size;
  const void *bytes;
  (void)state;
  onnx_build_init(&build, 17);
  onnx_build_input(&build, "x", DIMS(-1, 4));
  onnx_build_node(&build, "Relu", NULL, "x", "y");
  bytes = onnx_build_pack(&build, &size);
  assert_int_equal(task_find(bytes, size, &task, &err), ERR_INVALID);
  task_fini(&task);
  onnx_build_fini(&build);
}

/* A Reshape to [2,4] fits a batch of 2 alone. */
static void a_model_that_was_exported_for_one_batch_is_given_it(void **state) {
  struct onnx_build build;
  struct task task;
  Onnx__TensorProto *shape;
  const int64_t dims[] = {2, 4};
  (void)state;
  onnx_build_init(&build, 17);
  onnx_build_input(&build, "x", DIMS(2, 2, 2));
  shape = onnx_build_tensor(&build, "shape", ONNX__TENSOR_PROTO__DATA_TYPE__INT64, DIMS(2));
  onnx_build_raw(&build, shape, dims, sizeof dims);
  onnx_build_add(&build, shape);
  onnx_build_weight(&build, "w", DIMS(4, 3));
  onnx_build_node(&build, "Reshape", NULL, "x,shape", "flat");
  onnx_build_node(&build, "MatMul", NULL, "flat,w", "y");
  onnx_build_output(&build, "y");
  find(&build, &task);
  assert_int_equal(task.samples, 2);
  task_fini(&task);
  onnx_build_fini(&build);
}

static void a_microbatch_takes_no_more_memory_than_a_gibibyte(void **state) {
  const struct end end = {"Relu", "y", DIMS(-1, 1 << 14, 8), 8, 1 << 11};
  struct onnx_build build;
  struct task task;
  (void)state;
  begin_model(&build, &end);
  find(&build, &task);
  assert_true(task.samples >= 1 && task.samples <= 4);
  task_fini(&task);
  onnx_build_fini(&build);
}

/* Of an only input, which is fed from the column that is not called "labels". */
static void an_input_that_is_called_labels_has_a_column_of_another_name(void **state) {
  struct onnx_build build;
  struct task task;
  struct data_guess guess;
  (void)state;
  onnx_build_init(&build, 17);
  onnx_build_input(&build, "labels", DIMS(-1, 4));
  onnx_build_weight(&build, "w", DIMS(4, 3));
  onnx_build_node(&build, "MatMul", NULL, "labels,w", "y");
  onnx_build_output(&build, "y");
  find(&build, &task);
  data_guess_find(&task, "/proc/self/fdinfo", &guess); /* a folder of no data */
  assert_false(guess.is_found);
  assert_string_equal(guess.train, "{format: csv, file: train.csv, header: false, columns: {labels_input: "
                                   "\"1:4\", labels: \"5\"}}");
  data_guess_fini(&guess);
  task_fini(&task);
  onnx_build_fini(&build);
}

static void names_are_quoted_where_yaml_would_read_them_otherwise(void **state) {
  static const char *const cases[][2] = {{"image.1", "image.1"},
                                         {"a b", "\"a b\""},
                                         {"", "\"\""},
                                         {"1", "\"1\""},
                                         {"a\"\\\n", "\"a\\\"\\\\\\x0a\""},
                                         {"onnx::Gemm_3", "\"onnx::Gemm_3\""}};
  (void)state;
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    char *text = yaml_quoted(cases[c][0]);
    assert_string_equal(text, cases[c][1]);
    free(text);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_loss_follows_from_how_a_model_ends),
      cmocka_unit_test(an_output_of_one_number_is_the_loss_and_its_inputs_are_columns),
      cmocka_unit_test(a_model_without_outputs_is_refused),
      cmocka_unit_test(a_model_that_was_exported_for_one_batch_is_given_it),
      cmocka_unit_test(a_microbatch_takes_no_more_memory_than_a_gibibyte),
      cmocka_unit_test(an_input_that_is_called_labels_has_a_column_of_another_name),
      cmocka_unit_test(names_are_quoted_where_yaml_would_read_them_otherwise),
  };
  float_setting_apply();
  return cmocka_run_group_tests(tests, NULL, NULL);
}
