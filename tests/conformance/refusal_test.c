/* Data that no shape rules out: the cuda backend refuses it in the very words of the reference kernels,
   though its kernels only note what they found. usage: refusal_test [cuda]; without the word on the simulated
   device. */
#include "common/agree/float_setting.h"
#include "tests/conformance/harness.h"
#include "tests/conformance/op_case.h"

static const struct {
  const char *op;
  struct op_case op_case;
} refusals[] = {
    {"Bernoulli", {.inputs = "f32[3]=0.5,1.5,0.2"}},
    {"Div", {.inputs = "i64[2,3]=1,2,3,4,5,6 i64[3]=2,0,1"}},
    {"Div", {.inputs = "i32[2]=1,2 i32[]=0"}},
    {"Dropout", {.inputs = "f32[4] f32[]=1.5"}},
    {"Gather", {.inputs = "f32[4,3] i64[3]=0,4,1"}},
    {"Gather", {.inputs = "f32[3,4] i32[2]=3,-5", .attrs = "axis=-1"}},
    {"GatherElements", {.inputs = "f32[2,3] i64[2,3]=0,1,2,2,3,0", .attrs = "axis=1"}},
    {"GatherND", {.inputs = "f32[4,3] i64[2,2]=3,2,0,-4"}},
    {"MaxUnpool", {.inputs = "f32[1,1,2,2] i64[1,1,2,2]=5,7,16,15", .attrs = "kernel_shape=2,2 strides=2,2"}},
    {"MaxUnpool", {.inputs = "f32[1,1,2] i64[1,1,2]=-1,3", .attrs = "kernel_shape=2, strides=2,"}},
    {"Mod", {.inputs = "u8[3]=1,2,3 u8[3]=1,1,0"}},
    {"Multinomial", {.inputs = "f32[2,3]=1,2,3,-inf,-inf,-inf"}},
    {"ReverseSequence", {.inputs = "f32[4,2,3] i64[2]=4,5"}},
    {"ScatterElements", {.inputs = "f32[3] i64[2]=0,3 f32[2]"}},
    {"ScatterND", {.inputs = "f32[3,2] i64[1,1]=-4 f32[1,2]"}},
};

static int execute(const struct op_trial *trial, const struct backend_def *backend, struct err *err) {
  struct outcome outcome;
  struct backend_options options = {0};
  int code;
  outcome_init(&outcome, trial->graph, trial->node->outputs, 1);
  code = graph_execute(backend, &options, (const void *const *)trial->data, &outcome, err);
  outcome_fini(&outcome);
  return code;
}

static bool is_refused_alike(const struct backend_def *backend, const char *op,
                             const struct op_case *op_case) {
  struct err want = ERR_NONE, got = ERR_NONE, ignored = ERR_NONE;
  struct op_trial trial;
  bool is_alike;
  if (op_trial_init(&trial, &(struct op_wish){op_find("", op), op_case, 1, false}, &ignored))
    check_failed(ignored.text, __FILE__, __LINE__);
  trial.graph->is_training = true;
  execute(&trial, backend_find("ref"), &want);
  execute(&trial, backend, &got);
  is_alike = want.code == ERR_INVALID && got.code == want.code && strcmp(got.text, want.text) == 0;
  if (!is_alike)
    printf("# %s: '%s', expected '%s'\n", op_case->inputs, got.text, want.text);
  op_trial_fini(&trial);
  return is_alike;
}

int main(int argc, char **argv) {
  float_setting_apply();
  struct err err = ERR_NONE;
  const struct backend_def *backend;
  tap_init();
  backend = suite_cuda(&argc, &argv, &err);
  if (!backend)
    return suite_skip("cuda", &err);
  for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++)
    tap_result(is_refused_alike(backend, refusals[i].op, &refusals[i].op_case),
               "%s of %s is refused as ref does", refusals[i].op, refusals[i].op_case.inputs);
  return tap_finish();
}
