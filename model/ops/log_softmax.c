/* LogSoftmax (ONNX 1..13) and its gradient, which needs only the output. */
#include <math.h>

#include "model/ops/softmax.h"

static int log_softmax_backward(struct autodiff *ad, struct graph *graph, const struct node *node,
                                struct err *err) {
  (void)err;
  return softmax_add_grad(ad, graph, node, "LogSoftmaxGrad");
}

static void log_softmax_row(const float *x, const float *unused, float *y, int64_t n, int64_t stride) {
  double sum = 0.0, log_sum;
  float greatest = x[0];
  (void)unused;
  for (int64_t k = 1; k < n; k++)
    greatest = fmaxf(greatest, x[k * stride]);
  for (int64_t k = 0; k < n; k++)
    sum += exp((double)x[k * stride] - greatest);
  log_sum = log(sum);
  for (int64_t k = 0; k < n; k++)
    y[k * stride] = (float)((double)x[k * stride] - greatest - log_sum);
}

static int log_softmax_ref(const struct op_call *call, struct err *err) {
  return softmax_each_row(call, log_softmax_row, err);
}

static const struct op_def log_softmax_grad;
static const struct op_def *const log_softmax_gradients[] = {&log_softmax_grad, NULL};

const struct op_def op_LogSoftmax = {
    .name = "LogSoftmax",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 1,
    .flags = OP_INPLACE,
    .infer = softmax_infer,
    .backward = log_softmax_backward,
    .ref = log_softmax_ref,
    .cases = softmax_cases,
    .gradients = log_softmax_gradients,
};

/* dx = dy - exp(y) sum(dy) */
static void log_softmax_grad_row(const float *dy, const float *y, float *dx, int64_t n, int64_t stride) {
  double sum = 0.0;
  for (int64_t k = 0; k < n; k++)
    sum += dy[k * stride];
  for (int64_t k = 0; k < n; k++)
    dx[k * stride] = (float)(dy[k * stride] - exp(y[k * stride]) * sum);
}

static int log_softmax_grad_ref(const struct op_call *call, struct err *err) {
  return softmax_each_row(call, log_softmax_grad_row, err);
}

/* dy, y -> dx; the attributes of LogSoftmax */
static const struct op_def log_softmax_grad = {
    .name = "LogSoftmaxGrad",
    .domain = "ai.weir",
    .min_inputs = 2,
    .max_inputs = 2,
    .min_outputs = 1,
    .max_outputs = 1,
    .flags = OP_INPLACE,
    .infer = softmax_infer,
    .ref = log_softmax_grad_ref,
};
