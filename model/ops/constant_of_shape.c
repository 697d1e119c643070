/* ConstantOfShape: one value, 0 in f32 by default, in a shape that must be known (ONNX 9..21). */
#include "model/ops/shared/infer.h"
#include "model/ops/shared/strided.h"

static int constant_of_shape_infer(struct graph *graph, const struct node *node, struct err *err) {
  const struct attr *attr = node_attr(node, "value");
  struct shape shape = {0};
  if (attr && (attr->type != ATTR_TENSOR || shape_elems(&attr->shape) != 1))
    return node_error(node, err, ERR_INVALID, "attribute 'value' must be a tensor of one element");
  if (infer_few_ints(graph, node, (struct ints_source){0, NULL},
                     (struct ints_room){shape.dim, RANK_MAX, &shape.rank}, err))
    return err->code;
  for (int d = 0; d < shape.rank; d++)
    if (shape.dim[d] < 0)
      return node_error(node, err, ERR_INVALID, "dimension %d is %lld", d, (long long)shape.dim[d]);
  return infer_output(graph, node, 0,
                      &(struct tensor){.dtype = attr ? attr->dtype : DTYPE_F32, .shape = shape}, err);
}

static int constant_of_shape_ref(const struct op_call *call, struct err *err) {
  const struct attr *attr = node_attr(call->node, "value");
  const struct tensor *out = &call->out[0];
  struct strided walk = {0};
  float zero = 0.0f;
  (void)err;
  strided_dim(&walk, shape_elems(&out->shape), 0, 1);
  strided_copy(&walk, dtype_size(out->dtype), attr ? attr->data : &zero, out->data);
  return ERR_OK;
}

static const struct op_case constant_of_shape_cases[] = {
    {.inputs = "i64[2]==2,3"},
    {.inputs = "i64[0]=="},
    {0},
};

const struct op_def op_ConstantOfShape = {
    .name = "ConstantOfShape",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 9,
    .infer = constant_of_shape_infer,
    .ref = constant_of_shape_ref,
    .cases = constant_of_shape_cases,
};
