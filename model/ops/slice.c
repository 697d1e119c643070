/* Slice: of each axis every step-th element from a start to before an end (ONNX 1..13; the bounds are inputs
   since 10, and must be known), and its gradient, which puts the elements back among zeros. */
#include <string.h>

#include "model/ops/shared/backward.h"
#include "model/ops/shared/infer.h"
#include "model/ops/slice.h"
#include "model/ops/shared/strided.h"

static int64_t bound_clamped(int64_t at, int64_t low, int64_t high) {
  return at < low ? low : at > high ? high : at;
}

static void slice_axis(struct slice *slice, int axis, int64_t start, int64_t end, int64_t step) {
  int64_t dim = slice->out.dim[axis];
  int64_t low = step > 0 ? 0 : -1, high = step > 0 ? dim : dim - 1, count = 0;
  start = bound_clamped(start < 0 ? start + dim : start, low, high);
  end = bound_clamped(end < 0 ? end + dim : end, low, high);
  if (step > 0 && end > start)
    count = 1 + (end - start - 1) / step;
  else if (step < 0 && end < start)
    count = 1 + (end - start + 1) / step;
  slice->start[axis] = count > 0 ? start : 0;
  slice->step[axis] = count > 1 ? step : 1;
  slice->out.dim[axis] = count;
}

int slice_read(const struct graph *graph, const struct node *node, const struct shape *x, struct slice *slice,
               struct err *err) {
  int64_t starts[RANK_MAX] = {0}, ends[RANK_MAX] = {0}, axes[RANK_MAX] = {0}, steps[RANK_MAX] = {0};
  bool is_cut[RANK_MAX] = {false};
  int n, n_ends, n_axes, n_steps, axis;
  if (infer_few_ints(graph, node, (struct ints_source){1, "starts"}, (struct ints_room){starts, RANK_MAX, &n},
                     err) ||
      infer_few_ints(graph, node, (struct ints_source){2, "ends"},
                     (struct ints_room){ends, RANK_MAX, &n_ends}, err) ||
      infer_few_ints(graph, node, (struct ints_source){3, "axes"},
                     (struct ints_room){axes, RANK_MAX, &n_axes}, err) ||
      infer_few_ints(graph, node, (struct ints_source){4, NULL},
                     (struct ints_room){steps, RANK_MAX, &n_steps}, err))
    return err->code;
  if (n_ends != n || (n_axes && n_axes != n) || (n_steps && n_steps != n))
    return node_error(node, err, ERR_INVALID, "has %d starts, %d ends, %d axes and %d steps", n, n_ends,
                      n_axes, n_steps);
  *slice = (struct slice){.out = *x};
  for (int d = 0; d < x->rank; d++)
    slice->step[d] = 1;
  for (int i = 0; i < n; i++) {
    if (infer_axis(node, n_axes ? axes[i] : i, x->rank, &axis, err))
      return err->code;
    if (is_cut[axis] || (n_steps && steps[i] == 0))
      return node_error(node, err, ERR_INVALID, "axis %d is %s", axis,
                        is_cut[axis] ? "cut twice" : "walked with a step of 0");
    is_cut[axis] = true;
    slice_axis(slice, axis, starts[i], ends[i], n_steps ? steps[i] : 1);
  }
  return ERR_OK;
}

static int slice_infer(struct graph *graph, const struct node *node, struct err *err) {
  const struct value x = *node_input(graph, node, 0);
  struct slice slice;
  if (slice_read(graph, node, &x.shape, &slice, err))
    return err->code;
  return infer_output(graph, node, 0, &(struct tensor){.dtype = x.dtype, .shape = slice.out}, err);
}

static int slice_backward(struct autodiff *ad, struct graph *graph, const struct node *node,
                          struct err *err) {
  struct shape x = node_input(graph, node, 0)->shape;
  int dy = autodiff_grad(ad, node, 0);
  struct slice slice;
  struct attr attrs[3];
  if (slice_read(graph, node, &x, &slice, err))
    return err->code;
  attrs[0] = attr_of_shape(&x);
  attrs[1] = attr_of_ints("starts", slice.start, x.rank);
  attrs[2] = attr_of_ints("steps", slice.step, x.rank);
  autodiff_add(ad, node, 0, backward_node(graph, "SliceGrad", VALUES(dy), (struct attr_list){attrs, 3}));
  return ERR_OK;
}

/* The walk over the data's elements in the slice; returns the offset of the first. */
static int64_t slice_walk(const struct slice *slice, const struct shape *x, bool is_back,
                          struct strided *walk) {
  int64_t first = 0;
  *walk = (struct strided){0};
  for (int d = 0; d < x->rank; d++) {
    int64_t stride = shape_stride(x, d), within = slice->step[d] * stride,
            dense = shape_stride(&slice->out, d);
    first += slice->start[d] * stride;
    strided_dim(walk, slice->out.dim[d], is_back ? dense : within, is_back ? within : dense);
  }
  return first;
}

static int slice_ref(const struct op_call *call, struct err *err) {
  const struct tensor *x = &call->in[0];
  size_t element = dtype_size(x->dtype);
  struct strided walk;
  struct slice slice;
  int64_t first;
  if (slice_read(call->graph, call->node, &x->shape, &slice, err))
    return err->code;
  first = slice_walk(&slice, &x->shape, false, &walk);
  strided_copy(&walk, element, (const char *)x->data + (size_t)first * element, call->out[0].data);
  return ERR_OK;
}

static const struct op_case slice_cases[] = {
    {.inputs = "f32[4,5] i64[2]==1,-3 i64[2]==3,99999"},
    {.inputs = "f32[4,5] i64[1]==3 i64[1]==-99999 i64[1]==0 i64[1]==-1"},
    {.inputs = "f32[4,5] i32[1]==4 i32[1]==0 i32[1]==-1 i32[1]==-2"},
    {.inputs = "f32[2,6,3] i64[2]==1,0 i64[2]==2,6 i64[2]==0,1 i64[2]==1,3"},
    {.inputs = "i64{9}[5] i64[1]==3 i64[1]==1 i64[1]==0"},
    {.inputs = "bool{2}[3,4] i64[1]==-2 i64[1]==4 i64[1]==-1"},
    {.inputs = "f32[3,4]", .attrs = "starts=0,1 ends=-1,3", .opset = 9},
    {.inputs = "f32[3,4]", .attrs = "starts=1, ends=1000, axes=1,", .opset = 9},
    {.inputs = "f32[2,32,3,3] i64[1]==16 i64[1]==32 i64[1]==1"},
    {.inputs = "f32[n+2,m+3] i64[2]==a,b i64[2]==n+2,m+3 i64[2]==0,1 i64[2]==s,t",
     .draw = "n=0..4 m=0..3 a=0..1 b=0..2 s=1..3 t=1..2"},
    {0},
};

static const struct op_def slice_grad;
static const struct op_def *const slice_gradients[] = {&slice_grad, NULL};

const struct op_def op_Slice = {
    .name = "Slice",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 5,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 1,
    .infer = slice_infer,
    .backward = slice_backward,
    .ref = slice_ref,
    .cases = slice_cases,
    .gradients = slice_gradients,
};

int slice_grad_read(const struct node *node, const struct shape *dy, struct slice *slice, struct shape *x,
                    struct err *err) {
  const struct attr *starts = node_attr(node, "starts"), *steps = node_attr(node, "steps");
  if (infer_shape_attr(node, x, err))
    return err->code;
  if (x->rank != dy->rank || !starts || starts->n != x->rank || !steps || steps->n != x->rank)
    return node_error(node, err, ERR_INVALID, "its attributes do not fit the gradient");
  slice->out = *dy;
  for (int d = 0; d < x->rank; d++) {
    int64_t last = starts->ints[d] + (dy->dim[d] - 1) * steps->ints[d];
    if (starts->ints[d] < 0 || starts->ints[d] >= x->dim[d] || last < 0 || last >= x->dim[d])
      return node_error(node, err, ERR_INVALID, "the slice leaves its tensor along axis %d", d);
    slice->start[d] = starts->ints[d];
    slice->step[d] = steps->ints[d];
  }
  return ERR_OK;
}

static int slice_grad_infer(struct graph *graph, const struct node *node, struct err *err) {
  struct slice slice;
  struct shape x;
  if (infer_check_f32(graph, node, err) ||
      slice_grad_read(node, &node_input(graph, node, 0)->shape, &slice, &x, err))
    return err->code;
  return infer_f32(graph, node, 0, &x, err);
}

static int slice_grad_ref(const struct op_call *call, struct err *err) {
  float *dx = call->out[0].data;
  struct strided walk;
  struct slice slice;
  struct shape x;
  int64_t first;
  if (slice_grad_read(call->node, &call->in[0].shape, &slice, &x, err))
    return err->code;
  first = slice_walk(&slice, &x, true, &walk);
  memset(dx, 0, (size_t)shape_elems(&x) * sizeof *dx);
  strided_copy(&walk, sizeof *dx, call->in[0].data, dx + first);
  return ERR_OK;
}

/* dy -> dx; shape (of the data), starts and steps of each of its dimensions */
static const struct op_def slice_grad = {
    .name = "SliceGrad",
    .domain = "ai.weir",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .infer = slice_grad_infer,
    .ref = slice_grad_ref,
};
