/* GlobalMaxPool: the maximum over all spatial dimensions (ONNX 1). */
#include <math.h>

#include "model/ops/shared/backward.h"
#include "model/ops/shared/global_pool.h"

/* A MaxPool with one window; the first of equals has the gradient. */
static int global_max_pool_backward(struct autodiff *ad, struct graph *graph, const struct node *node,
                                    struct err *err) {
  struct shape x = node_input(graph, node, 0)->shape;
  struct attr attr = attr_of_ints("kernel_shape", x.dim + 2, x.rank - 2);
  int inputs[] = {autodiff_grad(ad, node, 0), node->inputs[0]};
  if (x.rank == 2) {
    autodiff_add(ad, node, 0, inputs[0]);
    return ERR_OK;
  }
  if (x.rank > 5)
    return node_error(node, err, ERR_UNSUPPORTED,
                      "a gradient over %d spatial dimensions; 1 to 3 are supported", x.rank - 2);
  autodiff_add(ad, node, 0,
               backward_node(graph, "MaxPoolGrad", (struct value_list){inputs, 2}, ATTR_LIST(attr)));
  return ERR_OK;
}

static int global_max_pool_ref(const struct op_call *call, struct err *err) {
  const float *x = call->in[0].data;
  float *y = call->out[0].data;
  int64_t planes = shape_elems(&call->out[0].shape), elems = global_pool_elems(&call->in[0].shape);
  (void)err;
  for (int64_t p = 0; p < planes; p++, x += elems) {
    float greatest = x[0];
    for (int64_t i = 1; i < elems; i++)
      greatest = x[i] > greatest || isnan(x[i]) ? x[i] : greatest;
    y[p] = greatest;
  }
  return ERR_OK;
}

static const struct op_case global_max_pool_cases[] = {
    {.inputs = "f32{apart}[2,3,3,4]"},
    {.inputs = "f32{apart}[3,4]"},
    {.inputs = "f32{apart}[2,2,17,9]"},
    {.inputs = "f32[2,16,7,7]", .is_not_smooth = true},
    {.inputs = "f32{apart}[n,c,s]", .draw = "n=1..3 c=1..3 s=1..6"},
    {.inputs = "f32{apart}[n,c,h,w]", .draw = "n=1..2 c=1..3 h=1..4 w=1..4"},
    {.inputs = "f32{apart}[n,c,d,h,w]", .draw = "n=1..2 c=1..2 d=1..3 h=1..3 w=1..3"},
    {0},
};

const struct op_def op_GlobalMaxPool = {
    .name = "GlobalMaxPool",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 1,
    .infer = global_pool_infer,
    .backward = global_max_pool_backward,
    .ref = global_max_pool_ref,
    .cases = global_max_pool_cases,
};
