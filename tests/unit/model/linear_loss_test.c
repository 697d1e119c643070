/* Cross-entropy of scores that a linear layer computes: in every form that exporters write it, it gives what
   it gives of whole scores, and never makes them whole. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "common/agree/random.h"
#include "model/graph/op.h"
#include "model/model.h"
#include "tests/support/model/onnx_build.h"
#include "worker/backend/backend.h"

enum { SAMPLES = 4, TOKENS = 16, FEATURES = 8, CLASSES = 50021, PARAMS_MAX = 4 };

enum form { MATMUL, MATMUL_ADD, MATMUL_TIED, GEMM_ROWS, FORMS };

static void add_ints(struct onnx_build *build, const char *name, const int64_t *values, int n) {
  Onnx__TensorProto *tensor =
      onnx_build_tensor(build, name, ONNX__TENSOR_PROTO__DATA_TYPE__INT64, (int64_t[]){n}, 1);
  onnx_build_raw(build, tensor, values, (size_t)n * sizeof *values);
  onnx_build_add(build, tensor);
}

/* x f32[N,tokens,features] * gain, through the form, to y f32[N,tokens,classes]. is_split: behind two nodes
   that change nothing but keep the layer apart from the loss. */
static void build_form(struct onnx_build *build, enum form form, int64_t tokens, bool is_split) {
  const char *scores = is_split ? "s" : "y";
  onnx_build_init(build, 13);
  onnx_build_input(build, "x", DIMS(-1, tokens, FEATURES));
  onnx_build_weight(build, "gain", DIMS(FEATURES));
  onnx_build_weight(build, "w",
                    form >= MATMUL_TIED ? (int64_t[]){CLASSES, FEATURES} : (int64_t[]){FEATURES, CLASSES}, 2);
  onnx_build_node(build, "Mul", NULL, "x,gain", "h");
  if (form == MATMUL) {
    onnx_build_node(build, "MatMul", NULL, "h,w", scores);
  } else if (form == MATMUL_ADD) {
    onnx_build_weight(build, "b", DIMS(CLASSES));
    onnx_build_node(build, "MatMul", NULL, "h,w", "m");
    onnx_build_node(build, "Add", NULL, "b,m", scores);
  } else if (form == MATMUL_TIED) {
    onnx_build_node(build, "Transpose", NULL, "w", "t");
    onnx_build_node(build, "MatMul", NULL, "h,t", scores);
  } else {
    onnx_build_weight(build, "b", DIMS(CLASSES));
    add_ints(build, "rows", (int64_t[]){-1, FEATURES}, 2);
    add_ints(build, "whole", (int64_t[]){-1, tokens, CLASSES}, 3);
    onnx_build_node(build, "Reshape", NULL, "h,rows", "r");
    onnx_build_int(build, onnx_build_node(build, "Gemm", NULL, "r,w,b", "g"), "transB", 1);
    onnx_build_node(build, "Reshape", NULL, "g,whole", scores);
  }
  if (is_split) {
    onnx_build_node(build, "Neg", NULL, "s", "n");
    onnx_build_node(build, "Neg", NULL, "n", "y");
  }
  onnx_build_output(build, "y");
}

static struct model *open_for(enum form form, int64_t tokens, bool is_split, const Weir__RunSpec *spec) {
  struct onnx_build build;
  struct err err = ERR_NONE;
  struct model *model;
  size_t size;
  build_form(&build, form, tokens, is_split);
  const void *bytes = onnx_build_pack(&build, &size);
  if (model_open(&(struct model_source){.onnx = bytes, .size_bytes = size, .spec = spec, .samples = SAMPLES},
                 &model, &err))
    fail_msg("%s", err.text);
  onnx_build_fini(&build);
  return model;
}

static struct model *open_form(enum form form, int64_t tokens, bool is_split) {
  return open_for(form, tokens, is_split, NULL);
}

static int count_ops(const struct graph *graph, const char *op) {
  int count = 0;
  for (int n = 0; n < graph->n_nodes; n++)
    count += strcmp(graph->nodes[n]->op->name, op) == 0;
  return count;
}

/* What one microbatch gives. */
struct result {
  const struct model *model;
  size_t memory_bytes;
  double sums[4]; /* loss_sum, correct, scored, denominator */
  float *grads[PARAMS_MAX];
};

static void on_value(void *user, int watch, const float *data) {
  struct result *result = user;
  if (watch < 4)
    result->sums[watch] = (double)data[0];
  else
    memcpy(result->grads[watch - 4], data, result->model->params[watch - 4].elems * sizeof *data);
}

static void compute(const struct backend_def *backend, const struct model *model, struct result *result) {
  static float x[SAMPLES * TOKENS * FEATURES], scale = 1.0f / 64;
  static int64_t labels[SAMPLES * TOKENS];
  const void *inputs[] = {x, labels, &scale};
  int watched[4 + PARAMS_MAX] = {model->train_loss.loss_sum, model->train_loss.correct,
                                 model->train_loss.scored, model->train_loss.denominator};
  struct backend_run run = {.inputs = inputs, .on_value = on_value, .user = result};
  struct backend_program *program;
  struct err err = ERR_NONE;
  for (int i = 0; i < SAMPLES * TOKENS * FEATURES; i++)
    x[i] = 4 * random_uniform(1, (uint64_t)i) - 2;
  for (int i = 0; i < SAMPLES * TOKENS; i++)
    labels[i] = i % 5 == 2 ? -100 : (int64_t)(random_uniform(2, (uint64_t)i) * CLASSES);
  *result = (struct result){.model = model};
  assert_in_range(model->n_params, 2, PARAMS_MAX);
  for (int p = 0; p < model->n_params; p++) {
    watched[4 + p] = model->params[p].grad;
    result->grads[p] = mem_new(model->params[p].elems * sizeof(float));
  }
  if (backend->prepare(&(struct backend_request){.graph = model->train,
                                                 .watched = watched,
                                                 .n_watched = 4 + model->n_params},
                       &program, &err) ||
      backend->run(program, &run, &err))
    fail_msg("%s", err.text);
  result->memory_bytes = backend->memory_bytes(program);
  backend->release(program);
}

static void result_fini(struct result *result) {
  for (int p = 0; p < PARAMS_MAX; p++)
    free(result->grads[p]);
}

static void compare(const struct result *got, const struct result *want) {
  assert_int_equal(got->model->n_params, want->model->n_params);
  for (int s = 0; s < 4; s++)
    assert_true(fabs(got->sums[s] - want->sums[s]) <= 2e-6 * want->sums[s]);
  assert_true(want->sums[2] == SAMPLES * TOKENS - 13);
  for (int p = 0; p < got->model->n_params; p++) {
    const struct param *param = &got->model->params[p];
    assert_string_equal(param->name, want->model->params[p].name);
    for (uint64_t i = 0; i < param->elems; i++) {
      double a = (double)got->grads[p][i], b = (double)want->grads[p][i];
      if (!(fabs(a - b) <= 1e-6 + 1e-4 * fabs(b)))
        fail_msg("element %d of %s's gradient is %.9g, of whole scores %.9g", (int)i, param->name, a, b);
    }
  }
}

static void every_form_gives_what_whole_scores_give(void **state) {
  (void)state;
  for (int form = 0; form < FORMS; form++) {
    struct model *fused = open_form(form, TOKENS, false), *split = open_form(form, TOKENS, true);
    struct result whole, result;
    assert_int_equal(count_ops(fused->train, "LinearCrossEntropy"), 1);
    assert_int_equal(count_ops(fused->eval, "LinearCrossEntropy"), 1);
    assert_int_equal(count_ops(fused->train, "MatMul") + count_ops(fused->train, "Gemm"), 0);
    assert_int_equal(count_ops(fused->eval, "MatMul") + count_ops(fused->eval, "Gemm"), 0);
    assert_int_equal(count_ops(split->train, "LinearCrossEntropy"), 0);
    assert_int_equal(fused->labels.classes, CLASSES);
    compute(backend_find("cpu"), split, &whole);
    for (int b = 0; backend_at(b); b++) {
      compute(backend_at(b), fused, &result);
      compare(&result, &whole);
      assert_true(result.memory_bytes < whole.memory_bytes);
      result_fini(&result);
    }
    result_fini(&whole);
    model_close(fused);
    model_close(split);
  }
}

/* 4 x 1024 tokens of 50,021 classes: 819 MB of scores. */
static void the_memory_of_a_program_does_not_grow_with_the_scores(void **state) {
  const double scores_bytes = SAMPLES * 1024.0 * CLASSES * sizeof(float);
  struct model *model = open_form(MATMUL_ADD, 1024, false);
  struct backend_request request = {.graph = model->train, .watched = &model->params[0].grad, .n_watched = 1};
  struct backend_program *program;
  struct err err = ERR_NONE;
  (void)state;
  for (int b = 0; backend_at(b); b++) {
    if (backend_at(b)->prepare(&request, &program, &err))
      fail_msg("%s", err.text);
    assert_true((double)backend_at(b)->memory_bytes(program) < scores_bytes / 40);
    backend_at(b)->release(program);
  }
  model_close(model);
}

static struct model *open_measured(char *metric) {
  Weir__ModelSpec model = WEIR__MODEL_SPEC__INIT;
  Weir__EvalSpec eval = WEIR__EVAL_SPEC__INIT;
  Weir__RunSpec spec = WEIR__RUN_SPEC__INIT;
  model.loss = "cross_entropy";
  eval.metrics = &metric;
  eval.n_metrics = 1;
  spec.model = &model;
  spec.eval = &eval;
  return open_for(MATMUL_ADD, TOKENS, false, &spec);
}

/* Only in the eval graph, and only for a metric that reads them. */
static void scores_are_whole_where_a_metric_reads_them(void **state) {
  struct model *top5 = open_measured("top5"), *perplexity = open_measured("perplexity");
  struct model_memory with, without;
  (void)state;
  assert_int_equal(count_ops(top5->train, "LinearCrossEntropy"), 1);
  assert_int_equal(count_ops(top5->eval, "LinearCrossEntropy"), 0);
  assert_true(shape_elems(&top5->eval->values[top5->eval_output].shape) == SAMPLES * TOKENS * CLASSES);
  assert_int_equal(count_ops(perplexity->eval, "LinearCrossEntropy"), 1);
  assert_int_equal(perplexity->eval_output, -1);
  model_memory(top5, &with);
  model_memory(perplexity, &without);
  assert_true(with.eval_bytes >= without.eval_bytes + SAMPLES * TOKENS * CLASSES * sizeof(float));
  model_close(top5);
  model_close(perplexity);
}

static void a_small_layer_stays_apart(void **state) {
  struct onnx_build build;
  struct err err = ERR_NONE;
  struct model *model;
  size_t size;
  (void)state;
  onnx_build_mlp(&build, 3, 4, 2);
  const void *bytes = onnx_build_pack(&build, &size);
  assert_int_equal(
      model_open(&(struct model_source){.onnx = bytes, .size_bytes = size, .samples = SAMPLES}, &model, &err),
      0);
  assert_int_equal(count_ops(model->train, "LinearCrossEntropy"), 0);
  model_close(model);
  onnx_build_fini(&build);
}

/* Scores that something else reads, too, are there anyway. */
static void scores_that_are_read_elsewhere_stay_whole(void **state) {
  struct onnx_build build;
  struct err err = ERR_NONE;
  struct model *model;
  size_t size;
  (void)state;
  build_form(&build, MATMUL_ADD, TOKENS, false);
  build.graph.node[2]->output[0] = (char *)"s";
  onnx_build_node(&build, "Relu", NULL, "m", "r");
  onnx_build_node(&build, "Add", NULL, "s,r", "y");
  const void *bytes = onnx_build_pack(&build, &size);
  assert_int_equal(
      model_open(&(struct model_source){.onnx = bytes, .size_bytes = size, .samples = SAMPLES}, &model, &err),
      0);
  assert_int_equal(count_ops(model->train, "LinearCrossEntropy"), 0);
  model_close(model);
  onnx_build_fini(&build);
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_form_gives_what_whole_scores_give),
      cmocka_unit_test(the_memory_of_a_program_does_not_grow_with_the_scores),
      cmocka_unit_test(scores_are_whole_where_a_metric_reads_them),
      cmocka_unit_test(a_small_layer_stays_apart),
      cmocka_unit_test(scores_that_are_read_elsewhere_stay_whole),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
