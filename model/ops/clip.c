/* Clip: elementwise min(max(x, low), high) (ONNX 6..13). The bounds are attributes before opset 11, since
   then optional scalar inputs. */
#include "model/ops/shared/elementwise.h"

/* The gradient op takes them behind the same number of inputs more. */
enum { CLIP_LOW = 1, GRAD_LOW = 2 };

static int check_bounds(const struct graph *graph, const struct node *node, int low, struct err *err) {
  enum dtype dtype = node_input(graph, node, 0)->dtype;
  for (int i = low; i < low + 2; i++) {
    const struct value *bound = node_input(graph, node, i);
    if (bound && (bound->dtype != dtype || shape_elems(&bound->shape) != 1))
      return node_error(node, err, ERR_INVALID, "input %d ('%s') must be one %s", i, bound->name,
                        dtype_name(dtype));
  }
  return ERR_OK;
}

static int clip_infer(struct graph *graph, const struct node *node, struct err *err) {
  if (check_bounds(graph, node, CLIP_LOW, err))
    return err->code;
  return infer_same_number(graph, node, err);
}

/* Declares the bounds of `type` for a loop: the inputs from `first`, else the given ones. */
#define BOUNDS(type, first, least, greatest)                                                                 \
  const type *lower = call->in[first].data;                                                                  \
  const type *upper = call->in[first + 1].data;                                                              \
  type low = lower ? *lower : (least);                                                                       \
  type high = upper ? *upper : (greatest)
#define FLOAT_BOUNDS(first)                                                                                  \
  BOUNDS(float, first, node_attr_float(call->node, "min", -INFINITY),                                        \
         node_attr_float(call->node, "max", INFINITY))

static inline float clip_value(float x, float low, float high) {
  x = x < low ? low : x;
  return x > high ? high : x;
}

static inline int64_t clipped_integer(int64_t x, int64_t low, int64_t high) {
  x = x < low ? low : x;
  return x > high ? high : x;
}

UNARY_REF_WITH(clip_ref_f32, FLOAT_BOUNDS(CLIP_LOW), clip_value(x, low, high))
UNARY_LOOP(clip_ref_integer_i32, int32_t, int32_t, BOUNDS(int32_t, CLIP_LOW, INT32_MIN, INT32_MAX),
           (int32_t)clipped_integer(x, low, high))
UNARY_LOOP(clip_ref_integer_i64, int64_t, int64_t, BOUNDS(int64_t, CLIP_LOW, INT64_MIN, INT64_MAX),
           clipped_integer(x, low, high))
UNARY_LOOP(clip_ref_integer_u8, uint8_t, uint8_t, BOUNDS(uint8_t, CLIP_LOW, 0, UINT8_MAX),
           (uint8_t)clipped_integer(x, low, high))
INTEGER_DISPATCH(clip_ref_integer)
TYPE_DISPATCH(clip_ref)

/* Zero at the bounds, too, as for PyTorch's clamp and relu6: so the output tells all. */
UNARY_GRAD_REF(clip_grad_ref, FLOAT_BOUNDS(GRAD_LOW), v > low && v < high ? dy : 0.0f)

/* A bound gets the gradients of the elements that are beyond it: `op` is Less or Greater. */
static void bound_backward(struct autodiff *ad, struct graph *graph, const struct node *node, int input,
                           const char *op) {
  struct shape scalar = {0}, shape;
  int is_beyond, grads;
  if (!autodiff_wants(ad, node, input))
    return;
  shape = node_input(graph, node, input)->shape;
  is_beyond = backward_binary(graph, op, node->inputs[0], node->inputs[input]);
  grads = backward_node(graph, "Where",
                        VALUES(is_beyond, autodiff_grad(ad, node, 0), graph_add_constant_f32(graph, 0.0f)),
                        ATTRS_NONE);
  grads = backward_sum_to(graph, grads, &scalar);
  autodiff_add(ad, node, input, backward_reshape(graph, grads, &shape));
}

static int clip_backward(struct autodiff *ad, struct graph *graph, const struct node *node, struct err *err) {
  int inputs[4] = {autodiff_grad(ad, node, 0), node->outputs[0], -1, -1};
  (void)err;
  for (int i = CLIP_LOW; i < node->n_inputs; i++)
    inputs[GRAD_LOW - CLIP_LOW + i] = node->inputs[i];
  if (autodiff_wants(ad, node, 0))
    autodiff_add(ad, node, 0,
                 backward_node(graph, "ClipGrad", (struct value_list){inputs, 4}, node_attrs(node)));
  bound_backward(ad, graph, node, CLIP_LOW, "Less");
  bound_backward(ad, graph, node, CLIP_LOW + 1, "Greater");
  return ERR_OK;
}

static const struct op_case clip_cases[] = {
    {.inputs = "f32[2,5]=-0.9,0.8,-0.1,0.2,0.6,-0.4,0.3,-2,-3,1.5 f32[]==-0.5 f32[]==0.5"},
    {.inputs = "f32[2,5]=-0.9,0.8,-0.1,0.2,0.6,-0.4,0.3,-2,-3,1.5 f32[]=-0.5 f32[1]=0.5"},
    {.inputs = "f32[2,5]=-0.9,0.8,-0.1,0.2,0.6,-0.4,0.3,-2,-3,1.5 - f32[]==0.5"},
    {.inputs = "f32[2,5]=-0.9,0.8,-0.1,0.2,0.6,-0.4,0.3,-2,-3,1.5 f32[]=0"},
    {.inputs = "f32[2,5]=-0.9,0.8,-0.1,0.2,0.6,-0.4,0.3,-2,-3,1.5"},
    {.inputs = "f32{apart}[s] b", .draw = "s=|1|7|2,5|3,1,4 b=f32[]==-0.3|-|f32[]==0"},
    {.inputs = "f32{apart}[s] - f32[]==h", .draw = "s=1|7|2,5|3,1,4 h=0|1"},
    {.inputs = "f32[4]=0,6,7,3 f32[]==0 f32[]==6", .is_not_smooth = true},
    {.inputs = "f32[2,5]=-0.9,0.8,-0.1,0.2,0.6,-0.4,0.3,-2,-3,1.5", .attrs = "min=-0.5f", .opset = 10},
    {.inputs = "f32[2,5]=-0.9,0.8,-0.1,0.2,0.6,-0.4,0.3,-2,-3,1.5", .attrs = "max=0.5f", .opset = 10},
    {.inputs = "i32[5]=-9,0,3,9,4 i32[]=-4 i32[]=5"},
    {.inputs = "i64[5]=-9,0,3,9,4 - i64[]=5"},
    {.inputs = "u8[5]=200,0,3,9,4 u8[]=2"},
    {0},
};

static const struct op_def clip_grad;
static const struct op_def *const clip_gradients[] = {&clip_grad, NULL};

const struct op_def op_Clip = {
    .name = "Clip",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 3,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 6,
    .flags = OP_INPLACE | OP_POINTWISE,
    .infer = clip_infer,
    .backward = clip_backward,
    .ref = clip_ref,
    .cases = clip_cases,
    .gradients = clip_gradients,
};

static int clip_grad_infer(struct graph *graph, const struct node *node, struct err *err) {
  if (check_bounds(graph, node, GRAD_LOW, err))
    return err->code;
  return infer_same_f32(graph, node, err);
}

/* dy, y, low, high -> dx */
static const struct op_def clip_grad = {
    .name = "ClipGrad",
    .domain = "ai.weir",
    .min_inputs = 2,
    .max_inputs = 4,
    .min_outputs = 1,
    .max_outputs = 1,
    .flags = OP_INPLACE | OP_POINTWISE,
    .infer = clip_grad_infer,
    .ref = clip_grad_ref,
};
