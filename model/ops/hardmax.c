/* Hardmax (ONNX 1..13): 1 at the greatest element of each row, the first of equals, NaN above all, else 0. A
   step function: its gradient is zero. */
#include <math.h>

#include "model/ops/softmax.h"

static int hardmax_backward(struct autodiff *ad, struct graph *graph, const struct node *node,
                            struct err *err) {
  (void)ad, (void)graph, (void)node, (void)err;
  return ERR_OK;
}

static void hardmax_row(const float *x, const float *unused, float *y, int64_t n, int64_t stride) {
  int64_t greatest = 0;
  (void)unused;
  for (int64_t k = 0; k < n; k++) {
    float value = x[k * stride], most = x[greatest * stride];
    y[k * stride] = 0.0f;
    if (value > most || (isnan(value) && !isnan(most)))
      greatest = k;
  }
  y[greatest * stride] = 1.0f;
}

static int hardmax_ref(const struct op_call *call, struct err *err) {
  return softmax_each_row(call, hardmax_row, err);
}

static const struct op_case hardmax_cases[] = {
    {.inputs = "f32{apart}[3,5]"},
    {.inputs = "f32[3,4]=1,3,3,2", .is_not_smooth = true},
    {.inputs = "f32[2,4]=1,nan,3,nan,-1,-2,-inf,-1", .is_not_smooth = true},
    {.inputs = "f32{apart}[2,3,4]", .attrs = "axis=1", .opset = 11},
    {.inputs = "f32{apart}[a,b,c]", .attrs = "axis=x", .draw = "a=1..3 b=1..4 c=1..5 x=-3..2"},
    {0},
};

const struct op_def op_Hardmax = {
    .name = "Hardmax",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 1,
    .infer = softmax_infer,
    .backward = hardmax_backward,
    .ref = hardmax_ref,
    .cases = hardmax_cases,
};
