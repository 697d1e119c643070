/* ReduceMax and ReduceMin (ONNX 1..20: axes by attribute before 18, by input since) and their gradient, which
   all elements that equal the result share evenly. */
#include <math.h>

#include "model/ops/shared/backward.h"
#include "model/ops/shared/reduce.h"

static int extreme_backward(struct autodiff *ad, struct graph *graph, const struct node *node,
                            struct err *err) {
  int inputs[] = {reduce_kept_grad(ad, graph, node), node->inputs[0], reduce_kept_output(graph, node)};
  (void)err;
  autodiff_add(ad, node, 0,
               backward_node(graph, "ReduceExtremeGrad", (struct value_list){inputs, 3}, ATTRS_NONE));
  return ERR_OK;
}

/* NaN is above and below all. */
REDUCE_LOOP(max_f32, float, double, -INFINITY, x > a || isnan(x) ? x : a, a)
REDUCE_LOOP(max_i32, int32_t, int64_t, INT32_MIN, x > a ? x : a, a)
REDUCE_LOOP(max_i64, int64_t, int64_t, INT64_MIN, x > a ? x : a, a)
REDUCE_LOOP(max_u8, uint8_t, int64_t, 0, x > a ? x : a, a)
REDUCE_LOOP(min_f32, float, double, INFINITY, x < a || isnan(x) ? x : a, a)
REDUCE_LOOP(min_i32, int32_t, int64_t, INT32_MAX, x < a ? x : a, a)
REDUCE_LOOP(min_i64, int64_t, int64_t, INT64_MAX, x < a ? x : a, a)
REDUCE_LOOP(min_u8, uint8_t, int64_t, UINT8_MAX, x < a ? x : a, a)
REDUCE_NUMBER(max)
REDUCE_NUMBER(min)

static bool is_byte(const struct op_call *call) {
  return call->out[0].dtype == DTYPE_U8 || call->out[0].dtype == DTYPE_BOOL;
}

static int reduce_max_ref(const struct op_call *call, struct err *err) {
  return is_byte(call) ? max_u8(call, err) : max(call, err);
}

static int reduce_min_ref(const struct op_call *call, struct err *err) {
  return is_byte(call) ? min_u8(call, err) : min(call, err);
}

static const struct op_case extreme_cases[] = {
    REDUCE_CASES("f32{apart}"),
    {.inputs = "f32[2,3]=1,1,0,2,3,3", .attrs = "axes=1,"},
    {.inputs = "i64{-9..9}[2,3] i64[1]==0", .opset = 18},
    {.inputs = "i32{-9..9}[2,3]", .opset = 18},
    {.inputs = "u8{99}[2,3] i64[1]==1", .opset = 20},
    {.inputs = "bool{2}[2,3] i64[1]==1", .opset = 20},
    REDUCE_DRAWN_CASE("f32{apart}"),
    {0},
};

static const struct op_def reduce_extreme_grad;
static const struct op_def *const extreme_gradients[] = {&reduce_extreme_grad, NULL};

const struct op_def op_ReduceMax = {
    .name = "ReduceMax",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 2,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 1,
    .infer = reduce_infer_any,
    .backward = extreme_backward,
    .ref = reduce_max_ref,
    .cases = extreme_cases,
    .gradients = extreme_gradients,
};

const struct op_def op_ReduceMin = {
    .name = "ReduceMin",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 2,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 1,
    .infer = reduce_infer_any,
    .backward = extreme_backward,
    .ref = reduce_min_ref,
    .cases = extreme_cases,
};

static int reduce_extreme_grad_ref(const struct op_call *call, struct err *err) {
  const float *dy = call->in[0].data, *x = call->in[1].data, *y = call->in[2].data;
  const struct shape *from = &call->in[1].shape, *to = &call->in[2].shape;
  float *dx = call->out[0].data;
  int64_t *counts = reduce_totals(call, shape_elems(to), sizeof *counts, err), i = 0;
  struct broadcast walk;
  if (!counts)
    return err->code;
  broadcast_init(&walk, from, to, NULL);
  for (int64_t r = 0; r < walk.runs; r++, broadcast_next(&walk))
    for (int64_t j = 0; j < walk.run; j++, i++) {
      int64_t at = walk.at[0] + j * walk.step[0];
      counts[at] += x[i] == y[at];
    }
  i = 0;
  broadcast_init(&walk, from, to, NULL);
  for (int64_t r = 0; r < walk.runs; r++, broadcast_next(&walk))
    for (int64_t j = 0; j < walk.run; j++, i++) {
      int64_t at = walk.at[0] + j * walk.step[0];
      dx[i] = x[i] == y[at] ? dy[at] / (float)counts[at] : 0.0f;
    }
  free(counts);
  return ERR_OK;
}

/* dy, x, y -> dx; dy and y with the reduced axes kept */
static const struct op_def reduce_extreme_grad = {
    .name = "ReduceExtremeGrad",
    .domain = "ai.weir",
    .min_inputs = 3,
    .max_inputs = 3,
    .min_outputs = 1,
    .max_outputs = 1,
    .infer = reduce_grad_infer,
    .ref = reduce_extreme_grad_ref,
};
