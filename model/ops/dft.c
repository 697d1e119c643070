/* DFT (ONNX 17..20): the discrete Fourier transform along one axis. x f32[...,n,...,1 or 2] (real or complex
   numbers)
   -> f32[...,k,...,2], or 1 for the inverse of half a spectrum. It is linear: its gradient is the adjoint. */
#include "model/ops/shared/backward.h"
#include "model/ops/shared/fourier.h"
#include "model/ops/shared/infer.h"

/* How a node transforms: which axis, and how. */
struct dft {
  int axis;
  struct fourier fourier;
};

/* Along which axis, and the length of the transform; 0: what the input's is. */
struct dft_choice {
  int64_t axis, length;
};

static int dft_init(struct dft *dft, const struct node *node, const struct shape *x, struct dft_choice choice,
                    struct err *err) {
  bool is_inverse = node_attr_int(node, "inverse", 0) != 0, is_half = node_attr_int(node, "onesided", 0) != 0;
  struct fourier *f = &dft->fourier;
  int64_t length = choice.length, bins;
  int parts = x->rank ? (int)x->dim[x->rank - 1] : 0;
  if (x->rank < 2 || (parts != 1 && parts != 2))
    return node_error(node, err, ERR_INVALID, "the last dimension must be 1 (real) or 2 (complex)");
  if (infer_axis(node, choice.axis, x->rank, &dft->axis, err))
    return err->code;
  if (dft->axis == x->rank - 1)
    return node_error(node, err, ERR_INVALID, "the last axis holds the parts of numbers");
  if (length == 0)
    length = is_inverse && is_half ? 2 * (x->dim[dft->axis] - 1) : x->dim[dft->axis];
  if (length < 1)
    return node_error(node, err, ERR_INVALID, "a transform of length %lld is impossible", (long long)length);
  if (is_half && parts != (is_inverse ? 2 : 1))
    return node_error(node, err, ERR_INVALID, "onesided does not go with %s numbers",
                      parts == 1 ? "real" : "complex");
  *f = (struct fourier){.length = length, .direction = is_inverse ? 1 : -1, .scale = 1.0};
  if (is_inverse)
    f->scale = 1.0 / (double)length;
  bins = is_half ? length / 2 + 1 : length;
  f->in.count = x->dim[dft->axis];
  f->in.used = is_inverse ? bins : length;
  f->in.used = f->in.used < f->in.count ? f->in.used : f->in.count;
  f->in.parts = parts;
  f->in.is_half = is_half && is_inverse;
  f->out.count = f->out.used = is_inverse ? length : bins;
  f->out.parts = f->in.is_half ? 1 : 2;
  return ERR_OK;
}

/* The same of the forward node, whose length and axis may be inputs. */
static int dft_read(struct dft *dft, const struct graph *graph, const struct node *node, struct err *err) {
  bool has_axis_input = graph->opset >= 20;
  struct dft_choice choice = {.axis = has_axis_input ? -2 : node_attr_int(node, "axis", 1)};
  int n_axis = 1, n_length = 1;
  if (node_input(graph, node, 1) && infer_few_ints(graph, node, (struct ints_source){1, NULL},
                                                   (struct ints_room){&choice.length, 1, &n_length}, err))
    return err->code;
  if (has_axis_input && node_input(graph, node, 2) &&
      infer_few_ints(graph, node, (struct ints_source){2, NULL}, (struct ints_room){&choice.axis, 1, &n_axis},
                     err))
    return err->code;
  if (n_length != 1 || n_axis != 1 || (node_input(graph, node, 1) && choice.length < 1))
    return node_error(node, err, ERR_INVALID, "the length must be one number above 0, the axis one number");
  return dft_init(dft, node, &node_input(graph, node, 0)->shape, choice, err);
}

static int dft_infer(struct graph *graph, const struct node *node, struct err *err) {
  struct shape shape = node_input(graph, node, 0)->shape;
  struct dft dft;
  if (node_input(graph, node, 0)->dtype != DTYPE_F32)
    return node_error(node, err, ERR_UNSUPPORTED, "only f32 is supported here");
  if (dft_read(&dft, graph, node, err))
    return err->code;
  shape.dim[dft.axis] = dft.fourier.out.count;
  shape.dim[shape.rank - 1] = dft.fourier.out.parts;
  return infer_f32(graph, node, 0, &shape, err);
}

static int dft_backward(struct autodiff *ad, struct graph *graph, const struct node *node, struct err *err) {
  struct shape x = node_input(graph, node, 0)->shape;
  int dy = autodiff_grad(ad, node, 0);
  struct dft dft;
  struct attr attrs[5];
  if (dft_read(&dft, graph, node, err))
    return err->code;
  attrs[0] = attr_of_shape(&x);
  attrs[1] = attr_of_int("axis", dft.axis);
  attrs[2] = attr_of_int("length", dft.fourier.length);
  attrs[3] = attr_of_int("inverse", node_attr_int(node, "inverse", 0));
  attrs[4] = attr_of_int("onesided", node_attr_int(node, "onesided", 0));
  autodiff_add(ad, node, 0, backward_node(graph, "DFTGrad", VALUES(dy), (struct attr_list){attrs, 5}));
  return ERR_OK;
}

/* Transforms every line along `axis` of in[0] to out[0]. */
static int transform_lines(const struct op_call *call, int axis, const struct fourier *fourier,
                           struct err *err) {
  const struct shape *from = &call->in[0].shape, *to = &call->out[0].shape;
  int64_t outer = 1, inner = 1;
  struct fourier_plan plan;
  const float *x = call->in[0].data;
  float *y = call->out[0].data;
  if (fourier_plan_init(&plan, fourier, call->node, err))
    return err->code;
  for (int d = 0; d < from->rank - 1; d++)
    *(d < axis ? &outer : &inner) *= d == axis ? 1 : from->dim[d];
  for (int64_t o = 0; o < outer; o++)
    for (int64_t i = 0; i < inner; i++) {
      int64_t x_stride = inner * fourier->in.parts, y_stride = inner * fourier->out.parts;
      fourier_line(&plan, x + o * from->dim[axis] * x_stride + i * fourier->in.parts, x_stride,
                   y + o * to->dim[axis] * y_stride + i * fourier->out.parts, y_stride);
    }
  fourier_plan_fini(&plan);
  return ERR_OK;
}

static int dft_ref(const struct op_call *call, struct err *err) {
  struct dft dft;
  if (dft_read(&dft, call->graph, call->node, err))
    return err->code;
  return transform_lines(call, dft.axis, &dft.fourier, err);
}

static const struct op_case dft_cases[] = {
    {.inputs = "f32[a,n,b,p]", .attrs = "inverse=i", .draw = "a=1..2 n=1..12 b=1..2 p=1|2 i=0|1"},
    {.inputs = "f32[a,b,n,1] i64[]==l", .attrs = "onesided=1 axis=2", .draw = "a=1..2 b=1..2 n=3..9 l=2..12"},
    {.inputs = "f32[a,n,2] i64[]==l i64[]==x",
     .attrs = "onesided=1 inverse=1",
     .draw = "a=1..2 n=3..7 l=2..12 x=1|-2",
     .opset = 20},
    {.inputs = "f32[a,n,2]", .attrs = "onesided=1 inverse=1", .draw = "a=1..2 n=2..7", .opset = 20},
    {.inputs = "f32[n,a,p] i64[]==l i64[]==-3", .draw = "a=1..2 n=3..7 l=2..12 p=1|2", .opset = 20},
    {0},
};

static const struct op_def dft_grad;
static const struct op_def *const dft_gradients[] = {&dft_grad, NULL};

const struct op_def op_DFT = {
    .name = "DFT",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 3,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 17,
    .infer = dft_infer,
    .backward = dft_backward,
    .ref = dft_ref,
    .cases = dft_cases,
    .gradients = dft_gradients,
};

static int dft_grad_infer(struct graph *graph, const struct node *node, struct err *err) {
  struct shape shape;
  if (infer_shape_attr(node, &shape, err))
    return err->code;
  return infer_f32(graph, node, 0, &shape, err);
}

static int dft_grad_ref(const struct op_call *call, struct err *err) {
  struct fourier adjoint;
  struct dft dft;
  if (dft_init(
          &dft, call->node, &call->out[0].shape,
          (struct dft_choice){node_attr_int(call->node, "axis", 0), node_attr_int(call->node, "length", 0)},
          err))
    return err->code;
  adjoint = fourier_adjoint(&dft.fourier);
  return transform_lines(call, dft.axis, &adjoint, err);
}

static const struct op_def dft_grad = {
    .name = "DFTGrad",
    .domain = "ai.weir",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .infer = dft_grad_infer,
    .ref = dft_grad_ref,
};
