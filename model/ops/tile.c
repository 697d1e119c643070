/* Tile: a tensor repeated along each dimension (ONNX 6..13; the counts must be known), and its gradient, the
   sum over the repeats. */
#include <string.h>

#include "model/ops/shared/backward.h"
#include "model/ops/shared/infer.h"
#include "model/ops/shared/strided.h"

static int tile_infer(struct graph *graph, const struct node *node, struct err *err) {
  const struct value x = *node_input(graph, node, 0);
  int64_t repeats[RANK_MAX] = {0};
  struct shape y = x.shape;
  int n;
  if (infer_few_ints(graph, node, (struct ints_source){1, NULL}, (struct ints_room){repeats, RANK_MAX, &n},
                     err))
    return err->code;
  if (n != y.rank)
    return node_error(node, err, ERR_INVALID, "has %d repeats for %d dimensions", n, y.rank);
  for (int d = 0; d < n; d++)
    if (repeats[d] < 0 || __builtin_mul_overflow(y.dim[d], repeats[d], &y.dim[d]))
      return node_error(node, err, ERR_INVALID, "dimension %d of %lld cannot be repeated %lld times", d,
                        (long long)x.shape.dim[d], (long long)repeats[d]);
  return infer_output(graph, node, 0, &(struct tensor){.dtype = x.dtype, .shape = y}, err);
}

static int tile_backward(struct autodiff *ad, struct graph *graph, const struct node *node, struct err *err) {
  struct shape x = node_input(graph, node, 0)->shape;
  int dy = autodiff_grad(ad, node, 0);
  struct attr attr = attr_of_shape(&x);
  (void)err;
  autodiff_add(ad, node, 0, backward_node(graph, "TileGrad", VALUES(dy), ATTR_LIST(attr)));
  return ERR_OK;
}

/* Over the elements of `large` in order, beside those of `small` that they repeat. */
static struct strided tile_walk(const struct shape *small, const struct shape *large, bool is_sum) {
  struct strided walk = {0};
  for (int d = 0; d < small->rank; d++) {
    int64_t within = shape_stride(small, d), dense = shape_stride(large, d), dim = small->dim[d];
    int64_t repeats = dim > 0 ? large->dim[d] / dim : 0;
    strided_dim(&walk, repeats, is_sum ? dense * dim : 0, is_sum ? 0 : dense * dim);
    strided_dim(&walk, dim, is_sum ? dense : within, is_sum ? within : dense);
  }
  return walk;
}

static int tile_ref(const struct op_call *call, struct err *err) {
  const struct tensor *x = &call->in[0];
  struct strided walk = tile_walk(&x->shape, &call->out[0].shape, false);
  (void)err;
  strided_copy(&walk, dtype_size(x->dtype), x->data, call->out[0].data);
  return ERR_OK;
}

static const struct op_case tile_cases[] = {
    {.inputs = "f32[2,3] i64[2]==2,1"},
    {.inputs = "f32[2,3] i64[2]==1,3"},
    {.inputs = "f32[] i64[0]=="},
    {.inputs = "i64{9}[1,2] i64[2]==3,2"},
    {.inputs = "f32[n,m,c] i64[3]==a,b,e", .draw = "n=1..3 m=1..3 c=1..3 a=1..3 b=1..3 e=1..3"},
    {0},
};

static const struct op_def tile_grad;
static const struct op_def *const tile_gradients[] = {&tile_grad, NULL};

const struct op_def op_Tile = {
    .name = "Tile",
    .domain = "",
    .min_inputs = 2,
    .max_inputs = 2,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 6,
    .infer = tile_infer,
    .backward = tile_backward,
    .ref = tile_ref,
    .cases = tile_cases,
    .gradients = tile_gradients,
};

static int tile_grad_infer(struct graph *graph, const struct node *node, struct err *err) {
  struct shape dy = node_input(graph, node, 0)->shape, x;
  char text[128];
  bool fits;
  if (infer_check_f32(graph, node, err) || infer_shape_attr(node, &x, err))
    return err->code;
  fits = dy.rank == x.rank;
  for (int d = 0; d < x.rank && fits; d++)
    fits = x.dim[d] > 0 && dy.dim[d] % x.dim[d] == 0;
  if (!fits)
    return node_error(node, err, ERR_INVALID, "a gradient of shape %s does not belong to this tensor",
                      shape_text(&dy, text, sizeof text));
  return infer_f32(graph, node, 0, &x, err);
}

static int tile_grad_ref(const struct op_call *call, struct err *err) {
  const struct shape *x = &call->out[0].shape;
  struct strided walk = tile_walk(x, &call->in[0].shape, true);
  (void)err;
  memset(call->out[0].data, 0, (size_t)shape_elems(x) * sizeof(float));
  strided_add(&walk, call->in[0].data, call->out[0].data);
  return ERR_OK;
}

/* dy -> dx; shape (of the tensor that was repeated) */
static const struct op_def tile_grad = {
    .name = "TileGrad",
    .domain = "ai.weir",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .infer = tile_grad_infer,
    .ref = tile_grad_ref,
};
