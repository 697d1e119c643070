/* MeanVarianceNormalization: less the mean and divided by the standard deviation along axes (ONNX 9..13), and
   its gradient. */
#include <math.h>

#include "model/ops/shared/backward.h"
#include "model/ops/shared/infer.h"
#include "model/ops/shared/reduce.h"

/* Added to the standard deviation, as ONNX's definition by other operators has it. */
static const double deviation_epsilon = 1e-9;

/* What is normalised together; the sums with dy are of the gradient alone. */
struct moments {
  double mean, variance, dy, dot;
};

/* The shape of x with 1 along each axis; by default all but the channels of [n,c,h,w]. */
static int moments_shape(const struct node *node, const struct shape *x, struct shape *to, struct err *err) {
  static const int64_t usual[] = {0, 2, 3};
  const struct attr *attr = node_attr(node, "axes");
  int n = attr ? attr->n : 3, axis;
  if (attr && attr->type != ATTR_INTS)
    return node_error(node, err, ERR_INVALID, "attribute 'axes' must be a list of integers");
  *to = *x;
  for (int i = 0; i < n; i++) {
    if (infer_axis(node, attr ? attr->ints[i] : usual[i], x->rank, &axis, err))
      return err->code;
    to->dim[axis] = 1;
  }
  return ERR_OK;
}

static int mvn_infer(struct graph *graph, const struct node *node, struct err *err) {
  struct shape to;
  if (moments_shape(node, &node_input(graph, node, 0)->shape, &to, err))
    return err->code;
  return infer_same_f32(graph, node, err);
}

static int mvn_backward(struct autodiff *ad, struct graph *graph, const struct node *node, struct err *err) {
  int inputs[] = {autodiff_grad(ad, node, 0), node->inputs[0]};
  (void)err;
  autodiff_add(ad, node, 0,
               backward_node(graph, "MeanVarianceNormalizationGrad", (struct value_list){inputs, 2},
                             node_attrs(node)));
  return ERR_OK;
}

/* How many elements of `from` become one of `to`. */
static double elems_each(const struct shape *from, const struct shape *to) {
  return (double)(shape_elems(from) / shape_elems(to));
}

/* Mean and variance of x, for each element of `to`. */
static void find_moments(const float *x, const struct shape *from, const struct shape *to,
                         struct moments *moments) {
  double n = elems_each(from, to);
  struct broadcast walk;
  int64_t i = 0;
  broadcast_init(&walk, from, to, NULL);
  for (int64_t r = 0; r < walk.runs; r++, broadcast_next(&walk))
    for (int64_t j = 0; j < walk.run; j++)
      moments[walk.at[0] + j * walk.step[0]].mean += x[i++] / n;
  i = 0;
  broadcast_init(&walk, from, to, NULL);
  for (int64_t r = 0; r < walk.runs; r++, broadcast_next(&walk))
    for (int64_t j = 0; j < walk.run; j++, i++) {
      struct moments *own = &moments[walk.at[0] + j * walk.step[0]];
      own->variance += (x[i] - own->mean) * (x[i] - own->mean) / n;
    }
}

static int mvn_ref(const struct op_call *call, struct err *err) {
  const struct shape *from = &call->in[0].shape;
  const float *x = call->in[0].data;
  float *y = call->out[0].data;
  struct moments *moments;
  struct broadcast walk;
  struct shape to;
  if (moments_shape(call->node, from, &to, err) ||
      !(moments = reduce_totals(call, shape_elems(&to), sizeof *moments, err)))
    return err->code;
  find_moments(x, from, &to, moments);
  broadcast_init(&walk, from, &to, NULL);
  for (int64_t r = 0; r < walk.runs; r++, broadcast_next(&walk), x += walk.run, y += walk.run)
    for (int64_t j = 0; j < walk.run; j++) {
      const struct moments *own = &moments[walk.at[0] + j * walk.step[0]];
      y[j] = (float)((x[j] - own->mean) / (sqrt(own->variance) + deviation_epsilon));
    }
  free(moments);
  return ERR_OK;
}

static const struct op_case mvn_cases[] = {
    {.inputs = "f32[2,3,4,2]"},
    {.inputs = "f32{apart}[3,5]", .attrs = "axes=1,"},
    {.inputs = "f32{apart}[a,b,c]", .attrs = "axes=x", .draw = "a=1..3 b=1..3 c=3..5 x=2,|-1,1|0,-1|0,1,2"},
    {0},
};

static const struct op_def mvn_grad;
static const struct op_def *const mvn_gradients[] = {&mvn_grad, NULL};

const struct op_def op_MeanVarianceNormalization = {
    .name = "MeanVarianceNormalization",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 9,
    .flags = OP_INPLACE,
    .infer = mvn_infer,
    .backward = mvn_backward,
    .ref = mvn_ref,
    .cases = mvn_cases,
    .gradients = mvn_gradients,
};

/* sum(dy) and sum(dy (x - mean)), divided by n */
static void find_sums(const float *dy, const float *x, const struct shape *from, const struct shape *to,
                      struct moments *moments) {
  double n = elems_each(from, to);
  struct broadcast walk;
  broadcast_init(&walk, from, to, NULL);
  for (int64_t r = 0; r < walk.runs; r++, broadcast_next(&walk), x += walk.run, dy += walk.run)
    for (int64_t j = 0; j < walk.run; j++) {
      struct moments *own = &moments[walk.at[0] + j * walk.step[0]];
      own->dy += dy[j] / n;
      own->dot += dy[j] * (x[j] - own->mean) / n;
    }
}

/* With the deviation s: dx = (dy - mean(dy)) / s - (x - mean) mean(dy (x - mean)) / s^3 */
static int mvn_grad_ref(const struct op_call *call, struct err *err) {
  const struct shape *from = &call->in[1].shape;
  const float *dy = call->in[0].data, *x = call->in[1].data;
  float *dx = call->out[0].data;
  struct moments *moments;
  struct broadcast walk;
  struct shape to;
  if (moments_shape(call->node, from, &to, err) ||
      !(moments = reduce_totals(call, shape_elems(&to), sizeof *moments, err)))
    return err->code;
  find_moments(x, from, &to, moments);
  find_sums(dy, x, from, &to, moments);
  broadcast_init(&walk, from, &to, NULL);
  for (int64_t r = 0; r < walk.runs; r++, broadcast_next(&walk)) {
    for (int64_t j = 0; j < walk.run; j++) {
      const struct moments *own = &moments[walk.at[0] + j * walk.step[0]];
      double s = sqrt(own->variance) + deviation_epsilon;
      *dx++ = (float)((*dy++ - own->dy - (*x++ - own->mean) * own->dot / (s * s)) / s);
    }
  }
  free(moments);
  return ERR_OK;
}

/* dy, x -> dx; the attributes of MeanVarianceNormalization */
static const struct op_def mvn_grad = {
    .name = "MeanVarianceNormalizationGrad",
    .domain = "ai.weir",
    .min_inputs = 2,
    .max_inputs = 2,
    .min_outputs = 1,
    .max_outputs = 1,
    .flags = OP_INPLACE,
    .infer = mvn_infer,
    .ref = mvn_grad_ref,
};
