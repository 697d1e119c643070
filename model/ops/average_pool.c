/* AveragePool (ONNX 1..19; 1 to 3 spatial dimensions) and its gradient. */
#include "model/ops/shared/backward.h"
#include "model/ops/shared/infer.h"
#include "model/ops/shared/windows.h"

static int average_pool_infer(struct graph *graph, const struct node *node, struct err *err) {
  struct windows windows;
  struct shape x, y;
  if (infer_check_f32(graph, node, err))
    return err->code;
  x = node_input(graph, node, 0)->shape;
  if (windows_init(&windows, node, &x, NULL, err))
    return err->code;
  y = windows_out_shape(&windows, x.dim[0], x.dim[1]);
  return infer_f32(graph, node, 0, &y, err);
}

static int average_pool_backward(struct autodiff *ad, struct graph *graph, const struct node *node,
                                 struct err *err) {
  struct shape x = node_input(graph, node, 0)->shape;
  struct attr attrs[WINDOWS_ATTRS + 2];
  struct windows_lists lists;
  struct windows windows;
  int dy = autodiff_grad(ad, node, 0), n;
  if (windows_init(&windows, node, &x, NULL, err))
    return err->code;
  n = windows_attrs(&windows, &lists, attrs);
  attrs[n++] = attr_of_int("count_include_pad", node_attr_int(node, "count_include_pad", 0));
  attrs[n++] = attr_of_shape(&x);
  autodiff_add(ad, node, 0,
               backward_node(graph, "AveragePoolGrad", VALUES(dy), (struct attr_list){attrs, n}));
  return ERR_OK;
}

/* What a window's sum is divided by. */
static double window_count(const struct windows *windows, int64_t o, bool includes_pad) {
  struct windows_tap tap;
  int64_t count = 0;
  if (includes_pad)
    return (double)windows_padded_taps(windows, o);
  windows_at(&tap, windows, o);
  while (windows_next(&tap))
    count++;
  return count ? (double)count : 1.0;
}

static int average_pool_ref(const struct op_call *call, struct err *err) {
  const struct shape *shape = &call->in[0].shape;
  bool includes_pad = node_attr_int(call->node, "count_include_pad", 0) != 0;
  const float *x = call->in[0].data;
  float *y = call->out[0].data;
  struct windows windows;
  struct windows_tap tap;
  if (windows_init(&windows, call->node, shape, NULL, err))
    return err->code;
  for (int64_t p = 0; p < shape->dim[0] * shape->dim[1]; p++, x += windows.in_elems)
    for (int64_t o = 0; o < windows.out_elems; o++) {
      double sum = 0.0;
      windows_at(&tap, &windows, o);
      while (windows_next(&tap))
        sum += x[tap.in];
      *y++ = (float)(sum / window_count(&windows, o, includes_pad));
    }
  return ERR_OK;
}

static const struct op_case average_pool_cases[] = {
    {.inputs = "f32[2,3,6,5]", .attrs = "kernel_shape=2,2"},
    {.inputs = "f32[2,3,6,5]", .attrs = "kernel_shape=3,2 strides=2,1 pads=1,0,1,1"},
    {.inputs = "f32[2,3,6,5]", .attrs = "kernel_shape=3,2 strides=2,1 pads=1,0,1,1 count_include_pad=1"},
    {.inputs = "f32[2,3,7,8]", .attrs = "kernel_shape=3,3 strides=2,2 auto_pad=SAME_UPPER"},
    {.inputs = "f32[2,3,7,8]",
     .attrs = "kernel_shape=3,2 strides=2,3 auto_pad=SAME_LOWER count_include_pad=1"},
    {.inputs = "f32[2,3,7,8]", .attrs = "kernel_shape=3,3 strides=3,3 ceil_mode=1"},
    {.inputs = "f32[2,3,2,3]", .attrs = "kernel_shape=5,5 strides=5,5 ceil_mode=1 count_include_pad=1"},
    {.inputs = "f32[2,3,7,8]",
     .attrs = "kernel_shape=3,3 strides=3,2 pads=1,1,1,1 ceil_mode=1 count_include_pad=1"},
    {.inputs = "f32[2,3,9]", .attrs = "kernel_shape=3, strides=2, pads=0,1"},
    {.inputs = "f32[1,2,4,5,4]", .attrs = "kernel_shape=2,3,2 strides=2,1,2 pads=1,0,1,0,1,1"},
    {.inputs = "f32[1,2,9,8]", .attrs = "kernel_shape=3,2 dilations=2,3 pads=1,1,1,1", .opset = 19},
    {.inputs = "f32[n,c,h+k,w+k]",
     .attrs = "kernel_shape=k,k strides=s,t pads=p,q,q,p count_include_pad=i ceil_mode=m",
     .draw = "n=1..2 c=1..3 h=0..4 w=0..4 k=1..3 s=1..2 t=1..3 p=0..k-1 q=0..k-1 i=0|1 m=0|1"},
    {.inputs = "f32[n,c,h]",
     .attrs = "kernel_shape=k, strides=s, auto_pad=m",
     .draw = "n=1..2 c=1..2 h=3..9 k=1..3 s=1..3 m=SAME_UPPER|SAME_LOWER|VALID"},
    {0},
};

static const struct op_def average_pool_grad;
static const struct op_def *const average_pool_gradients[] = {&average_pool_grad, NULL};

const struct op_def op_AveragePool = {
    .name = "AveragePool",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 1,
    .infer = average_pool_infer,
    .backward = average_pool_backward,
    .ref = average_pool_ref,
    .cases = average_pool_cases,
    .gradients = average_pool_gradients,
};

static int average_pool_grad_infer(struct graph *graph, const struct node *node, struct err *err) {
  struct windows windows;
  struct shape dy, x, y;
  char text[128];
  if (infer_check_f32(graph, node, err) || infer_shape_attr(node, &x, err) ||
      windows_init(&windows, node, &x, NULL, err))
    return err->code;
  dy = node_input(graph, node, 0)->shape;
  y = windows_out_shape(&windows, x.dim[0], x.dim[1]);
  if (!shape_is_same(&y, &dy))
    return node_error(node, err, ERR_INVALID, "a gradient of shape %s does not belong to this pool",
                      shape_text(&dy, text, sizeof text));
  return infer_f32(graph, node, 0, &x, err);
}

static int average_pool_grad_ref(const struct op_call *call, struct err *err) {
  const struct shape *shape = &call->out[0].shape;
  bool includes_pad = node_attr_int(call->node, "count_include_pad", 0) != 0;
  const float *dy = call->in[0].data;
  float *dx = call->out[0].data;
  int64_t planes = shape->dim[0] * shape->dim[1];
  struct windows windows;
  struct windows_tap tap;
  if (windows_init(&windows, call->node, shape, NULL, err))
    return err->code;
  for (int64_t i = 0; i < planes * windows.in_elems; i++)
    dx[i] = 0.0f;
  for (int64_t p = 0; p < planes; p++, dx += windows.in_elems)
    for (int64_t o = 0; o < windows.out_elems; o++) {
      float share = (float)(*dy++ / window_count(&windows, o, includes_pad));
      windows_at(&tap, &windows, o);
      while (windows_next(&tap))
        dx[tap.in] += share;
    }
  return ERR_OK;
}

/* dy -> dx; the attributes of AveragePool, resolved, and "shape": x's */
static const struct op_def average_pool_grad = {
    .name = "AveragePoolGrad",
    .domain = "ai.weir",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .infer = average_pool_grad_infer,
    .ref = average_pool_grad_ref,
};
