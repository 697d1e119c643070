/* Pad: elements before and behind each axis: one value, or reflected, repeated or wrapped from the tensor; a
   negative count crops (ONNX 2..21; the counts are an input since 11 and must be known; `axes` since 18). And
   its gradient, which adds each element's gradient to where the element came from. */
#include <string.h>

#include "model/ops/shared/backward.h"
#include "model/ops/shared/infer.h"
#include "model/ops/pad.h"
#include "model/ops/shared/strided.h"

static int pad_set_axis(struct pad *pad, const struct node *node, int d, struct err *err) {
  int64_t before = pad->counts[d], behind = pad->counts[pad->in.rank + d], *dim = &pad->out.dim[d];
  if (__builtin_add_overflow(*dim, before, dim) || __builtin_add_overflow(*dim, behind, dim) || *dim < 0 ||
      before < -pad->in.dim[d] || behind < -pad->in.dim[d] ||
      (pad->in.dim[d] == 0 && *dim > 0 && pad->mode != PAD_CONSTANT))
    return node_error(node, err, ERR_INVALID, "axis %d of %lld cannot be padded by %lld and %lld", d,
                      (long long)pad->in.dim[d], (long long)before, (long long)behind);
  return ERR_OK;
}

int pad_read(const struct graph *graph, const struct node *node, const struct shape *in, struct pad *pad,
             struct err *err) {
  static const char *const modes[] = {"constant", "reflect", "edge", "wrap"};
  const char *mode = node_attr_string(node, "mode", "constant");
  int64_t counts[2 * RANK_MAX] = {0}, axes[RANK_MAX] = {0};
  int n, n_axes, axis;
  *pad = (struct pad){.in = *in, .out = *in};
  while (pad->mode < PAD_UNKNOWN && strcmp(mode, modes[pad->mode]) != 0)
    pad->mode++;
  if (pad->mode == PAD_UNKNOWN)
    return node_error(node, err, ERR_UNSUPPORTED, "mode '%.40s' is not known", mode);
  if (infer_few_ints(graph, node, (struct ints_source){1, "pads"},
                     (struct ints_room){counts, 2 * RANK_MAX, &n}, err) ||
      infer_few_ints(graph, node, (struct ints_source){3, NULL}, (struct ints_room){axes, RANK_MAX, &n_axes},
                     err))
    return err->code;
  n_axes = node_input(graph, node, 3) ? n_axes : in->rank;
  if (n != 2 * n_axes)
    return node_error(node, err, ERR_INVALID, "has %d counts for %d axes", n, n_axes);
  for (int i = 0; i < n_axes; i++) {
    if (infer_axis(node, node_input(graph, node, 3) ? axes[i] : i, in->rank, &axis, err))
      return err->code;
    pad->counts[axis] = counts[i];
    pad->counts[in->rank + axis] = counts[n_axes + i];
  }
  for (int d = 0; d < in->rank; d++)
    if (pad_set_axis(pad, node, d, err))
      return err->code;
  return ERR_OK;
}

static int pad_infer(struct graph *graph, const struct node *node, struct err *err) {
  const struct value x = *node_input(graph, node, 0), *fill = node_input(graph, node, 2);
  struct pad pad;
  if (pad_read(graph, node, &x.shape, &pad, err))
    return err->code;
  if (fill && (fill->dtype != x.dtype || shape_elems(&fill->shape) != 1))
    return node_error(node, err, ERR_INVALID, "the value to pad with ('%s') must be a scalar %s", fill->name,
                      dtype_name(x.dtype));
  return infer_output(graph, node, 0, &(struct tensor){.dtype = x.dtype, .shape = pad.out}, err);
}

static int pad_backward(struct autodiff *ad, struct graph *graph, const struct node *node, struct err *err) {
  struct shape x = node_input(graph, node, 0)->shape;
  int dy = autodiff_grad(ad, node, 0);
  struct attr attrs[3];
  struct pad pad;
  if (pad_read(graph, node, &x, &pad, err))
    return err->code;
  attrs[0] = attr_of_shape(&x);
  attrs[1] = attr_of_ints("pads", pad.counts, 2 * x.rank);
  attrs[2] =
      (struct attr){.name = "mode", .type = ATTR_STRING, .s = node_attr_string(node, "mode", "constant")};
  autodiff_add(ad, node, 0, backward_node(graph, "PadGrad", VALUES(dy), (struct attr_list){attrs, 3}));
  return ERR_OK;
}

int64_t pad_source(enum pad_mode mode, int64_t i, int64_t n) {
  int64_t period = mode == PAD_REFLECT && n > 1 ? 2 * (n - 1) : n;
  if (i >= 0 && i < n)
    return i;
  if (mode == PAD_CONSTANT)
    return -1;
  if (mode == PAD_EDGE)
    return i < 0 ? 0 : n - 1;
  i = i % period + (i % period < 0 ? period : 0);
  return i < n ? i : period - i;
}

/* A walk over the padded tensor beside the one that it was made from. */
struct walk {
  const struct pad *pad;
  size_t element;
  const void *fill; /* one element; NULL: the gradient flows back from the padded tensor */
};

static void element_move(const struct walk *walk, char *x, char *y) {
  if (walk->fill)
    memcpy(y, x, walk->element);
  else
    *(float *)(void *)x += *(const float *)(const void *)y;
}

static void fill_block(const struct walk *walk, int64_t elems, char *y) {
  struct strided all = {0};
  strided_dim(&all, elems, 0, 1);
  if (walk->fill)
    strided_copy(&all, walk->element, walk->fill, y);
}

/* The part that the tensors have in common, at once. */
static void move_common(const struct walk *walk, int64_t n, char *x, char *y) {
  struct strided all = {0};
  strided_dim(&all, n, 1, 1);
  if (walk->fill)
    strided_copy(&all, walk->element, x, y);
  else
    strided_add(&all, (const float *)(const void *)y, (float *)(void *)x);
}

/* x: a block of axis d and those behind it; y: the padded block. */
static void walk_axis(const struct walk *walk, int d, char *x, char *y) {
  const struct pad *pad = walk->pad;
  int64_t n = pad->in.dim[d], before = pad->counts[d], end = pad->out.dim[d];
  int64_t in_stride = shape_stride(&pad->in, d), out_stride = shape_stride(&pad->out, d);
  bool is_last = d == pad->in.rank - 1;
  for (int64_t o = 0; o < end; o++) {
    int64_t source = pad_source(pad->mode, o - before, n);
    char *from = x + (source < 0 ? 0 : source) * in_stride * (int64_t)walk->element;
    char *to = y + o * out_stride * (int64_t)walk->element;
    if (source < 0) {
      fill_block(walk, out_stride, to);
    } else if (!is_last) {
      walk_axis(walk, d + 1, from, to);
    } else if (o >= before && o < before + n) {
      int64_t common = (before + n < end ? before + n : end) - o;
      move_common(walk, common, from, to);
      o += common - 1;
    } else {
      element_move(walk, from, to);
    }
  }
}

static int pad_ref(const struct op_call *call, struct err *err) {
  const struct tensor *x = &call->in[0];
  float value = node_attr_float(call->node, "value", 0.0f);
  int64_t zero = 0;
  struct walk walk = {.element = dtype_size(x->dtype)};
  struct pad pad;
  if (pad_read(call->graph, call->node, &x->shape, &pad, err))
    return err->code;
  walk.pad = &pad;
  walk.fill = call->in[2].data ? call->in[2].data : x->dtype == DTYPE_F32 ? (void *)&value : (void *)&zero;
  if (pad.in.rank == 0)
    element_move(&walk, x->data, call->out[0].data);
  else
    walk_axis(&walk, 0, x->data, call->out[0].data);
  return ERR_OK;
}

static const struct op_case pad_cases[] = {
    {.inputs = "f32[2,3] i64[4]==1,0,0,2 f32[]==0.5"},
    {.inputs = "f32[2,3] i64[4]==1,-1,0,2"},
    {.inputs = "f32[3,4] i64[4]==-1,2,0,-3 f32[]==1", .attrs = "mode=constant"},
    {.inputs = "f32[2,3,4] i64[2]==2,5 - i64[1]==-1", .attrs = "mode=reflect", .opset = 18},
    {.inputs = "f32[3,1] i64[4]==1,2,1,2", .attrs = "mode=reflect"},
    {.inputs = "f32[2,3]", .attrs = "pads=0,1,2,0 value=0.25f", .opset = 9},
    {.inputs = "i64{9}[2,3] i64[4]==0,1,1,0 i64[]==-7"},
    {.inputs = "bool{2}[4] i64[2]==1,1"},
    {.inputs = "f32[n,m] i64[4]==a,b,c,d",
     .attrs = "mode=e",
     .draw = "n=1..4 m=1..5 a=0..3 b=0..6 c=0..3 d=0..6 e=constant|reflect|edge|wrap",
     .opset = 19},
    {0},
};

static const struct op_def pad_grad;
static const struct op_def *const pad_gradients[] = {&pad_grad, NULL};

const struct op_def op_Pad = {
    .name = "Pad",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 4,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 2,
    .infer = pad_infer,
    .backward = pad_backward,
    .ref = pad_ref,
    .cases = pad_cases,
    .gradients = pad_gradients,
};

static int pad_grad_infer(struct graph *graph, const struct node *node, struct err *err) {
  const struct value *dy = node_input(graph, node, 0);
  struct shape x;
  struct pad pad;
  char text[128];
  if (infer_shape_attr(node, &x, err) || pad_read(graph, node, &x, &pad, err))
    return err->code;
  if (dy->dtype != DTYPE_F32 || !shape_is_same(&dy->shape, &pad.out))
    return node_error(node, err, ERR_INVALID, "a gradient of shape %s does not belong to this tensor",
                      shape_text(&dy->shape, text, sizeof text));
  return infer_f32(graph, node, 0, &x, err);
}

static int pad_grad_ref(const struct op_call *call, struct err *err) {
  struct walk walk = {.element = sizeof(float)};
  const struct tensor *dx = &call->out[0];
  struct pad pad;
  if (pad_read(call->graph, call->node, &dx->shape, &pad, err))
    return err->code;
  walk.pad = &pad;
  memset(dx->data, 0, (size_t)shape_elems(&dx->shape) * sizeof(float));
  if (pad.in.rank == 0)
    element_move(&walk, dx->data, call->in[0].data);
  else
    walk_axis(&walk, 0, dx->data, call->in[0].data);
  return ERR_OK;
}

/* dy -> dx; shape (of the tensor that was padded), pads of all its axes, mode */
static const struct op_def pad_grad = {
    .name = "PadGrad",
    .domain = "ai.weir",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .infer = pad_grad_infer,
    .ref = pad_grad_ref,
};
