/* Mod: elementwise remainder with broadcasting (ONNX 10..13): of the divisor's sign, or of the dividend's
   with fmod=1. */
#include "model/ops/shared/divisor.h"
#include "model/ops/shared/elementwise.h"

/* b is not zero; the least integer by -1 would overflow. */
static inline int64_t remainder_of(int64_t a, int64_t b) {
  return b == -1 ? 0 : a % b;
}

static inline int64_t modulus_of(int64_t a, int64_t b) {
  int64_t r = remainder_of(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

static inline float float_modulus_of(float a, float b) {
  float r = fmodf(a, b);
  return r != 0.0f && (r < 0.0f) != (b < 0.0f) ? r + b : r;
}

BINARY_LOOP(cut_f32, float, fmodf(x, y))
BINARY_LOOP(cut_integer_i32, int32_t, (int32_t)remainder_of(x, y))
BINARY_LOOP(cut_integer_i64, int64_t, remainder_of(x, y))
BINARY_LOOP(cut_integer_u8, uint8_t, (uint8_t)(x % y))
INTEGER_DISPATCH(cut_integer)
TYPE_DISPATCH(cut)
BINARY_LOOP(modulus_f32, float, float_modulus_of(x, y))
BINARY_LOOP(modulus_integer_i32, int32_t, (int32_t)modulus_of(x, y))
BINARY_LOOP(modulus_integer_i64, int64_t, modulus_of(x, y))
BINARY_LOOP(modulus_integer_u8, uint8_t, (uint8_t)(x % y))
INTEGER_DISPATCH(modulus_integer)
TYPE_DISPATCH(modulus)

static int mod_ref(const struct op_call *call, struct err *err) {
  if (call->out[0].dtype != DTYPE_F32 && divisor_check(call, err))
    return err->code;
  return node_attr_int(call->node, "fmod", 0) ? cut(call, err) : modulus(call, err);
}

/* y = a - q b with a whole number q: da = dy, db = -dy q = dy (y - a) / b */
static int mod_backward(struct autodiff *ad, struct graph *graph, const struct node *node, struct err *err) {
  int dy = autodiff_grad(ad, node, 0);
  (void)err;
  if (autodiff_wants(ad, node, 0))
    backward_add_summed(ad, graph, node, 0, dy);
  if (autodiff_wants(ad, node, 1)) {
    int multiple = backward_binary(graph, "Sub", node->outputs[0], node->inputs[0]);
    int slope = backward_binary(graph, "Div", multiple, node->inputs[1]);
    backward_add_summed(ad, graph, node, 1, backward_binary(graph, "Mul", dy, slope));
  }
  return ERR_OK;
}

static const struct op_case mod_cases[] = {
    {.inputs = "f32[2,3]=-4.3,7.2,5,4.3,-7.2,8 f32[3]=2.1,-3.4,8.5", .attrs = "fmod=1"},
    {.inputs = "f32[2,3]=-4.3,7.2,5,4.3,-7.2,8 f32[3]=2.1,-3.4,8.5"},
    {.inputs = "f32[s]=4.3,7.2,5,-4.3 f32[]=2.1", .attrs = "fmod=f", .draw = "s=|1|7|2,5|3,1,4 f=0|1"},
    {.inputs = "i32[6]=-4,7,5,4,-7,8 i32[6]=2,-3,8,-2,3,5"},
    {.inputs = "i32[6]=-4,7,5,4,-7,8 i32[6]=2,-3,8,-2,3,5", .attrs = "fmod=1"},
    {.inputs = "i64[2,3]=-4,7,5,4,-7,8 i64[3]=3,-3,-1"},
    {.inputs = "i64[2,3]=-4,7,5,4,-7,8 i64[]=3", .attrs = "fmod=1"},
    {.inputs = "u8{99}[2,3] u8[3]=3,7,10"},
    {0},
};

const struct op_def op_Mod = {
    .name = "Mod",
    .domain = "",
    .min_inputs = 2,
    .max_inputs = 2,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 10,
    .flags = OP_INPLACE | OP_POINTWISE,
    .infer = broadcast_infer,
    .backward = mod_backward,
    .ref = mod_ref,
    .cases = mod_cases,
};
