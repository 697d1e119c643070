/* ReduceMean: the mean along axes (ONNX 1..18: axes by attribute before 18, by input since). */
#include "model/ops/shared/backward.h"
#include "model/ops/shared/reduce.h"

/* 1 / the elements that one mean is over. */
static double mean_scale(const struct shape *x, const struct shape *kept) {
  return (double)shape_elems(kept) / (double)shape_elems(x);
}

bool reduce_is_pool(const struct shape *x, const struct shape *kept) {
  bool is_spatial = x->rank >= 3 && kept->dim[0] == x->dim[0] && kept->dim[1] == x->dim[1];
  for (int d = 2; d < x->rank; d++)
    is_spatial &= kept->dim[d] == 1;
  return is_spatial;
}

static int reduce_mean_backward(struct autodiff *ad, struct graph *graph, const struct node *node,
                                struct err *err) {
  struct shape x = node_input(graph, node, 0)->shape, kept;
  struct attr attr = attr_of_shape(&x);
  int dy;
  if (reduce_kept_shape(graph, node, &kept, err))
    return err->code;
  if (!reduce_is_pool(&x, &kept))
    return reduce_backward(ad, graph, node, (float)mean_scale(&x, &kept), err);
  dy = reduce_kept_grad(ad, graph, node);
  autodiff_add(ad, node, 0, backward_node(graph, "GlobalAveragePoolGrad", VALUES(dy), ATTR_LIST(attr)));
  return ERR_OK;
}

static int reduce_mean_ref_f32(const struct op_call *call, struct err *err) {
  struct shape kept;
  if (reduce_kept_shape(call->graph, call->node, &kept, err))
    return err->code;
  return reduce_sum_to(call, &call->in[0].shape, &kept, mean_scale(&call->in[0].shape, &kept), err);
}

/* Integers wrap, so they are added unsigned. */
REDUCE_LOOP(reduce_mean_ref_i32, int32_t, uint64_t, 0, a + x, (int64_t)a / n)
REDUCE_LOOP(reduce_mean_ref_i64, int64_t, uint64_t, 0, a + x, (int64_t)a / n)
REDUCE_NUMBER(reduce_mean_ref)

static const struct op_case reduce_mean_cases[] = {
    {.inputs = "f32[2,3,4]"},
    {.inputs = "f32[2,3,4]", .attrs = "axes=0,-1 keepdims=0"},
    {.inputs = "f32[2,3,4]", .attrs = "axes=1,"},
    {.inputs = "f32[2,3,4] i64[1]==-2", .attrs = "keepdims=0", .opset = 18},
    {.inputs = "f32[2,3] i64[0]==", .attrs = "noop_with_empty_axes=1", .opset = 18},
    {.inputs = "f32[2,3,4,2]", .attrs = "axes=2,3"},
    {.inputs = "f32[2,16,3,5]", .attrs = "axes=-1,-2 keepdims=0"},
    {.inputs = "i64{-9..9}[2,3] i64[1]==0", .opset = 18},
    {.inputs = "i32{-9..9}[2,3]", .opset = 18},
    {.inputs = "f32[4300,3]", .attrs = "axes=0,", .is_not_smooth = true},
    {.inputs = "f32[a,b,c]",
     .attrs = "axes=x keepdims=k",
     .draw = "a=1..3 b=1..4 c=1..4 k=0|1 x=0,|-1,|1,|0,2|-2,-1|0,1,2"},
    {0},
};

const struct op_def op_ReduceMean = {
    .name = "ReduceMean",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 2,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 1,
    .infer = reduce_infer_number,
    .backward = reduce_mean_backward,
    .ref = reduce_mean_ref,
    .cases = reduce_mean_cases,
};
