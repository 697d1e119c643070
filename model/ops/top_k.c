/* TopK: the k greatest (or least) elements along an axis, in order, and where they are (ONNX 1..11; k is an
   input since 10, and must be known). Of equals the one that comes first is taken first. */
#include "model/ops/shared/backward.h"
#include "model/ops/shared/compare.h"
#include "model/ops/shared/infer.h"
#include "model/ops/shared/strided.h"

static int top_k_infer(struct graph *graph, const struct node *node, struct err *err) {
  const struct value x = *node_input(graph, node, 0);
  int64_t k = node_attr_int(node, "k", -1);
  struct shape y = x.shape;
  int axis, n;
  if (infer_axis(node, node_attr_int(node, "axis", -1), y.rank, &axis, err))
    return err->code;
  if (node_input(graph, node, 1) &&
      infer_few_ints(graph, node, (struct ints_source){1, NULL}, (struct ints_room){&k, 1, &n}, err))
    return err->code;
  if (k < 0 || k > y.dim[axis])
    return node_error(node, err, ERR_INVALID, "k is %lld, and axis %d has %lld elements", (long long)k, axis,
                      (long long)y.dim[axis]);
  y.dim[axis] = k;
  if (infer_output(graph, node, 0, &(struct tensor){.dtype = x.dtype, .shape = y}, err))
    return err->code;
  return infer_output(graph, node, 1, &(struct tensor){.dtype = DTYPE_I64, .shape = y}, err);
}

static int top_k_backward(struct autodiff *ad, struct graph *graph, const struct node *node,
                          struct err *err) {
  struct shape x = node_input(graph, node, 0)->shape;
  struct attr attrs[] = {attr_of_shape(&x), attr_of_int("axis", node_attr_int(node, "axis", -1))};
  int inputs[] = {autodiff_grad(ad, node, 0), node->outputs[1]};
  (void)err;
  autodiff_add(ad, node, 0,
               backward_node(graph, "GatherElementsGrad", (struct value_list){inputs, 2},
                             (struct attr_list){attrs, 2}));
  return ERR_OK;
}

/* One row of the input and its chosen indices: a heap with the one to drop first on top, until it is sorted.
 */
struct top {
  const struct tensor *x;
  int64_t base, stride; /* of the row's elements */
  int sign;             /* 1: the greatest are wanted, -1: the least */
  int64_t *chosen, k;   /* chosen[i * stride] */
};

/* True if element a of the row is to come before element b. */
static bool comes_before(const struct top *top, int64_t a, int64_t b) {
  int order = top->sign * compare_elements(top->x, top->base + a * top->stride, top->base + b * top->stride);
  return order > 0 || (order == 0 && a < b);
}

/* Lets `index` sink from place i of a heap of n to where it belongs. */
static void heap_sink(struct top *top, int64_t i, int64_t n, int64_t index) {
  for (int64_t child = 2 * i + 1; child < n; child = 2 * i + 1) {
    int64_t *chosen = top->chosen;
    if (child + 1 < n && comes_before(top, chosen[child * top->stride], chosen[(child + 1) * top->stride]))
      child++;
    if (!comes_before(top, index, chosen[child * top->stride]))
      break;
    chosen[i * top->stride] = chosen[child * top->stride];
    i = child;
  }
  top->chosen[i * top->stride] = index;
}

static void top_choose(struct top *top, int64_t n) {
  for (int64_t i = 0; i < top->k; i++)
    top->chosen[i * top->stride] = i;
  for (int64_t i = top->k / 2 - 1; i >= 0; i--)
    heap_sink(top, i, top->k, i);
  for (int64_t i = top->k; i < n && top->k > 0; i++)
    if (comes_before(top, i, top->chosen[0]))
      heap_sink(top, 0, top->k, i);
  for (int64_t end = top->k - 1; end > 0; end--) {
    int64_t last = top->chosen[end * top->stride];
    top->chosen[end * top->stride] = top->chosen[0];
    heap_sink(top, 0, end, last);
  }
}

static int top_k_ref(const struct op_call *call, struct err *err) {
  const struct tensor *x = &call->in[0];
  struct top top = {.x = x, .sign = node_attr_int(call->node, "largest", 1) ? 1 : -1};
  int64_t *indices = call->out[1].data, rows, n;
  int axis;
  if (infer_axis(call->node, node_attr_int(call->node, "axis", -1), x->shape.rank, &axis, err))
    return err->code;
  n = x->shape.dim[axis];
  top.k = call->out[1].shape.dim[axis];
  top.stride = shape_stride(&x->shape, axis);
  rows = top.k > 0 ? shape_elems(&call->out[1].shape) / top.k : 0;
  for (int64_t r = 0; r < rows; r++) {
    int64_t outer = r / top.stride, inner = r % top.stride, to = outer * top.k * top.stride + inner;
    struct strided walk = {0};
    top.base = outer * n * top.stride + inner;
    top.chosen = indices + to;
    top_choose(&top, n);
    strided_dim(&walk, 1, 0, 0);
    for (int64_t i = 0; i < top.k && call->out[0].data; i++) {
      size_t element = dtype_size(x->dtype), at = (size_t)(to + i * top.stride) * element;
      int64_t from = top.base + top.chosen[i * top.stride] * top.stride;
      strided_copy(&walk, element, (const char *)x->data + (size_t)from * element,
                   (char *)call->out[0].data + at);
    }
  }
  return ERR_OK;
}

static const struct op_case top_k_cases[] = {
    {.inputs = "f32{apart}[3,5] i64[1]==2", .outputs = 2},
    {.inputs = "f32[6]=1,2,2,1,2,1 i64[1]==4", .outputs = 2, .is_not_smooth = true},
    {.inputs = "f32[6]=1,2,2,1,2,1 i64[1]==6", .attrs = "largest=0", .outputs = 2, .is_not_smooth = true},
    {.inputs = "i64{5}[2,4] i64[1]==3", .attrs = "axis=1 sorted=0", .outputs = 2},
    {.inputs = "f32[2,9001] i64[1]==5", .outputs = 2, .is_not_smooth = true},
    {.inputs = "f32[2,301,2] i64[1]==70", .attrs = "axis=1", .outputs = 2, .is_not_smooth = true},
    {.inputs = "f32[2,70]=0,-0,nan,1,-1,0,-inf i64[1]==66", .outputs = 2, .is_not_smooth = true},
    {.inputs = "f32[2,70]=0,-0,nan,1,-1,0,-inf i64[1]==66",
     .attrs = "largest=0",
     .outputs = 2,
     .is_not_smooth = true},
    {.inputs = "i32{-9..9}[3,40] i64[1]==40", .attrs = "largest=0", .outputs = 2},
    {.inputs = "i64{-9000000000..9000000000}[2,300] i64[1]==9", .outputs = 2},
    {.inputs = "u8{255}[300,2] i64[1]==7", .attrs = "axis=0", .outputs = 2},
    {.inputs = "f32{apart}[4,2]", .attrs = "k=3 axis=0", .outputs = 2, .opset = 9},
    {.inputs = "f32{apart}[n,k+m,c] i64[1]==k",
     .attrs = "axis=1 largest=l",
     .outputs = 2,
     .draw = "n=1..3 k=1..5 m=0..6 c=1..3 l=0..1"},
    {0},
};

const struct op_def op_TopK = {
    .name = "TopK",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 2,
    .min_outputs = 2,
    .max_outputs = 2,
    .min_opset = 1,
    .infer = top_k_infer,
    .backward = top_k_backward,
    .ref = top_k_ref,
    .cases = top_k_cases,
};
