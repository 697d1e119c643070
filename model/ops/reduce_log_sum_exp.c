/* ReduceLogSumExp: log(sum(exp(x))) along axes (ONNX 1..18: axes by attribute before 18, by input since). */
#include <math.h>

#include "model/ops/shared/backward.h"
#include "model/ops/shared/reduce.h"

/* dy exp(x - y): the softmax of x */
static int reduce_log_sum_exp_backward(struct autodiff *ad, struct graph *graph, const struct node *node,
                                       struct err *err) {
  int dy = reduce_kept_grad(ad, graph, node), y = reduce_kept_output(graph, node);
  int share = backward_unary(graph, "Exp", backward_binary(graph, "Sub", node->inputs[0], y));
  (void)err;
  autodiff_add(ad, node, 0, backward_binary(graph, "Mul", share, dy));
  return ERR_OK;
}

/* One result: log(sum(exp(x - greatest))) + greatest. */
struct exponentials {
  double greatest, sum;
};

static void sum_exponentials(const float *x, const struct shape *from, const struct shape *to,
                             struct exponentials *totals) {
  struct broadcast walk;
  broadcast_init(&walk, from, to, NULL);
  for (int64_t r = 0; r < walk.runs; r++, broadcast_next(&walk), x += walk.run)
    for (int64_t j = 0; j < walk.run; j++) {
      struct exponentials *own = &totals[walk.at[0] + j * walk.step[0]];
      own->sum += exp(x[j] - own->greatest);
    }
}

/* Where the greatest is infinite it need not, and cannot, be taken out. */
static void find_greatest(const float *x, const struct shape *from, const struct shape *to,
                          struct exponentials *totals) {
  int64_t elems = shape_elems(to);
  struct broadcast walk;
  for (int64_t i = 0; i < elems; i++)
    totals[i].greatest = -INFINITY;
  broadcast_init(&walk, from, to, NULL);
  for (int64_t r = 0; r < walk.runs; r++, broadcast_next(&walk), x += walk.run)
    for (int64_t j = 0; j < walk.run; j++) {
      struct exponentials *own = &totals[walk.at[0] + j * walk.step[0]];
      own->greatest = fmax(own->greatest, x[j]);
    }
  for (int64_t i = 0; i < elems; i++)
    if (isinf(totals[i].greatest))
      totals[i].greatest = 0.0;
}

static int reduce_log_sum_exp_ref(const struct op_call *call, struct err *err) {
  float *out = call->out[0].data;
  int64_t elems = shape_elems(&call->out[0].shape);
  struct exponentials *totals;
  struct shape kept;
  if (reduce_kept_shape(call->graph, call->node, &kept, err) ||
      !(totals = reduce_totals(call, elems, sizeof *totals, err)))
    return err->code;
  find_greatest(call->in[0].data, &call->in[0].shape, &kept, totals);
  sum_exponentials(call->in[0].data, &call->in[0].shape, &kept, totals);
  for (int64_t i = 0; i < elems; i++)
    out[i] = (float)(log(totals[i].sum) + totals[i].greatest);
  free(totals);
  return ERR_OK;
}

static const struct op_case reduce_log_sum_exp_cases[] = {
    REDUCE_CASES("f32"),
    {.inputs = "f32[2,3]=1000,1001,999,-1000,-1000,-1001", .attrs = "axes=1,", .is_not_smooth = true},
    {.inputs = "f32[2,2]=-inf,-inf,inf,0", .attrs = "axes=1,", .is_not_smooth = true},
    {.inputs = "f32[2,9001]", .attrs = "axes=1,", .is_not_smooth = true},
    REDUCE_DRAWN_CASE("f32"),
    {0},
};

const struct op_def op_ReduceLogSumExp = {
    .name = "ReduceLogSumExp",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 2,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 1,
    .infer = reduce_infer_f32,
    .backward = reduce_log_sum_exp_backward,
    .ref = reduce_log_sum_exp_ref,
    .cases = reduce_log_sum_exp_cases,
};
