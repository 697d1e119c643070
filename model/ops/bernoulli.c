/* Bernoulli (ONNX 15): 1 with the probability that the input says, else 0. No gradient flows through, as in
   PyTorch. */
#include "common/agree/random.h"
#include "model/ops/shared/infer.h"
#include "model/ops/shared/random_op.h"

static int bernoulli_infer(struct graph *graph, const struct node *node, struct err *err) {
  struct shape shape = node_input(graph, node, 0)->shape;
  enum dtype dtype;
  if (infer_check_f32(graph, node, err) || infer_dtype_attr(node, "dtype", DTYPE_F32, &dtype, err))
    return err->code;
  return infer_output(graph, node, 0, &(struct tensor){.dtype = dtype, .shape = shape}, err);
}

static void put_bit(const struct tensor *out, int64_t i, bool bit) {
  switch (out->dtype) {
  case DTYPE_F32:
    ((float *)out->data)[i] = bit;
    break;
  case DTYPE_I32:
    ((int32_t *)out->data)[i] = bit;
    break;
  case DTYPE_I64:
    ((int64_t *)out->data)[i] = bit;
    break;
  default:
    ((uint8_t *)out->data)[i] = bit;
  }
}

static int bernoulli_ref(const struct op_call *call, struct err *err) {
  const float *p = call->in[0].data;
  uint64_t key = random_op_key(call);
  int64_t elems = shape_elems(&call->out[0].shape);
  for (int64_t i = 0; i < elems; i++) {
    if (!(p[i] >= 0.0f && p[i] <= 1.0f))
      return node_error(call->node, err, ERR_INVALID, "element %lld of its input is %g, not a probability",
                        (long long)i, (double)p[i]);
    put_bit(&call->out[0], i, random_uniform(key, (uint64_t)i) < p[i]);
  }
  return ERR_OK;
}

static const struct op_case bernoulli_cases[] = {
    {.inputs = "f32[6]=0.1,0.9,0.5,0.3,0.25,0.75"},
    {.inputs = "f32{0..1}[s]", .draw = "s=|5|2,3", .is_not_smooth = true},
    {.inputs = "f32[2,3]=0.5,0.9,0,1,0.25,0.75", .attrs = "dtype=7", .is_not_smooth = true},
    {.inputs = "f32[2]=0.5,0.9", .attrs = "dtype=6", .is_not_smooth = true},
    {.inputs = "f32[2]=0.5,0.9", .attrs = "dtype=9", .is_not_smooth = true},
    {0},
};

const struct op_def op_Bernoulli = {
    .name = "Bernoulli",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 15,
    .flags = OP_RANDOM,
    .infer = bernoulli_infer,
    .backward = random_op_backward,
    .ref = bernoulli_ref,
    .cases = bernoulli_cases,
};
