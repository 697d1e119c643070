/* EyeLike: a matrix of the input's shape with ones on its k-th diagonal (ONNX 9..22). */
#include <string.h>

#include "model/ops/shared/infer.h"
#include "model/ops/shared/strided.h"

static int eye_like_infer(struct graph *graph, const struct node *node, struct err *err) {
  const struct value x = *node_input(graph, node, 0);
  enum dtype dtype;
  if (infer_check_rank(graph, node, 0, 2, err) || infer_dtype_attr(node, "dtype", x.dtype, &dtype, err))
    return err->code;
  return infer_output(graph, node, 0, &(struct tensor){.dtype = dtype, .shape = x.shape}, err);
}

static int eye_like_ref(const struct op_call *call, struct err *err) {
  const struct tensor *out = &call->out[0];
  int64_t rows = out->shape.dim[0], cols = out->shape.dim[1], k = node_attr_int(call->node, "k", 0);
  size_t element = dtype_size(out->dtype);
  const float real_one = 1.0f;
  const int64_t one = 1; /* its first bytes are 1 in every integer type */
  (void)err;
  memset(out->data, 0, (size_t)(rows * cols) * element);
  for (int64_t r = 0; r < rows; r++)
    if (k >= -r && k < cols - r)
      memcpy((char *)out->data + (size_t)(r * cols + r + k) * element,
             out->dtype == DTYPE_F32 ? (const void *)&real_one : (const void *)&one, element);
  return ERR_OK;
}

static const struct op_case eye_like_cases[] = {
    {.inputs = "f32[3,4]"},
    {.inputs = "i64{9}[3,2]", .attrs = "k=-1 dtype=1"},
    {.inputs = "f32[n,m]", .attrs = "k=k dtype=t", .draw = "n=1..4 m=1..4 k=-5..5 t=1|6|7|9|2"},
    {0},
};

const struct op_def op_EyeLike = {
    .name = "EyeLike",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 9,
    .flags = OP_SHAPES,
    .infer = eye_like_infer,
    .ref = eye_like_ref,
    .cases = eye_like_cases,
};
