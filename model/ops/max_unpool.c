/* MaxUnpool: elements put back where MaxPool's Indices say that they were (ONNX 9..11), and its gradient. The
   indices count the elements of a tensor whose spatial dimensions follow from the attributes; output_shape
   may have more. */
#include "model/ops/max_unpool.h"

#include <string.h>

#include "model/ops/shared/backward.h"
#include "model/ops/shared/infer.h"

/* An attribute of n integers, by default `least` each. */
struct sizes {
  const char *name;
  int n;
  int64_t least;
};

static int read_sizes(const struct node *node, const struct sizes *sizes, int64_t *out, struct err *err) {
  const struct attr *attr = node_attr(node, sizes->name);
  if (attr && (attr->type != ATTR_INTS || attr->n != sizes->n))
    return node_error(node, err, ERR_INVALID, "attribute '%s' must be a list of %d integers", sizes->name,
                      sizes->n);
  for (int i = 0; i < sizes->n; i++) {
    out[i] = attr ? attr->ints[i] : sizes->least;
    if (out[i] < sizes->least || out[i] > INT32_MAX)
      return node_error(node, err, ERR_INVALID, "attribute '%s' holds %lld", sizes->name, (long long)out[i]);
  }
  return ERR_OK;
}

int max_unpool_indexed(const struct node *node, const struct shape *x, struct shape *indexed,
                       struct err *err) {
  int64_t kernel[RANK_MAX], strides[RANK_MAX], pads[2 * RANK_MAX];
  int n = x->rank - 2;
  char text[128];
  if (n < 1)
    return node_error(node, err, ERR_INVALID, "input of shape %s has no spatial dimensions",
                      shape_text(x, text, sizeof text));
  if (read_sizes(node, &(struct sizes){"kernel_shape", n, 1}, kernel, err) ||
      read_sizes(node, &(struct sizes){"strides", n, 1}, strides, err) ||
      read_sizes(node, &(struct sizes){"pads", 2 * n, 0}, pads, err))
    return err->code;
  *indexed = *x;
  for (int d = 0; d < n; d++) {
    int64_t *size = &indexed->dim[2 + d];
    if (__builtin_mul_overflow(*size - 1, strides[d], size) ||
        (*size += kernel[d] - pads[d] - pads[n + d]) < 1 || *size > INT32_MAX)
      return node_error(node, err, ERR_INVALID,
                        "dimension %d of its result would have no elements, or too many", 2 + d);
  }
  return ERR_OK;
}

/* output_shape, where it is given. */
static int out_shape(const struct graph *graph, const struct node *node, const struct shape *indexed,
                     struct shape *out, struct err *err) {
  struct int_list dims;
  char given[128], least[128];
  *out = *indexed;
  if (infer_ints(graph, node, (struct ints_source){2, NULL}, &dims, err))
    return err->code;
  if (!node_input(graph, node, 2))
    return ERR_OK;
  if (dims.n != indexed->rank)
    return node_error(node, err, ERR_INVALID, "output_shape has %d dimensions where the input has %d", dims.n,
                      indexed->rank);
  for (int d = 0; d < dims.n; d++)
    out->dim[d] = dims.at[d];
  for (int d = 0; d < dims.n; d++)
    if (d < 2 ? dims.at[d] != indexed->dim[d] : dims.at[d] < indexed->dim[d])
      return node_error(node, err, ERR_INVALID, "output_shape %s does not hold %s",
                        shape_text(out, given, sizeof given), shape_text(indexed, least, sizeof least));
  return ERR_OK;
}

static int max_unpool_infer(struct graph *graph, const struct node *node, struct err *err) {
  const struct value *x = node_input(graph, node, 0), *indices = node_input(graph, node, 1);
  struct shape indexed, out;
  if (x->dtype != DTYPE_F32 || indices->dtype != DTYPE_I64 || !shape_is_same(&x->shape, &indices->shape))
    return node_error(node, err, ERR_INVALID, "it takes f32 elements and as many i64 indices");
  if (max_unpool_indexed(node, &x->shape, &indexed, err) || out_shape(graph, node, &indexed, &out, err))
    return err->code;
  return infer_f32(graph, node, 0, &out, err);
}

static int max_unpool_backward(struct autodiff *ad, struct graph *graph, const struct node *node,
                               struct err *err) {
  int inputs[] = {autodiff_grad(ad, node, 0), node->inputs[1]};
  (void)err;
  autodiff_add(ad, node, 0,
               backward_node(graph, "MaxUnpoolGrad", (struct value_list){inputs, 2}, node_attrs(node)));
  return ERR_OK;
}

/* Where index i among the elements of `indexed` lies in `out`, which is at least as large everywhere. */
static int64_t place_of(int64_t i, const struct shape *indexed, const struct shape *out) {
  int64_t place = 0, stride = 1;
  for (int d = out->rank - 1; d >= 0; d--) {
    place += i % indexed->dim[d] * stride;
    stride *= out->dim[d];
    i /= indexed->dim[d];
  }
  return place;
}

/* One pooled tensor's elements and where each belongs among the unpooled ones. Errors: INVALID for an index
   that is none, with its place. */
struct places {
  struct shape indexed;
  const struct shape *out;
  const int64_t *indices;
  int64_t n, end;
};

static int places_init(struct places *places, const struct op_call *call, const struct tensor *pooled_indices,
                       const struct shape *out, struct err *err) {
  *places = (struct places){.out = out, .indices = pooled_indices->data};
  if (max_unpool_indexed(call->node, &pooled_indices->shape, &places->indexed, err))
    return err->code;
  places->n = shape_elems(&pooled_indices->shape);
  places->end = shape_elems(&places->indexed);
  for (int64_t i = 0; i < places->n; i++)
    if (places->indices[i] < 0 || places->indices[i] >= places->end)
      return node_error(call->node, err, ERR_INVALID, "index %lld of element %lld is not in [0, %lld)",
                        (long long)places->indices[i], (long long)i, (long long)places->end);
  return ERR_OK;
}

static int max_unpool_ref(const struct op_call *call, struct err *err) {
  const float *x = call->in[0].data;
  float *y = call->out[0].data;
  struct places places;
  if (places_init(&places, call, &call->in[1], &call->out[0].shape, err))
    return err->code;
  memset(y, 0, (size_t)shape_elems(&call->out[0].shape) * sizeof *y);
  for (int64_t i = 0; i < places.n; i++)
    y[place_of(places.indices[i], &places.indexed, places.out)] = x[i];
  return ERR_OK;
}

static const struct op_case max_unpool_cases[] = {
    {.inputs = "f32[1,1,2,2] i64[1,1,2,2]=5,7,13,15", .attrs = "kernel_shape=2,2 strides=2,2"},
    {.inputs = "f32[1,1,2,2] i64[1,1,2,2]=5,7,13,15 i64[4]==1,1,5,5",
     .attrs = "kernel_shape=2,2 strides=2,2"},
    {.inputs = "f32[1,2,3] i64[1,2,3]=0,2,4,5,8,6", .attrs = "kernel_shape=3, strides=2, pads=1,1"},
    {.inputs = "f32[1,2,3] i64[1,2,3]=0,s,4,6,8,10 i64[3]==1,2,n",
     .attrs = "kernel_shape=2, strides=2,",
     .draw = "n=6..9 s=1..3"},
    {0},
};

static const struct op_def max_unpool_grad;
static const struct op_def *const max_unpool_gradients[] = {&max_unpool_grad, NULL};

const struct op_def op_MaxUnpool = {
    .name = "MaxUnpool",
    .domain = "",
    .min_inputs = 2,
    .max_inputs = 3,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 9,
    .infer = max_unpool_infer,
    .backward = max_unpool_backward,
    .ref = max_unpool_ref,
    .cases = max_unpool_cases,
    .gradients = max_unpool_gradients,
};

static int max_unpool_grad_infer(struct graph *graph, const struct node *node, struct err *err) {
  struct shape x = node_input(graph, node, 1)->shape;
  return infer_f32(graph, node, 0, &x, err);
}

/* Elements of one index, as overlapping windows have them, are the same element of MaxPool's input: as in
   PyTorch, each has the whole gradient. */
static int max_unpool_grad_ref(const struct op_call *call, struct err *err) {
  const float *dy = call->in[0].data;
  float *dx = call->out[0].data;
  struct places places;
  if (places_init(&places, call, &call->in[1], &call->in[0].shape, err))
    return err->code;
  for (int64_t i = 0; i < places.n; i++)
    dx[i] = dy[place_of(places.indices[i], &places.indexed, places.out)];
  return ERR_OK;
}

/* dy, indices -> dx; the attributes of MaxUnpool */
static const struct op_def max_unpool_grad = {
    .name = "MaxUnpoolGrad",
    .domain = "ai.weir",
    .min_inputs = 2,
    .max_inputs = 2,
    .min_outputs = 1,
    .max_outputs = 1,
    .infer = max_unpool_grad_infer,
    .ref = max_unpool_grad_ref,
};
