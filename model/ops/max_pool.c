/* MaxPool (ONNX 1..12; 1 to 3 spatial dimensions, with Indices) and its gradient. */
#include <math.h>

#include "model/ops/shared/backward.h"
#include "model/ops/shared/infer.h"
#include "model/ops/shared/windows.h"

static int max_pool_infer(struct graph *graph, const struct node *node, struct err *err) {
  const struct value x = *node_input(graph, node, 0);
  struct windows windows;
  struct shape y;
  if (x.dtype != DTYPE_F32 && x.dtype != DTYPE_U8)
    return node_error(node, err, ERR_UNSUPPORTED, "input '%s' is %s; f32 and u8 are supported", x.name,
                      dtype_name(x.dtype));
  if (windows_init(&windows, node, &x.shape, NULL, err))
    return err->code;
  y = windows_out_shape(&windows, x.shape.dim[0], x.shape.dim[1]);
  if (infer_output(graph, node, 0, &(struct tensor){.dtype = x.dtype, .shape = y}, err))
    return err->code;
  return infer_output(graph, node, 1, &(struct tensor){.dtype = DTYPE_I64, .shape = y}, err);
}

static int max_pool_backward(struct autodiff *ad, struct graph *graph, const struct node *node,
                             struct err *err) {
  struct shape x = node_input(graph, node, 0)->shape;
  struct attr attrs[WINDOWS_ATTRS];
  struct windows_lists lists;
  struct windows windows;
  int n;
  if (windows_init(&windows, node, &x, NULL, err))
    return err->code;
  n = windows_attrs(&windows, &lists, attrs);
  autodiff_add(ad, node, 0,
               backward_node(graph, "MaxPoolGrad", VALUES(autodiff_grad(ad, node, 0), node->inputs[0]),
                             (struct attr_list){attrs, n}));
  return ERR_OK;
}

static float pool_element(const struct tensor *tensor, int64_t i) {
  return tensor->dtype == DTYPE_U8 ? ((const uint8_t *)tensor->data)[i] : ((const float *)tensor->data)[i];
}

/* Where the greatest element of window o lies in the plane at `base`, the first of equals, NaN above all;
   -1 for a window on padding alone. */
static int64_t window_maximum(const struct windows *windows, const struct tensor *x, int64_t base,
                              int64_t o) {
  struct windows_tap tap;
  int64_t best = -1;
  float best_value = 0.0f;
  windows_at(&tap, windows, o);
  while (windows_next(&tap)) {
    float value = pool_element(x, base + tap.in);
    if (best < 0 || value > best_value || (isnan(value) && !isnan(best_value))) {
      best = tap.in;
      best_value = value;
    }
  }
  return best;
}

/* ONNX's Indices count the whole tensor's elements; with storage_order 1, columns of the plane first. */
static int64_t stored_index(const struct windows *w, int64_t base, int64_t at, bool is_column_major) {
  int64_t d = at / (w->in[1] * w->in[2]), h = at / w->in[2] % w->in[1], column = at % w->in[2];
  if (!is_column_major)
    return base + at;
  return w->dims == 3 ? base + (column * w->in[1] + h) * w->in[0] + d : base + column * w->in[1] + h;
}

static int max_pool_ref(const struct op_call *call, struct err *err) {
  const struct tensor *x = &call->in[0];
  bool is_column_major = node_attr_int(call->node, "storage_order", 0) != 0;
  int64_t *indices = call->out[1].data, planes = x->shape.dim[0] * x->shape.dim[1];
  struct windows windows;
  if (windows_init(&windows, call->node, &x->shape, NULL, err))
    return err->code;
  for (int64_t p = 0, i = 0; p < planes; p++)
    for (int64_t o = 0; o < windows.out_elems; o++, i++) {
      int64_t base = p * windows.in_elems, best = window_maximum(&windows, x, base, o);
      if (x->dtype == DTYPE_U8)
        ((uint8_t *)call->out[0].data)[i] = best < 0 ? 0 : (uint8_t)pool_element(x, base + best);
      else
        ((float *)call->out[0].data)[i] = best < 0 ? -INFINITY : pool_element(x, base + best);
      if (indices)
        indices[i] = stored_index(&windows, base, best < 0 ? 0 : best, is_column_major);
    }
  return ERR_OK;
}

/* Distinct values with wide gaps, so that finite differences do not change which one is the greatest. */
#define SPACED "=0.1,-0.7,0.9,0.3,-0.2,0.6,-0.9,0.8,0.5,-0.4,-0.1,0.7,-0.6,0.2,1,-0.3,0.4,-0.5,-0.8,1.1"

static const struct op_case max_pool_cases[] = {
    {.inputs = "f32[1,1,4,5]" SPACED, .attrs = "kernel_shape=2,2"},
    {.inputs = "f32[1,1,5,4]" SPACED, .attrs = "kernel_shape=3,2 strides=2,1 pads=1,0,1,1", .outputs = 2},
    {.inputs = "f32[1,2,10]" SPACED, .attrs = "kernel_shape=3, strides=2, pads=1,1"},
    {.inputs = "f32[1,1,4,5]" SPACED, .attrs = "kernel_shape=2,2 strides=2,2 ceil_mode=1"},
    {.inputs = "f32[1,1,4,5]" SPACED, .attrs = "kernel_shape=7,7 strides=7,7 ceil_mode=1"},
    {.inputs = "f32[1,1,4,5]" SPACED,
     .attrs = "kernel_shape=2,2 dilations=2,2 storage_order=1",
     .outputs = 2},
    {.inputs = "f32[2,3,8,8]", .attrs = "kernel_shape=2,2 strides=2,2", .is_not_smooth = true},
    {.inputs = "u8{255}[2,2,5,4]", .attrs = "kernel_shape=2,3 pads=1,2,1,0", .outputs = 2},
    {.inputs = "f32[2,3,8,7]", .attrs = "kernel_shape=3,3 strides=2,2 pads=1,1,1,1", .is_not_smooth = true},
    {.inputs = "f32[2,3,8,7]",
     .attrs = "kernel_shape=3,2 strides=2,2 auto_pad=SAME_UPPER",
     .is_not_smooth = true},
    {.inputs = "f32[2,3,8,7]",
     .attrs = "kernel_shape=3,2 strides=2,3 auto_pad=SAME_LOWER",
     .is_not_smooth = true},
    {.inputs = "f32[2,3,6,5,4]", .attrs = "kernel_shape=2,3,2 strides=2,1,2", .is_not_smooth = true},
    {.inputs = "f32[2,3,7,8]",
     .attrs = "kernel_shape=3,3 strides=3,3 pads=1,1,1,1 ceil_mode=1",
     .is_not_smooth = true},
    {.inputs = "f32{apart}[n,c,h+k,w+k]",
     .attrs = "kernel_shape=k,k strides=s,t pads=p,q,q,p ceil_mode=m",
     .draw = "n=1..2 c=1..3 h=0..4 w=0..4 k=1..3 s=1..2 t=1..3 p=0..k-1 q=0..k-1 m=0|1"},
    {.inputs = "f32{apart}[n,c,h]",
     .attrs = "kernel_shape=k, strides=s, auto_pad=m",
     .draw = "n=1..2 c=1..2 h=3..9 k=1..3 s=1..3 m=SAME_UPPER|SAME_LOWER|VALID"},
    {0},
};

static const struct op_def max_pool_grad;
static const struct op_def *const max_pool_gradients[] = {&max_pool_grad, NULL};

const struct op_def op_MaxPool = {
    .name = "MaxPool",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 2,
    .min_opset = 1,
    .infer = max_pool_infer,
    .backward = max_pool_backward,
    .ref = max_pool_ref,
    .cases = max_pool_cases,
    .gradients = max_pool_gradients,
};

static int max_pool_grad_infer(struct graph *graph, const struct node *node, struct err *err) {
  struct windows windows;
  struct shape dy, x, y;
  char text[128];
  if (infer_check_f32(graph, node, err))
    return err->code;
  dy = node_input(graph, node, 0)->shape;
  x = node_input(graph, node, 1)->shape;
  if (windows_init(&windows, node, &x, NULL, err))
    return err->code;
  y = windows_out_shape(&windows, x.dim[0], x.dim[1]);
  if (!shape_is_same(&y, &dy))
    return node_error(node, err, ERR_INVALID, "a gradient of shape %s does not belong to this pool",
                      shape_text(&dy, text, sizeof text));
  return infer_f32(graph, node, 0, &x, err);
}

static int max_pool_grad_ref(const struct op_call *call, struct err *err) {
  const struct tensor *x = &call->in[1];
  const float *dy = call->in[0].data;
  float *dx = call->out[0].data;
  int64_t planes = x->shape.dim[0] * x->shape.dim[1];
  struct windows windows;
  if (windows_init(&windows, call->node, &x->shape, NULL, err))
    return err->code;
  for (int64_t i = 0; i < planes * windows.in_elems; i++)
    dx[i] = 0.0f;
  for (int64_t p = 0; p < planes; p++)
    for (int64_t o = 0; o < windows.out_elems; o++, dy++) {
      int64_t base = p * windows.in_elems, best = window_maximum(&windows, x, base, o);
      if (best >= 0)
        dx[base + best] += *dy;
    }
  return ERR_OK;
}

/* dy, x -> dx; the attributes of MaxPool, resolved */
static const struct op_def max_pool_grad = {
    .name = "MaxPoolGrad",
    .domain = "ai.weir",
    .min_inputs = 2,
    .max_inputs = 2,
    .min_outputs = 1,
    .max_outputs = 1,
    .infer = max_pool_grad_infer,
    .ref = max_pool_grad_ref,
};
