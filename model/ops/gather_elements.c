/* GatherElements: for each index the element that lies there along an axis (ONNX 11..13), and its gradient.
 */
#include "model/ops/shared/backward.h"
#include "model/ops/shared/infer.h"
#include "model/ops/shared/places.h"

static int gather_elements_infer(struct graph *graph, const struct node *node, struct err *err) {
  const struct value data = *node_input(graph, node, 0);
  if (places_infer_elements(graph, node, &data.shape, err))
    return err->code;
  return infer_output(graph, node, 0,
                      &(struct tensor){.dtype = data.dtype, .shape = node_input(graph, node, 1)->shape}, err);
}

static int gather_elements_backward(struct autodiff *ad, struct graph *graph, const struct node *node,
                                    struct err *err) {
  struct shape data = node_input(graph, node, 0)->shape;
  struct attr attrs[] = {attr_of_shape(&data), attr_of_int("axis", node_attr_int(node, "axis", 0))};
  int inputs[] = {autodiff_grad(ad, node, 0), node->inputs[1]};
  (void)err;
  autodiff_add(ad, node, 0,
               backward_node(graph, "GatherElementsGrad", (struct value_list){inputs, 2},
                             (struct attr_list){attrs, 2}));
  return ERR_OK;
}

static int gather_elements_ref(const struct op_call *call, struct err *err) {
  const struct tensor *data = &call->in[0];
  struct places places;
  if (places_of_elements(&places, call, &data->shape, err))
    return err->code;
  places_gather(&places, dtype_size(data->dtype), data->data, call->out[0].data);
  return ERR_OK;
}

static const struct op_case gather_elements_cases[] = {
    {.inputs = "f32[3,4] i64[2,4]=0,-1,2,0,2,2,0,1"},
    {.inputs = "f32[3,4] i32{4}[3,5]", .attrs = "axis=1"},
    {.inputs = "i64{9}[4] i64{4}[6]", .attrs = "axis=-1"},
    {.inputs = "bool{2}[2,3] i64{3}[1,2]", .attrs = "axis=1"},
    {.inputs = "f32[n,m,c] i64{n}[k,m,c]", .draw = "n=1..4 m=1..3 c=1..3 k=1..5"},
    {.inputs = "f32[n,m,c] i64{m}[n,k,c]", .attrs = "axis=1", .draw = "n=1..3 m=1..4 c=1..3 k=1..5"},
    {.inputs = "f32[n,c] i64{c}[n,1]", .attrs = "axis=1", .draw = "n=1..5 c=1..6"},
    {.inputs = "f32[30,40] i64{30}[27,40]"},
    {0},
};

static const struct op_def gather_elements_grad;
static const struct op_def *const gather_elements_gradients[] = {&gather_elements_grad, NULL};

const struct op_def op_GatherElements = {
    .name = "GatherElements",
    .domain = "",
    .min_inputs = 2,
    .max_inputs = 2,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 11,
    .infer = gather_elements_infer,
    .backward = gather_elements_backward,
    .ref = gather_elements_ref,
    .cases = gather_elements_cases,
    .gradients = gather_elements_gradients,
};

static int gather_elements_grad_infer(struct graph *graph, const struct node *node, struct err *err) {
  const struct value *dy = node_input(graph, node, 0);
  struct shape data;
  if (infer_shape_attr(node, &data, err) || places_infer_elements(graph, node, &data, err))
    return err->code;
  if (dy->dtype != DTYPE_F32 || !shape_is_same(&dy->shape, &node_input(graph, node, 1)->shape))
    return node_error(node, err, ERR_INVALID, "the gradient does not belong to these indices");
  return infer_f32(graph, node, 0, &data, err);
}

static int gather_elements_grad_ref(const struct op_call *call, struct err *err) {
  struct places places;
  if (places_of_elements(&places, call, &call->out[0].shape, err))
    return err->code;
  places_add_grad(&places, call->in[0].data, call->out[0].data);
  return ERR_OK;
}

/* dy, indices -> dx; axis, shape (of the data) */
static const struct op_def gather_elements_grad = {
    .name = "GatherElementsGrad",
    .domain = "ai.weir",
    .min_inputs = 2,
    .max_inputs = 2,
    .min_outputs = 1,
    .max_outputs = 1,
    .infer = gather_elements_grad_infer,
    .ref = gather_elements_grad_ref,
};
