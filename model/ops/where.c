/* Where: elementwise choice between two tensors by a condition, with broadcasting (ONNX 9..16). */
#include "model/ops/shared/elementwise.h"

static int where_infer(struct graph *graph, const struct node *node, struct err *err) {
  const struct value *x = node_input(graph, node, 1), *y = node_input(graph, node, 2);
  struct shape shape;
  if (infer_check_dtype(graph, node, 0, 1 << DTYPE_BOOL, err) ||
      infer_check_dtype(graph, node, 1, DTYPES_ALL, err) ||
      infer_check_dtype(graph, node, 2, 1u << x->dtype, err) ||
      broadcast_infer_shape(graph, node, &shape, err))
    return err->code;
  return infer_output(graph, node, 0, &(struct tensor){.dtype = y->dtype, .shape = shape}, err);
}

static int zero_where(struct graph *graph, int condition, int x, int y) {
  int zero = graph_add_constant_f32(graph, 0.0f);
  return backward_node(graph, "Where", VALUES(condition, x < 0 ? zero : x, y < 0 ? zero : y), ATTRS_NONE);
}

static int where_backward(struct autodiff *ad, struct graph *graph, const struct node *node,
                          struct err *err) {
  int dy = autodiff_grad(ad, node, 0);
  (void)err;
  if (autodiff_wants(ad, node, 1))
    backward_add_summed(ad, graph, node, 1, zero_where(graph, node->inputs[0], dy, -1));
  if (autodiff_wants(ad, node, 2))
    backward_add_summed(ad, graph, node, 2, zero_where(graph, node->inputs[0], -1, dy));
  return ERR_OK;
}

/* One run, with constant steps where there are loops that matter. */
#define WHERE_RUN(step_c, step_x, step_y)                                                                    \
  ELEMENTWISE_FOR (j, walk.run)                                                                              \
    out[j] = c[walk.at[0] + (step_c)*j] ? x[walk.at[1] + (step_x)*j] : y[walk.at[2] + (step_y)*j];

#define WHERE_LOOP(function, type)                                                                           \
  static void function(const struct op_call *call) {                                                         \
    const struct shape *shapes[] = {&call->in[0].shape, &call->in[1].shape, &call->in[2].shape};             \
    const uint8_t *c = call->in[0].data;                                                                     \
    const type *x = call->in[1].data, *y = call->in[2].data;                                                 \
    type *out = call->out[0].data;                                                                           \
    struct broadcast walk;                                                                                   \
    broadcast_init_n(&walk, &call->out[0].shape, shapes, 3);                                                 \
    for (int64_t r = 0; r < walk.runs; r++, broadcast_next(&walk), out += walk.run) {                        \
      if (walk.step[0] && walk.step[1] && walk.step[2])                                                      \
        WHERE_RUN(1, 1, 1)                                                                                   \
      else if (walk.step[0] && walk.step[1])                                                                 \
        WHERE_RUN(1, 1, 0)                                                                                   \
      else if (walk.step[0] && walk.step[2])                                                                 \
        WHERE_RUN(1, 0, 1)                                                                                   \
      else                                                                                                   \
        WHERE_RUN(walk.step[0], walk.step[1], walk.step[2])                                                  \
    }                                                                                                        \
  }

WHERE_LOOP(where_bytes_1, uint8_t)
WHERE_LOOP(where_bytes_4, uint32_t)
WHERE_LOOP(where_bytes_8, uint64_t)

static int where_ref(const struct op_call *call, struct err *err) {
  (void)err;
  switch (dtype_size(call->out[0].dtype)) {
  case 1:
    where_bytes_1(call);
    break;
  case 4:
    where_bytes_4(call);
    break;
  default:
    where_bytes_8(call);
  }
  return ERR_OK;
}

static const struct op_case where_cases[] = {
    {.inputs = "bool{2}[a,b,c] f32[a,b,c] f32[a,b,c]", .draw = "a=1..3 b=1..4 c=1..5"},
    {.inputs = "bool{2}[b,1] f32[a,1,c] f32[b,c]", .draw = "a=1..3 b=1..4 c=1..5"},
    {.inputs = "bool{2}[2,3] f32[] f32[2,3]"},
    {.inputs = "bool{2}[2,3] f32[2,3] f32[]"},
    {.inputs = "bool{2}[2,3] f32[] f32[]"},
    {.inputs = "bool{2}[] f32[3] f32[2,1]"},
    {.inputs = "bool{2}[2,3] i64{9}[2,3] i64{9}[3]"},
    {.inputs = "bool{2}[2,3] i32{9}[2,3] i32{9}[]"},
    {.inputs = "bool{2}[2,3] u8{9}[2,3] u8{9}[3]"},
    {.inputs = "bool{2}[2,3] bool{2}[2,3] bool{2}[]"},
    {0},
};

const struct op_def op_Where = {
    .name = "Where",
    .domain = "",
    .min_inputs = 3,
    .max_inputs = 3,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 9,
    .infer = where_infer,
    .backward = where_backward,
    .ref = where_ref,
    .cases = where_cases,
};
