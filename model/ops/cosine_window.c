/* HannWindow, HammingWindow and BlackmanWindow (ONNX 17): sums of cosines over a known number of samples.
   size i32[] or i64[] -> f32[size]. */
#include <math.h>

#include "model/ops/shared/infer.h"

/* constant - first cos(2 pi i / period) + second cos(4 pi i / period) */
struct coefficients {
  double constant, first, second;
};

static int window_infer(struct graph *graph, const struct node *node, struct err *err) {
  int64_t size;
  enum dtype dtype;
  int n;
  if (infer_few_ints(graph, node, (struct ints_source){0, NULL}, (struct ints_room){&size, 1, &n}, err) ||
      infer_dtype_attr(node, "output_datatype", DTYPE_F32, &dtype, err))
    return err->code;
  if (dtype != DTYPE_F32)
    return node_error(node, err, ERR_UNSUPPORTED, "a window of %s is not supported", dtype_name(dtype));
  if (n != 1 || size < 0)
    return node_error(node, err, ERR_INVALID, "the size must be one number that is not negative");
  return infer_output(graph, node, 0,
                      &(struct tensor){.dtype = dtype, .shape = (struct shape){.rank = 1, .dim = {size}}},
                      err);
}

static int window_fill(const struct op_call *call, struct coefficients c) {
  float *out = call->out[0].data;
  int64_t size = call->out[0].shape.dim[0];
  bool is_periodic = node_attr_int(call->node, "periodic", 1) != 0;
  double period = (double)(is_periodic || size < 2 ? size : size - 1);
  for (int64_t i = 0; i < size; i++) {
    double angle = 2.0 * M_PI * (double)i / period;
    out[i] = (float)(c.constant - c.first * cos(angle) + c.second * cos(2.0 * angle));
  }
  return ERR_OK;
}

static int hann_ref(const struct op_call *call, struct err *err) {
  (void)err;
  return window_fill(call, (struct coefficients){0.5, 0.5, 0.0});
}

/* With the optimal coefficients rather than 0.54 and 0.46. */
static int hamming_ref(const struct op_call *call, struct err *err) {
  (void)err;
  return window_fill(call, (struct coefficients){25.0 / 46.0, 21.0 / 46.0, 0.0});
}

static int blackman_ref(const struct op_call *call, struct err *err) {
  (void)err;
  return window_fill(call, (struct coefficients){0.42, 0.5, 0.08});
}

static const struct op_case window_cases[] = {
    {.inputs = "i64[]==n", .attrs = "periodic=p", .draw = "n=1..9 p=0|1"},
    {.inputs = "i32[]==7"},
    {0},
};

#define WINDOW(function, ref_of)                                                                             \
  const struct op_def op_##function = {                                                                      \
      .name = #function,                                                                                     \
      .domain = "",                                                                                          \
      .min_inputs = 1,                                                                                       \
      .max_inputs = 1,                                                                                       \
      .min_outputs = 1,                                                                                      \
      .max_outputs = 1,                                                                                      \
      .min_opset = 17,                                                                                       \
      .infer = window_infer,                                                                                 \
      .ref = ref_of,                                                                                         \
      .cases = window_cases,                                                                                 \
  };

WINDOW(HannWindow, hann_ref)
WINDOW(HammingWindow, hamming_ref)
WINDOW(BlackmanWindow, blackman_ref)
