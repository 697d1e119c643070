/* Col2Im (ONNX 18), PyTorch's Fold: columns, each a window's elements, are added where the windows lie on the
   image; and its gradient, which takes the windows' elements back. Columns are [n, c * taps, windows], the
   image is [n, c, spatial...] of 1 to 3 spatial dimensions. */
#include "model/ops/col2im.h"

#include <string.h>

#include "model/ops/shared/backward.h"
#include "model/ops/shared/infer.h"

int col2im_windows(const struct graph *graph, const struct node *node, struct shape *image,
                   struct windows *windows, struct err *err) {
  const struct shape *columns = &node_input(graph, node, 0)->shape;
  int64_t kernel[WINDOWS_DIMS] = {0}, sizes[WINDOWS_DIMS] = {0};
  int n_kernel, n_sizes;
  if (infer_check_rank(graph, node, 0, 3, err) ||
      infer_few_ints(graph, node, (struct ints_source){1, NULL},
                     (struct ints_room){sizes, WINDOWS_DIMS, &n_sizes}, err) ||
      infer_few_ints(graph, node, (struct ints_source){2, NULL},
                     (struct ints_room){kernel, WINDOWS_DIMS, &n_kernel}, err))
    return err->code;
  if (n_sizes < 1 || n_sizes != n_kernel)
    return node_error(node, err, ERR_INVALID, "image_shape has %d sizes and block_shape has %d", n_sizes,
                      n_kernel);
  *image = (struct shape){.rank = 2 + n_sizes, .dim = {columns->dim[0], 1}};
  for (int d = 0; d < n_sizes; d++) {
    if (sizes[d] < 1 || sizes[d] > INT32_MAX)
      return node_error(node, err, ERR_INVALID, "image_shape holds %lld", (long long)sizes[d]);
    if (kernel[d] < 1 || kernel[d] > INT32_MAX)
      return node_error(node, err, ERR_INVALID, "block_shape holds %lld", (long long)kernel[d]);
    image->dim[2 + d] = sizes[d];
  }
  if (windows_init(windows, node, image, kernel, err))
    return err->code;
  for (int d = 0; d < WINDOWS_DIMS; d++)
    if (windows->pad_begin[d] < 0 || windows->pad_end[d] < 0)
      return node_error(node, err, ERR_INVALID, "attribute 'pads' holds a negative number");
  image->dim[1] = columns->dim[1] / windows->taps;
  return ERR_OK;
}

static int col2im_infer(struct graph *graph, const struct node *node, struct err *err) {
  const struct shape columns = node_input(graph, node, 0)->shape;
  struct windows windows;
  struct shape image;
  char text[128];
  if (infer_check_dtype(graph, node, 0, 1 << DTYPE_F32, err) ||
      col2im_windows(graph, node, &image, &windows, err))
    return err->code;
  if (columns.dim[1] % windows.taps != 0 || columns.dim[2] != windows.out_elems)
    return node_error(
        node, err, ERR_INVALID, "columns of shape %s are not those of %lld windows of %lld elements",
        shape_text(&columns, text, sizeof text), (long long)windows.out_elems, (long long)windows.taps);
  return infer_f32(graph, node, 0, &image, err);
}

static int col2im_backward(struct autodiff *ad, struct graph *graph, const struct node *node,
                           struct err *err) {
  int dy = autodiff_grad(ad, node, 0), n;
  struct attr attrs[WINDOWS_ATTRS];
  struct windows_lists lists;
  struct windows windows;
  struct shape image;
  if (col2im_windows(graph, node, &image, &windows, err))
    return err->code;
  n = windows_attrs(&windows, &lists, attrs);
  autodiff_add(ad, node, 0, backward_node(graph, "Col2ImGrad", VALUES(dy), (struct attr_list){attrs, n}));
  return ERR_OK;
}

static int col2im_ref(const struct op_call *call, struct err *err) {
  const float *columns = call->in[0].data;
  float *image = call->out[0].data;
  struct windows windows;
  struct windows_tap tap;
  struct shape shape;
  if (col2im_windows(call->graph, call->node, &shape, &windows, err))
    return err->code;
  memset(image, 0, (size_t)shape_elems(&shape) * sizeof *image);
  for (int64_t p = 0; p < shape.dim[0] * shape.dim[1]; p++) {
    for (int64_t o = 0; o < windows.out_elems; o++) {
      windows_at(&tap, &windows, o);
      while (windows_next(&tap))
        image[tap.in] += columns[tap.index * windows.out_elems + o];
    }
    columns += windows.taps * windows.out_elems;
    image += windows.in_elems;
  }
  return ERR_OK;
}

static const struct op_case col2im_cases[] = {
    {.inputs = "f32[1,5,5] i64[2]==5,5 i64[2]==1,5", .opset = 18},
    {.inputs = "f32[1,4,5] i64[2]==6,6 i64[2]==2,2", .attrs = "dilations=1,5 strides=1,2", .opset = 18},
    {.inputs = "f32[2,12,8] i64[3]==3,4,2 i64[3]==2,3,1",
     .attrs = "strides=2,1,1 pads=1,0,0,1,0,0",
     .opset = 18},
    {.inputs = "f32[n,c*k,h] i64[1]==h*s+k-s i64[1]==k",
     .attrs = "strides=s,",
     .draw = "n=1..2 c=1..3 k=1..4 h=1..6 s=1..3",
     .opset = 18},
    {.inputs = "f32[n,c*k*k,h*w] i64[2]==h+k-1-p,w+k-1-p-p i64[2]==k,k",
     .attrs = "pads=p,p,0,p",
     .draw = "n=1..2 c=1..2 h=2..4 w=2..4 k=2..3 p=0..1",
     .opset = 18},
    {0},
};

static const struct op_def col2im_grad;
static const struct op_def *const col2im_gradients[] = {&col2im_grad, NULL};

const struct op_def op_Col2Im = {
    .name = "Col2Im",
    .domain = "",
    .min_inputs = 3,
    .max_inputs = 3,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 18,
    .infer = col2im_infer,
    .backward = col2im_backward,
    .ref = col2im_ref,
    .cases = col2im_cases,
    .gradients = col2im_gradients,
};

static int col2im_grad_infer(struct graph *graph, const struct node *node, struct err *err) {
  struct shape columns = {.rank = 3}, image = node_input(graph, node, 0)->shape;
  struct windows windows;
  if (infer_check_f32(graph, node, err) || windows_init(&windows, node, &image, NULL, err))
    return err->code;
  columns.dim[0] = image.dim[0];
  columns.dim[2] = windows.out_elems;
  if (__builtin_mul_overflow(image.dim[1], windows.taps, &columns.dim[1]))
    return node_error(node, err, ERR_INVALID, "its columns are too many to count");
  return infer_f32(graph, node, 0, &columns, err);
}

static int col2im_grad_ref(const struct op_call *call, struct err *err) {
  const struct shape *shape = &call->in[0].shape;
  const float *image = call->in[0].data;
  float *columns = call->out[0].data;
  struct windows windows;
  struct windows_tap tap;
  if (windows_init(&windows, call->node, shape, NULL, err))
    return err->code;
  memset(columns, 0, (size_t)shape_elems(&call->out[0].shape) * sizeof *columns);
  for (int64_t p = 0; p < shape->dim[0] * shape->dim[1]; p++) {
    for (int64_t o = 0; o < windows.out_elems; o++) {
      windows_at(&tap, &windows, o);
      while (windows_next(&tap))
        columns[tap.index * windows.out_elems + o] = image[tap.in];
    }
    columns += windows.taps * windows.out_elems;
    image += windows.in_elems;
  }
  return ERR_OK;
}

/* dimage -> dcolumns; kernel_shape, strides, dilations, pads */
static const struct op_def col2im_grad = {
    .name = "Col2ImGrad",
    .domain = "ai.weir",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .infer = col2im_grad_infer,
    .ref = col2im_grad_ref,
};
