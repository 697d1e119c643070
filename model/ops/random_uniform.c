/* RandomUniform and RandomUniformLike (ONNX 1): f32 uniform in [low, high). */
#include "common/agree/random.h"
#include "model/ops/shared/random_op.h"

static int random_uniform_ref(const struct op_call *call, struct err *err) {
  float low = node_attr_float(call->node, "low", 0.0f), high = node_attr_float(call->node, "high", 1.0f);
  uint64_t key = random_op_key(call);
  float *y = call->out[0].data;
  int64_t elems = shape_elems(&call->out[0].shape);
  (void)err;
  for (int64_t i = 0; i < elems; i++)
    y[i] = low + (high - low) * random_uniform(key, (uint64_t)i);
  return ERR_OK;
}

static const struct op_case random_uniform_cases[] = {
    {.inputs = "", .attrs = "shape=4,3 low=-2f high=3f"},
    {.inputs = "", .attrs = "shape=7, dtype=1"},
    {0},
};

const struct op_def op_RandomUniform = {
    .name = "RandomUniform",
    .domain = "",
    .min_inputs = 0,
    .max_inputs = 0,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 1,
    .flags = OP_RANDOM,
    .infer = random_op_infer,
    .ref = random_uniform_ref,
    .cases = random_uniform_cases,
};

static const struct op_case random_uniform_like_cases[] = {
    {.inputs = "f32[4,3]", .attrs = "low=-2f high=3f"},
    {.inputs = "i64{5}[7]", .attrs = "dtype=1"},
    {.inputs = "f32[s]", .attrs = "low=-2f", .draw = "s=|3|2,4"},
    {0},
};

const struct op_def op_RandomUniformLike = {
    .name = "RandomUniformLike",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 1,
    .flags = OP_RANDOM,
    .infer = random_op_infer,
    .backward = random_op_backward,
    .ref = random_uniform_ref,
    .cases = random_uniform_like_cases,
};
