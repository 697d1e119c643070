/* ReduceProd: the product along axes (ONNX 1..18: axes by attribute before 18, by input since), and its
 * gradient. */
#include "model/ops/shared/backward.h"
#include "model/ops/shared/reduce.h"

static int reduce_prod_backward(struct autodiff *ad, struct graph *graph, const struct node *node,
                                struct err *err) {
  int inputs[] = {reduce_kept_grad(ad, graph, node), node->inputs[0]};
  (void)err;
  autodiff_add(ad, node, 0,
               backward_node(graph, "ReduceProdGrad", (struct value_list){inputs, 2}, ATTRS_NONE));
  return ERR_OK;
}

/* Integers wrap, so they are computed unsigned. */
REDUCE_LOOP(reduce_prod_ref_f32, float, double, 1.0, a *x, a)
REDUCE_LOOP(reduce_prod_ref_i32, int32_t, uint64_t, 1, a *x, a)
REDUCE_LOOP(reduce_prod_ref_i64, int64_t, uint64_t, 1, a *x, a)
REDUCE_NUMBER(reduce_prod_ref)

static const struct op_case reduce_prod_cases[] = {
    REDUCE_CASES("f32{0.5..1.5}"),
    {.inputs = "f32[2,4]=1,0,2,3,0,4,0,5", .attrs = "axes=1,"},
    {.inputs = "i64{-9..9}[2,3] i64[1]==0", .opset = 18},
    {.inputs = "i32{-9..9}[2,3]", .opset = 18},
    REDUCE_DRAWN_CASE("f32{0.5..1.5}"),
    {0},
};

static const struct op_def reduce_prod_grad;
static const struct op_def *const reduce_prod_gradients[] = {&reduce_prod_grad, NULL};

const struct op_def op_ReduceProd = {
    .name = "ReduceProd",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 2,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 1,
    .infer = reduce_infer_number,
    .backward = reduce_prod_backward,
    .ref = reduce_prod_ref,
    .cases = reduce_prod_cases,
    .gradients = reduce_prod_gradients,
};

/* The factors of one product. */
struct factors {
  double product; /* of those that are not 0 */
  int64_t zeros;
};

/* The product of all factors but x, which is one of them. */
static double product_without(const struct factors *factors, double x) {
  if (x == 0.0)
    return factors->zeros == 1 ? factors->product : 0.0;
  return factors->zeros ? 0.0 : factors->product / x;
}

static int reduce_prod_grad_ref(const struct op_call *call, struct err *err) {
  const float *dy = call->in[0].data, *x = call->in[1].data;
  const struct shape *from = &call->in[1].shape, *to = &call->in[0].shape;
  float *dx = call->out[0].data;
  struct factors *factors = reduce_totals(call, shape_elems(to), sizeof *factors, err);
  struct broadcast walk;
  int64_t i = 0;
  if (!factors)
    return err->code;
  for (int64_t k = 0; k < shape_elems(to); k++)
    factors[k].product = 1.0;
  broadcast_init(&walk, from, to, NULL);
  for (int64_t r = 0; r < walk.runs; r++, broadcast_next(&walk))
    for (int64_t j = 0; j < walk.run; j++, i++) {
      struct factors *own = &factors[walk.at[0] + j * walk.step[0]];
      own->zeros += x[i] == 0.0f;
      own->product *= x[i] == 0.0f ? 1.0 : x[i];
    }
  i = 0;
  broadcast_init(&walk, from, to, NULL);
  for (int64_t r = 0; r < walk.runs; r++, broadcast_next(&walk))
    for (int64_t j = 0; j < walk.run; j++, i++) {
      int64_t at = walk.at[0] + j * walk.step[0];
      dx[i] = (float)(dy[at] * product_without(&factors[at], x[i]));
    }
  free(factors);
  return ERR_OK;
}

/* dy, x -> dx; dy with the reduced axes kept */
static const struct op_def reduce_prod_grad = {
    .name = "ReduceProdGrad",
    .domain = "ai.weir",
    .min_inputs = 2,
    .max_inputs = 2,
    .min_outputs = 1,
    .max_outputs = 1,
    .infer = reduce_grad_infer,
    .ref = reduce_prod_grad_ref,
};
