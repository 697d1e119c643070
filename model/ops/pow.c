/* Pow: elementwise power with broadcasting; the exponent may be of another type (ONNX 7..15). */
#include "model/ops/shared/convert.h"
#include "model/ops/shared/elementwise.h"

static int pow_infer(struct graph *graph, const struct node *node, struct err *err) {
  struct shape shape;
  if (infer_check_dtype(graph, node, 0, DTYPES_NUMBERS, err) ||
      infer_check_dtype(graph, node, 1, DTYPES_NUMBERS, err) ||
      broadcast_infer_shape(graph, node, &shape, err))
    return err->code;
  return infer_output(graph, node, 0,
                      &(struct tensor){.dtype = node_input(graph, node, 0)->dtype, .shape = shape}, err);
}

static double real_at(const struct tensor *tensor, int64_t i) {
  switch (tensor->dtype) {
  case DTYPE_I32:
    return ((const int32_t *)tensor->data)[i];
  case DTYPE_I64:
    return (double)((const int64_t *)tensor->data)[i];
  case DTYPE_U8:
    return ((const uint8_t *)tensor->data)[i];
  default:
    return ((const float *)tensor->data)[i];
  }
}

static int64_t integer_at(const struct tensor *tensor, int64_t i) {
  return tensor->dtype == DTYPE_I64 ? ((const int64_t *)tensor->data)[i] : (int64_t)real_at(tensor, i);
}

/* Wraps where it does not fit. Reciprocals are cut to 0; that of 0 is 0, too. */
static int64_t integer_power(int64_t base, int64_t exponent) {
  uint64_t square = (uint64_t)base, power = 1;
  if (exponent < 0)
    return base == 1 || base == -1 ? integer_power(base, exponent & 1) : 0;
  for (; exponent > 0; exponent >>= 1, square *= square)
    if (exponent & 1)
      power *= square;
  return (int64_t)power;
}

/* out[i] = x[i]^exponent. Models mostly have squares, cubes and roots, which powf takes ten times longer for.
 */
static void raise_run(const float *x, float exponent, float *out, int64_t n) {
  if (exponent == 1.0f) {
    ELEMENTWISE_FOR (i, n)
      out[i] = x[i];
  } else if (exponent == 2.0f) {
    ELEMENTWISE_FOR (i, n)
      out[i] = x[i] * x[i];
  } else if (exponent == 3.0f) {
    ELEMENTWISE_FOR (i, n)
      out[i] = x[i] * x[i] * x[i];
  } else if (exponent == 0.5f) {
    ELEMENTWISE_FOR (i, n)
      out[i] = sqrtf(x[i]);
  } else if (exponent == -0.5f) {
    ELEMENTWISE_FOR (i, n)
      out[i] = 1.0f / sqrtf(x[i]);
  } else {
    for (int64_t i = 0; i < n; i++)
      out[i] = powf(x[i], exponent);
  }
}

/* out f32[elems] = x^(e - lower), x and e broadcast to out's shape */
static void raise_real(const struct tensor *x, const struct tensor *e, float lower, const struct shape *shape,
                       float *out) {
  const float *base = x->data;
  struct broadcast walk;
  broadcast_init(&walk, shape, &x->shape, &e->shape);
  for (int64_t r = 0; r < walk.runs; r++, broadcast_next(&walk), out += walk.run) {
    if (walk.step[0] && (!walk.step[1] || walk.run == 1)) {
      raise_run(base + walk.at[0], (float)real_at(e, walk.at[1]) - lower, out, walk.run);
      continue;
    }
    for (int64_t j = 0; j < walk.run; j++)
      out[j] =
          powf(base[walk.at[0] + j * walk.step[0]], (float)real_at(e, walk.at[1] + j * walk.step[1]) - lower);
  }
}

static void put_integer(const struct tensor *tensor, int64_t i, int64_t value) {
  if (tensor->dtype == DTYPE_I64)
    ((int64_t *)tensor->data)[i] = value;
  else if (tensor->dtype == DTYPE_I32)
    ((int32_t *)tensor->data)[i] = (int32_t)value;
  else
    ((uint8_t *)tensor->data)[i] = (uint8_t)value;
}

static void raise_integer(const struct tensor *x, const struct tensor *e, const struct tensor *out) {
  struct broadcast walk;
  int64_t at = 0;
  broadcast_init(&walk, &out->shape, &x->shape, &e->shape);
  for (int64_t r = 0; r < walk.runs; r++, broadcast_next(&walk))
    for (int64_t j = 0; j < walk.run; j++) {
      int64_t base = integer_at(x, walk.at[0] + j * walk.step[0]),
              exponent_at = walk.at[1] + j * walk.step[1];
      int64_t power = e->dtype == DTYPE_F32 ? convert_i64(pow((double)base, real_at(e, exponent_at)))
                                            : integer_power(base, integer_at(e, exponent_at));
      put_integer(out, at++, power);
    }
}

static int pow_ref(const struct op_call *call, struct err *err) {
  const struct tensor *out = &call->out[0];
  (void)err;
  if (out->dtype == DTYPE_F32)
    raise_real(&call->in[0], &call->in[1], 0.0f, &out->shape, out->data);
  else
    raise_integer(&call->in[0], &call->in[1], out);
  return ERR_OK;
}

/* dx = dy e x^(e - 1), de = dy y log(x) */
static int pow_backward(struct autodiff *ad, struct graph *graph, const struct node *node, struct err *err) {
  int inputs[] = {autodiff_grad(ad, node, 0), node->inputs[0], node->inputs[1], node->outputs[0]};
  (void)err;
  if (autodiff_wants(ad, node, 0))
    backward_add_summed(ad, graph, node, 0,
                        backward_node(graph, "PowGrad", (struct value_list){inputs, 3}, ATTRS_NONE));
  if (autodiff_wants(ad, node, 1))
    backward_add_summed(ad, graph, node, 1,
                        backward_node(graph, "PowExponentGrad", (struct value_list){inputs, 4}, ATTRS_NONE));
  return ERR_OK;
}

/* With an exponent of 0 there is no gradient, also where x is 0. */
static int pow_grad_ref(const struct op_call *call, struct err *err) {
  const struct tensor *e = &call->in[2], *dx = &call->out[0];
  const float *dy = call->in[0].data;
  float *out = dx->data;
  struct broadcast walk;
  (void)err;
  raise_real(&call->in[1], e, 1.0f, &dx->shape, out);
  broadcast_init(&walk, &dx->shape, &e->shape, NULL);
  for (int64_t r = 0; r < walk.runs; r++, broadcast_next(&walk), out += walk.run, dy += walk.run)
    for (int64_t j = 0; j < walk.run; j++) {
      float exponent = (float)real_at(e, walk.at[0] + j * walk.step[0]);
      out[j] = exponent == 0.0f ? 0.0f : dy[j] * exponent * out[j];
    }
  return ERR_OK;
}

/* As PyTorch has it: 0 where x is 0 and e is not negative. */
static int pow_exponent_grad_ref(const struct op_call *call, struct err *err) {
  const float *dy = call->in[0].data, *x = call->in[1].data, *e = call->in[2].data, *y = call->in[3].data;
  float *out = call->out[0].data;
  struct broadcast walk;
  int64_t at = 0;
  (void)err;
  broadcast_init(&walk, &call->out[0].shape, &call->in[1].shape, &call->in[2].shape);
  for (int64_t r = 0; r < walk.runs; r++, broadcast_next(&walk))
    for (int64_t j = 0; j < walk.run; j++, at++) {
      float base = x[walk.at[0] + j * walk.step[0]], exponent = e[walk.at[1] + j * walk.step[1]];
      out[at] = base == 0.0f && exponent >= 0.0f ? 0.0f : dy[at] * y[at] * logf(base);
    }
  return ERR_OK;
}

static const struct op_case pow_cases[] = {
    {.inputs = "f32[2,3]=0.3,0.5,1,2,3,0.8 f32[2,3]=2,0.5,-1,3,1.5,-0.5"},
    {.inputs = "f32[2,3]=0.3,-0.5,1,2,-3,0.8 f32[]==e", .draw = "e=0|1|2|3"},
    {.inputs = "f32[2,3]=0.3,0.5,1,2,3,0.8 f32[1]=e", .draw = "e=0|1|2|3|5"},
    {.inputs = "f32[2,3]=0.3,0.5,1,2,3,0.8 f32[]=0.5"},
    {.inputs = "f32[2,3]=0.3,0.5,1,2,3,0.8 f32[]==-0.5"},
    {.inputs = "f32[2,1]=0.3,0.5 f32[3]=2,0.5,-1.5"},
    {.inputs = "f32[]=1.3 f32[2,3]"},
    {.inputs = "f32[2,3] i64{4}[3]"},
    {.inputs = "f32[2,3]=0.3,-0.5,1,2,-3,0.8 i32[2,1]=3,-2"},
    {.inputs = "f32[4]=0,0,2,-1 f32[4]=0,2,0,2", .is_not_smooth = true},
    {.inputs = "i32[5]=-2,3,1,0,-1 i32[5]=3,4,-7,0,-3"},
    {.inputs = "i64[3]=-2,3,10 f32[1]=2"},
    {.inputs = "i64[3]=-2,3,10 i64[1]=3"},
    {.inputs = "u8{9}[3] u8{3}[]"},
    {0},
};

static const struct op_def pow_grad, pow_exponent_grad;
static const struct op_def *const pow_gradients[] = {&pow_grad, &pow_exponent_grad, NULL};

const struct op_def op_Pow = {
    .name = "Pow",
    .domain = "",
    .min_inputs = 2,
    .max_inputs = 2,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 7,
    .flags = OP_POINTWISE,
    .infer = pow_infer,
    .backward = pow_backward,
    .ref = pow_ref,
    .cases = pow_cases,
    .gradients = pow_gradients,
};

/* dy, x, e -> x's gradient, before it is summed to x's shape */
static const struct op_def pow_grad = {
    .name = "PowGrad",
    .domain = "ai.weir",
    .min_inputs = 3,
    .max_inputs = 3,
    .min_outputs = 1,
    .max_outputs = 1,
    .flags = OP_POINTWISE,
    .infer = infer_same,
    .ref = pow_grad_ref,
};

/* dy, x, e, y -> e's gradient, before it is summed to e's shape */
static const struct op_def pow_exponent_grad = {
    .name = "PowExponentGrad",
    .domain = "ai.weir",
    .min_inputs = 4,
    .max_inputs = 4,
    .min_outputs = 1,
    .max_outputs = 1,
    .flags = OP_INPLACE | OP_POINTWISE,
    .infer = infer_same,
    .ref = pow_exponent_grad_ref,
};
