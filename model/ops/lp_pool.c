/* LpPool: the norm of order p over windows (ONNX 2..18; 1 to 3 spatial dimensions), and its gradient. */
#include <string.h>

#include "model/ops/shared/backward.h"
#include "model/ops/shared/lp.h"
#include "model/ops/shared/windows.h"

static int lp_pool_infer(struct graph *graph, const struct node *node, struct err *err) {
  struct windows windows;
  struct shape x = node_input(graph, node, 0)->shape, y;
  double p;
  if (infer_check_f32(graph, node, err) || lp_order(node, &p, err) ||
      windows_init(&windows, node, &x, NULL, err))
    return err->code;
  y = windows_out_shape(&windows, x.dim[0], x.dim[1]);
  return infer_f32(graph, node, 0, &y, err);
}

static int lp_pool_backward(struct autodiff *ad, struct graph *graph, const struct node *node,
                            struct err *err) {
  int inputs[] = {autodiff_grad(ad, node, 0), node->inputs[0], node->outputs[0]};
  (void)err;
  autodiff_add(ad, node, 0,
               backward_node(graph, "LpPoolGrad", (struct value_list){inputs, 3}, node_attrs(node)));
  return ERR_OK;
}

static int lp_pool_ref(const struct op_call *call, struct err *err) {
  const struct shape *shape = &call->in[0].shape;
  const float *x = call->in[0].data;
  float *y = call->out[0].data;
  struct windows windows;
  struct windows_tap tap;
  double p;
  if (lp_order(call->node, &p, err) || windows_init(&windows, call->node, shape, NULL, err))
    return err->code;
  for (int64_t plane = 0; plane < shape->dim[0] * shape->dim[1]; plane++, x += windows.in_elems)
    for (int64_t o = 0; o < windows.out_elems; o++) {
      double sum = 0.0;
      windows_at(&tap, &windows, o);
      while (windows_next(&tap))
        sum += lp_power(x[tap.in], p);
      *y++ = (float)lp_root(sum, p);
    }
  return ERR_OK;
}

static const struct op_case lp_pool_cases[] = {
    {.inputs = "f32{apart}[1,2,6,5]", .attrs = "kernel_shape=2,2"},
    {.inputs = "f32{apart}[1,2,5,5]", .attrs = "kernel_shape=3,2 strides=2,1 pads=1,0,1,1 p=3"},
    {.inputs = "f32{apart}[1,2,5,6]", .attrs = "kernel_shape=3,3 strides=2,2 auto_pad=SAME_LOWER p=1"},
    {.inputs = "f32{apart}[1,1,7,8]",
     .attrs = "kernel_shape=3,2 strides=2,3 dilations=1,2 ceil_mode=1",
     .opset = 18},
    {.inputs = "f32{apart}[n,c,h+k]",
     .attrs = "kernel_shape=k, strides=s, pads=q,0 p=r",
     .draw = "n=1..2 c=1..2 h=0..5 k=2..3 s=1..3 q=0|1 r=1..3"},
    {.inputs = "f32{apart}[n,c,h+1,3,w+1]",
     .attrs = "kernel_shape=2,2,2 strides=s,1,1",
     .draw = "n=1..2 c=1..2 h=1..2 w=1..2 s=1..2"},
    {0},
};

static const struct op_def lp_pool_grad;
static const struct op_def *const lp_pool_gradients[] = {&lp_pool_grad, NULL};

const struct op_def op_LpPool = {
    .name = "LpPool",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 2,
    .infer = lp_pool_infer,
    .backward = lp_pool_backward,
    .ref = lp_pool_ref,
    .cases = lp_pool_cases,
    .gradients = lp_pool_gradients,
};

static int lp_pool_grad_infer(struct graph *graph, const struct node *node, struct err *err) {
  struct shape x = node_input(graph, node, 1)->shape;
  if (infer_check_f32(graph, node, err))
    return err->code;
  return infer_f32(graph, node, 0, &x, err);
}

static int lp_pool_grad_ref(const struct op_call *call, struct err *err) {
  const float *dy = call->in[0].data, *x = call->in[1].data, *y = call->in[2].data;
  const struct shape *shape = &call->in[1].shape;
  float *dx = call->out[0].data;
  struct windows windows;
  struct windows_tap tap;
  double p;
  if (lp_order(call->node, &p, err) || windows_init(&windows, call->node, shape, NULL, err))
    return err->code;
  memset(dx, 0, (size_t)shape_elems(shape) * sizeof *dx);
  for (int64_t plane = 0; plane < shape->dim[0] * shape->dim[1]; plane++) {
    for (int64_t o = 0; o < windows.out_elems; o++, dy++, y++) {
      windows_at(&tap, &windows, o);
      while (windows_next(&tap))
        dx[tap.in] += (float)(*dy * lp_slope(x[tap.in], *y, p));
    }
    x += windows.in_elems;
    dx += windows.in_elems;
  }
  return ERR_OK;
}

/* dy, x, y -> dx; the attributes of LpPool */
static const struct op_def lp_pool_grad = {
    .name = "LpPoolGrad",
    .domain = "ai.weir",
    .min_inputs = 3,
    .max_inputs = 3,
    .min_outputs = 1,
    .max_outputs = 1,
    .infer = lp_pool_grad_infer,
    .ref = lp_pool_grad_ref,
};
