/* GatherND: for each tuple of indices the part of the data that lies there (ONNX 11..13; batch_dims since
   12), and its gradient. */
#include "model/ops/shared/backward.h"
#include "model/ops/shared/infer.h"
#include "model/ops/shared/places.h"

static int gather_nd_infer(struct graph *graph, const struct node *node, struct err *err) {
  const struct value data = *node_input(graph, node, 0);
  struct shape out;
  if (places_infer_tuples(graph, node, &data.shape, &out, err))
    return err->code;
  return infer_output(graph, node, 0, &(struct tensor){.dtype = data.dtype, .shape = out}, err);
}

static int gather_nd_backward(struct autodiff *ad, struct graph *graph, const struct node *node,
                              struct err *err) {
  struct shape data = node_input(graph, node, 0)->shape;
  struct attr attrs[] = {attr_of_shape(&data),
                         attr_of_int("batch_dims", node_attr_int(node, "batch_dims", 0))};
  int inputs[] = {autodiff_grad(ad, node, 0), node->inputs[1]};
  (void)err;
  autodiff_add(
      ad, node, 0,
      backward_node(graph, "GatherNDGrad", (struct value_list){inputs, 2}, (struct attr_list){attrs, 2}));
  return ERR_OK;
}

static int gather_nd_ref(const struct op_call *call, struct err *err) {
  const struct tensor *data = &call->in[0];
  struct places places;
  if (places_of_tuples(&places, call, &data->shape, err))
    return err->code;
  places_gather(&places, dtype_size(data->dtype), data->data, call->out[0].data);
  return ERR_OK;
}

static const struct op_case gather_nd_cases[] = {
    {.inputs = "f32[3,4] i64[2,2]=0,-1,2,1"},
    {.inputs = "f32[3,4] i64[2,1]=-3,2"},
    {.inputs = "f32[2,3,4] i64[2,1]=-1,1", .attrs = "batch_dims=1"},
    {.inputs = "bool{2}[2,3] i32{2}[3,2]"},
    {.inputs = "f32[n,m,c] i64{n}[k,1]", .draw = "n=1..4 m=1..3 c=1..3 k=1..5"},
    {.inputs = "f32[b,n,c] i64{n}[b,k,1]", .attrs = "batch_dims=1", .draw = "b=1..3 n=1..4 c=1..3 k=1..5"},
    {.inputs = "f32[n,n] i64{n}[k,2]", .draw = "n=1..4 k=1..6"},
    {0},
};

static const struct op_def gather_nd_grad;
static const struct op_def *const gather_nd_gradients[] = {&gather_nd_grad, NULL};

const struct op_def op_GatherND = {
    .name = "GatherND",
    .domain = "",
    .min_inputs = 2,
    .max_inputs = 2,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 11,
    .infer = gather_nd_infer,
    .backward = gather_nd_backward,
    .ref = gather_nd_ref,
    .cases = gather_nd_cases,
    .gradients = gather_nd_gradients,
};

static int gather_nd_grad_infer(struct graph *graph, const struct node *node, struct err *err) {
  const struct value *dy = node_input(graph, node, 0);
  struct shape data, out;
  if (infer_shape_attr(node, &data, err) || places_infer_tuples(graph, node, &data, &out, err))
    return err->code;
  if (dy->dtype != DTYPE_F32 || !shape_is_same(&dy->shape, &out))
    return node_error(node, err, ERR_INVALID, "the gradient does not belong to these indices");
  return infer_f32(graph, node, 0, &data, err);
}

static int gather_nd_grad_ref(const struct op_call *call, struct err *err) {
  struct places places;
  if (places_of_tuples(&places, call, &call->out[0].shape, err))
    return err->code;
  places_add_grad(&places, call->in[0].data, call->out[0].data);
  return ERR_OK;
}

/* dy, indices -> dx; batch_dims, shape (of the data) */
static const struct op_def gather_nd_grad = {
    .name = "GatherNDGrad",
    .domain = "ai.weir",
    .min_inputs = 2,
    .max_inputs = 2,
    .min_outputs = 1,
    .max_outputs = 1,
    .infer = gather_nd_grad_infer,
    .ref = gather_nd_grad_ref,
};
