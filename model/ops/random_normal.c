/* RandomNormal and RandomNormalLike (ONNX 1): f32 of a normal distribution with `mean` and standard deviation
   `scale`. */
#include "common/agree/random.h"
#include "model/ops/shared/random_op.h"

static int random_normal_ref(const struct op_call *call, struct err *err) {
  float mean = node_attr_float(call->node, "mean", 0.0f), scale = node_attr_float(call->node, "scale", 1.0f);
  uint64_t key = random_op_key(call);
  float *y = call->out[0].data;
  int64_t elems = shape_elems(&call->out[0].shape);
  (void)err;
  for (int64_t i = 0; i < elems; i++)
    y[i] = (float)(mean + scale * random_normal(key, (uint64_t)i));
  return ERR_OK;
}

static const struct op_case random_normal_cases[] = {
    {.inputs = "", .attrs = "shape=4,3 mean=-2f scale=0.5f"},
    {.inputs = "", .attrs = "shape=7, dtype=1"},
    {0},
};

const struct op_def op_RandomNormal = {
    .name = "RandomNormal",
    .domain = "",
    .min_inputs = 0,
    .max_inputs = 0,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 1,
    .flags = OP_RANDOM,
    .infer = random_op_infer,
    .ref = random_normal_ref,
    .cases = random_normal_cases,
};

static const struct op_case random_normal_like_cases[] = {
    {.inputs = "f32[4,3]", .attrs = "mean=-2f scale=0.5f"},
    {.inputs = "i64{5}[7]", .attrs = "dtype=1"},
    {.inputs = "f32[s]", .attrs = "mean=-2f", .draw = "s=|3|2,4"},
    {0},
};

const struct op_def op_RandomNormalLike = {
    .name = "RandomNormalLike",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 1,
    .flags = OP_RANDOM,
    .infer = random_op_infer,
    .backward = random_op_backward,
    .ref = random_normal_ref,
    .cases = random_normal_like_cases,
};
