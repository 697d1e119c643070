/* Div: elementwise quotient with broadcasting (ONNX 7..14). Integers are cut towards zero. */
#include "model/ops/shared/divisor.h"
#include "model/ops/shared/elementwise.h"

/* Division that wraps where the quotient does not fit. b is not zero. */
static int64_t integer_divide(int64_t a, int64_t b) {
  return b == -1 ? (int64_t)(0 - (uint64_t)a) : a / b;
}

BINARY_LOOP(div_f32, float, x / y)
BINARY_LOOP(div_i32, int32_t, (int32_t)integer_divide(x, y))
BINARY_LOOP(div_i64, int64_t, integer_divide(x, y))
BINARY_LOOP(div_u8, uint8_t, (uint8_t)(x / y))

static int div_ref(const struct op_call *call, struct err *err) {
  enum dtype dtype = call->out[0].dtype;
  if (dtype == DTYPE_F32)
    return div_f32(call, err);
  if (divisor_check(call, err))
    return err->code;
  if (dtype == DTYPE_I32)
    return div_i32(call, err);
  return dtype == DTYPE_I64 ? div_i64(call, err) : div_u8(call, err);
}

/* y = a / b: da = dy / b, db = -dy y / b */
static int div_backward(struct autodiff *ad, struct graph *graph, const struct node *node, struct err *err) {
  int da = backward_binary(graph, "Div", autodiff_grad(ad, node, 0), node->inputs[1]);
  (void)err;
  if (autodiff_wants(ad, node, 0))
    backward_add_summed(ad, graph, node, 0, da);
  if (autodiff_wants(ad, node, 1)) {
    int negative = backward_binary(graph, "Mul", da, node->outputs[0]);
    backward_add_summed(ad, graph, node, 1, backward_unary(graph, "Neg", negative));
  }
  return ERR_OK;
}

static const struct op_case div_cases[] = {
    {.inputs = "f32[2,3,4] f32[4]=0.7,-0.8,1.5,-2"},
    {.inputs = "f32[2,3] f32[2,3]=0.9,0.8,-1.1,1,-0.7,2"},
    {.inputs = "f32[] f32[2,1]=0.5,-0.8"},
    {.inputs = "f32[3,1] f32[]=0.7"},
    {.inputs = "i64{9}[2,3] i64[3]=2,-1,3"},
    {.inputs = "f32[a,b,c] f32{0.6..2}[d,e,c]", .draw = "a=1..4 b=1..4 c=1..5 d=1|a e=1|b"},
    {.inputs = "f32[s] f32{-2..-0.6}[c]", .draw = "c=1..5 s=c|2,c|3,1,c|1|"},
    {0},
};

const struct op_def op_Div = {
    .name = "Div",
    .domain = "",
    .min_inputs = 2,
    .max_inputs = 2,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 6,
    .flags = OP_INPLACE | OP_POINTWISE,
    .infer = broadcast_infer,
    .backward = div_backward,
    .ref = div_ref,
    .cases = div_cases,
};
