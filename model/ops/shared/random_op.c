/* What the ops that draw random numbers share. */
#include "model/ops/shared/random_op.h"

#include "common/agree/random.h"
#include "model/ops/shared/infer.h"

uint64_t random_op_key(const struct op_call *call) {
  const struct op_context *context = &call->context;
  return random_key(context->seed, context->step, context->microbatch, (uint64_t)call->node->index);
}

int random_op_infer(struct graph *graph, const struct node *node, struct err *err) {
  const struct value *like = node_input(graph, node, 0);
  enum dtype dtype = like ? like->dtype : DTYPE_F32;
  struct shape shape;
  if (like)
    shape = like->shape;
  else if (infer_shape_attr(node, &shape, err))
    return err->code;
  for (int d = 0; d < shape.rank; d++)
    if (shape.dim[d] < 0)
      return node_error(node, err, ERR_INVALID, "attribute 'shape' holds %lld", (long long)shape.dim[d]);
  if (infer_dtype_attr(node, "dtype", dtype, &dtype, err))
    return err->code;
  if (dtype != DTYPE_F32)
    return node_error(node, err, ERR_UNSUPPORTED, "draws %s; only f32 is supported here", dtype_name(dtype));
  return infer_output(graph, node, 0, &(struct tensor){.dtype = dtype, .shape = shape}, err);
}

int random_op_backward(struct autodiff *ad, struct graph *graph, const struct node *node, struct err *err) {
  (void)ad;
  (void)graph;
  (void)node;
  (void)err;
  return ERR_OK;
}
