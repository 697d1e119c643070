/* LRN: local response normalization across channels (ONNX 1..13), and its gradient.
   (Krizhevsky, Sutskever and Hinton, 2012, section 3.3.) */
#include <math.h>

#include "model/ops/shared/backward.h"
#include "model/ops/shared/infer.h"

/* Channel k of sample s, spatial element i, is at (s * c + k) * inner + i. Channel k's region is of channels
   [k - below, k + above], as far as they are there. */
struct lrn {
  int64_t n, c, inner, below, above;
  double alpha, beta, bias; /* alpha of each element: ONNX's / size */
};

static int lrn_init(struct lrn *lrn, const struct node *node, const struct shape *x, struct err *err) {
  int64_t size = node_attr_int(node, "size", 0);
  char text[128];
  if (x->rank < 2)
    return node_error(node, err, ERR_INVALID, "input of shape %s has no channels",
                      shape_text(x, text, sizeof text));
  if (size < 1 || size > INT32_MAX)
    return node_error(node, err, ERR_INVALID, "size is %lld; it must be at least 1", (long long)size);
  *lrn = (struct lrn){.n = x->dim[0], .c = x->dim[1], .inner = 1, .below = (size - 1) / 2, .above = size / 2};
  for (int d = 2; d < x->rank; d++)
    lrn->inner *= x->dim[d];
  lrn->alpha = node_attr_float(node, "alpha", 1e-4f) / (double)size;
  lrn->beta = node_attr_float(node, "beta", 0.75f);
  lrn->bias = node_attr_float(node, "bias", 1.0f);
  return ERR_OK;
}

static int lrn_infer(struct graph *graph, const struct node *node, struct err *err) {
  struct lrn lrn;
  if (lrn_init(&lrn, node, &node_input(graph, node, 0)->shape, err))
    return err->code;
  return infer_same_f32(graph, node, err);
}

static int lrn_backward(struct autodiff *ad, struct graph *graph, const struct node *node, struct err *err) {
  int inputs[] = {autodiff_grad(ad, node, 0), node->inputs[0]};
  (void)err;
  autodiff_add(ad, node, 0,
               backward_node(graph, "LRNGrad", (struct value_list){inputs, 2}, node_attrs(node)));
  return ERR_OK;
}

static int64_t first_channel(int64_t k, int64_t before) {
  return k > before ? k - before : 0;
}

static int64_t last_channel(const struct lrn *lrn, int64_t k, int64_t behind) {
  return lrn->c - 1 - k > behind ? k + behind : lrn->c - 1;
}

/* bias + alpha * the sum of squares of the region around channel k of a pixel, whose channels are `inner`
 * apart */
static double lrn_response(const struct lrn *lrn, const float *pixel, int64_t k) {
  double sum = 0.0;
  for (int64_t j = first_channel(k, lrn->below); j <= last_channel(lrn, k, lrn->above); j++)
    sum += (double)pixel[j * lrn->inner] * pixel[j * lrn->inner];
  return lrn->bias + lrn->alpha * sum;
}

static int lrn_ref(const struct op_call *call, struct err *err) {
  struct lrn lrn;
  if (lrn_init(&lrn, call->node, &call->in[0].shape, err))
    return err->code;
  for (int64_t s = 0; s < lrn.n; s++)
    for (int64_t i = 0; i < lrn.inner; i++) {
      const float *x = (const float *)call->in[0].data + s * lrn.c * lrn.inner + i;
      float *y = (float *)call->out[0].data + s * lrn.c * lrn.inner + i;
      for (int64_t k = 0; k < lrn.c; k++)
        y[k * lrn.inner] = (float)(x[k * lrn.inner] * pow(lrn_response(&lrn, x, k), -lrn.beta));
    }
  return ERR_OK;
}

static const struct op_case lrn_cases[] = {
    {.inputs = "f32[2,5,3,2]", .attrs = "size=3 alpha=0.5f beta=0.5f bias=2f"},
    {.inputs = "f32[2,5,3,2]", .attrs = "size=3"},
    {.inputs = "f32[2,5,3,2]", .attrs = "size=1"},
    {.inputs = "f32[1,6,4]", .attrs = "size=4 alpha=0.9f beta=0.75f"},
    {.inputs = "f32[3,4]", .attrs = "size=9 alpha=0.9f"},
    {.inputs = "f32[1,20,4,5]", .attrs = "size=5 alpha=0.9f"},
    {.inputs = "f32[n,c,h,w]",
     .attrs = "size=s alpha=2f beta=b bias=1f",
     .draw = "n=1..2 c=1..6 h=1..3 w=1..3 s=1..5 b=0.75f|0.5f"},
    {0},
};

static const struct op_def lrn_grad;
static const struct op_def *const lrn_gradients[] = {&lrn_grad, NULL};

const struct op_def op_LRN = {
    .name = "LRN",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 1,
    .infer = lrn_infer,
    .backward = lrn_backward,
    .ref = lrn_ref,
    .cases = lrn_cases,
    .gradients = lrn_gradients,
};

/* With the response r of each channel: dx = dy r^-beta - 2 alpha beta x * the sum of dy x r^(-beta-1) over
   the channels whose region has this one. */
static void grad_pixel(const struct lrn *lrn, const float *dy, const float *x, float *dx) {
  for (int64_t k = 0; k < lrn->c; k++) {
    double sum = 0.0, own = pow(lrn_response(lrn, x, k), -lrn->beta);
    for (int64_t j = first_channel(k, lrn->above); j <= last_channel(lrn, k, lrn->below); j++)
      sum += dy[j * lrn->inner] * x[j * lrn->inner] * pow(lrn_response(lrn, x, j), -lrn->beta - 1.0);
    dx[k * lrn->inner] =
        (float)(dy[k * lrn->inner] * own - 2.0 * lrn->alpha * lrn->beta * x[k * lrn->inner] * sum);
  }
}

static int lrn_grad_ref(const struct op_call *call, struct err *err) {
  struct lrn lrn;
  if (lrn_init(&lrn, call->node, &call->in[1].shape, err))
    return err->code;
  for (int64_t s = 0; s < lrn.n; s++)
    for (int64_t i = 0; i < lrn.inner; i++) {
      int64_t at = s * lrn.c * lrn.inner + i;
      grad_pixel(&lrn, (const float *)call->in[0].data + at, (const float *)call->in[1].data + at,
                 (float *)call->out[0].data + at);
    }
  return ERR_OK;
}

/* dy, x -> dx; the attributes of LRN */
static const struct op_def lrn_grad = {
    .name = "LRNGrad",
    .domain = "ai.weir",
    .min_inputs = 2,
    .max_inputs = 2,
    .min_outputs = 1,
    .max_outputs = 1,
    .infer = lrn_infer,
    .ref = lrn_grad_ref,
};
