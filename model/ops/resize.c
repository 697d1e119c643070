/* Resize (ONNX 10..19) and Upsample, its older name (7..9): nearest, linear and cubic interpolation of any
   axes; and their gradient, which spreads each element with the same weights. Scales, sizes and the region
   of interest must be known. */
#include "model/ops/shared/resize.h"

#include "model/ops/shared/backward.h"
#include "model/ops/shared/infer.h"

enum { ATTRS_MAX = 64 };

static int resize_infer(struct graph *graph, const struct node *node, struct err *err) {
  const struct value x = *node_input(graph, node, 0);
  struct resize resize;
  if (x.dtype != DTYPE_F32)
    return node_error(node, err, ERR_UNSUPPORTED, "input '%s' is %s; only f32 is supported here", x.name,
                      dtype_name(x.dtype));
  if (resize_read(graph, node, &x.shape, &resize, err))
    return err->code;
  return infer_f32(graph, node, 0, &resize.out, err);
}

/* The gradient node is told all that this node is told, in the terms of the newest opset. */
static int resize_backward(struct autodiff *ad, struct graph *graph, const struct node *node,
                           struct err *err) {
  struct shape x = node_input(graph, node, 0)->shape;
  bool is_old = resize_is_old(graph, node);
  int inputs[4] = {autodiff_grad(ad, node, 0), -1, -1, -1}, n = 0;
  struct attr attrs[ATTRS_MAX + 3];
  for (int i = 1; i < node->n_inputs; i++)
    inputs[is_old ? 2 : i] = node->inputs[i];
  if (node->n_attrs > ATTRS_MAX)
    return node_error(node, err, ERR_INVALID, "has %d attributes", node->n_attrs);
  while (n < node->n_attrs) {
    attrs[n] = node->attrs[n];
    n++;
  }
  attrs[n++] = attr_of_shape(&x);
  if (is_old) {
    attrs[n++] =
        (struct attr){.name = "coordinate_transformation_mode", .type = ATTR_STRING, .s = "asymmetric"};
    attrs[n++] = (struct attr){.name = "nearest_mode", .type = ATTR_STRING, .s = "floor"};
  }
  autodiff_add(
      ad, node, 0,
      backward_node(graph, "ResizeGrad", (struct value_list){inputs, 4}, (struct attr_list){attrs, n}));
  return ERR_OK;
}

static int resize_ref(const struct op_call *call, struct err *err) {
  struct resample resample;
  struct resize resize;
  if (resize_read(call->graph, call->node, &call->in[0].shape, &resize, err))
    return err->code;
  if (!resize_tables(&resize, call->node, &resample, err))
    resample_forward(&resample, call->in[0].data, call->out[0].data);
  resample_fini(&resample);
  return (int)err->code;
}

static const struct op_case resize_cases[] = {
    {.inputs = "f32[1,2,3,4] - f32[4]==1,1,2,2",
     .attrs = "mode=nearest nearest_mode=floor "
              "coordinate_transformation_mode=asymmetric"},
    {.inputs = "f32[2,16,4,3] - - i64[4]==2,16,8,6", .attrs = "mode=linear"},
    {.inputs = "f32[2,16,4,3] - - i64[4]==2,16,8,9",
     .attrs = "mode=nearest nearest_mode=floor "
              "coordinate_transformation_mode=asymmetric"},
    {.inputs = "f32[1,3,4,5] - f32[4]==1,1,0.6,0.6",
     .attrs = "mode=linear coordinate_transformation_mode=align_corners"},
    {.inputs = "f32[1,1,5,6] - - i64[2]==3,9",
     .attrs = "mode=cubic axes=2,-1 exclude_outside=1",
     .opset = 18},
    {.inputs = "f32[1,2,7,6] - - i64[2]==3,4", .attrs = "mode=linear axes=3,2 antialias=1", .opset = 18},
    {.inputs = "f32[1,2,7,6] - - i64[2]==3,2", .attrs = "mode=cubic axes=2,3 antialias=1", .opset = 18},
    {.inputs = "f32[1,1,4,6] - - i64[2]==7,8",
     .attrs = "mode=linear axes=2,3 keep_aspect_ratio_policy=not_larger",
     .opset = 18},
    {.inputs = "f32[1,1,4,6] - - i64[2]==7,8",
     .attrs = "mode=nearest axes=2,3 keep_aspect_ratio_policy=not_smaller",
     .opset = 18},
    {.inputs = "f32[1,1,4,4] f32[8]==0,0,0.4,0.6,1,1,1.2,1.7 - i64[4]==1,1,3,3",
     .attrs = "mode=linear coordinate_transformation_mode=tf_crop_and_resize extrapolation_value=10f"},
    {.inputs = "f32[1,2,3,4] f32[4]==1,1,2,1.5", .attrs = "mode=linear", .opset = 10},
    {.inputs = "f32[2,3,2,3,2] - f32[5]==2,1.5,1.5,2,2", .attrs = "mode=linear", .is_not_smooth = true},
    {.inputs = "f32[1,2,3] - f32[3]==1,1,1"},
    {.inputs = "f32[2,h,3] - - i64[3]==2,s,6", .attrs = "mode=linear", .draw = "h=1..5 s=1..9"},
    {.inputs = "f32[1,2,h,w] - - i64[4]==1,2,s,t",
     .attrs = "mode=m coordinate_transformation_mode=c nearest_mode=r",
     .draw =
         "h=1..5 w=1..5 s=1..8 t=1..8 m=nearest|linear|cubic "
         "r=round_prefer_floor|round_prefer_ceil|floor|ceil "
         "c=half_pixel|half_pixel_symmetric|pytorch_half_pixel|align_corners|asymmetric|tf_half_pixel_for_nn",
     .opset = 19},
    {0},
};

static const struct op_def resize_grad;
static const struct op_def *const resize_gradients[] = {&resize_grad, NULL};

const struct op_def op_Resize = {
    .name = "Resize",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 4,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 10,
    .infer = resize_infer,
    .backward = resize_backward,
    .ref = resize_ref,
    .cases = resize_cases,
    .gradients = resize_gradients,
};

static const struct op_case upsample_cases[] = {
    {.inputs = "f32[1,2,3,4] f32[4]==1,1,2,3", .attrs = "mode=m", .draw = "m=nearest|linear", .opset = 9},
    {0},
};

const struct op_def op_Upsample = {
    .name = "Upsample",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 2,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 7,
    .infer = resize_infer,
    .backward = resize_backward,
    .ref = resize_ref,
    .cases = upsample_cases,
};

static int resize_grad_infer(struct graph *graph, const struct node *node, struct err *err) {
  const struct value *dy = node_input(graph, node, 0);
  struct resize resize;
  struct shape x;
  char text[128];
  if (infer_shape_attr(node, &x, err) || resize_read(graph, node, &x, &resize, err))
    return err->code;
  if (dy->dtype != DTYPE_F32 || !shape_is_same(&dy->shape, &resize.out))
    return node_error(node, err, ERR_INVALID, "a gradient of shape %s does not belong to this tensor",
                      shape_text(&dy->shape, text, sizeof text));
  return infer_f32(graph, node, 0, &x, err);
}

static int resize_grad_ref(const struct op_call *call, struct err *err) {
  struct resample resample;
  struct resize resize;
  if (resize_read(call->graph, call->node, &call->out[0].shape, &resize, err))
    return err->code;
  if (!resize_tables(&resize, call->node, &resample, err))
    resample_backward(&resample, call->in[0].data, call->out[0].data);
  resample_fini(&resample);
  return (int)err->code;
}

/* dy, roi, scales, sizes -> dx; Resize's attributes, and shape (of the tensor that was resized) */
static const struct op_def resize_grad = {
    .name = "ResizeGrad",
    .domain = "ai.weir",
    .min_inputs = 1,
    .max_inputs = 4,
    .min_outputs = 1,
    .max_outputs = 1,
    .infer = resize_grad_infer,
    .ref = resize_grad_ref,
};
