/* Gemm: y = alpha A' B' + beta C (ONNX 7..13; C broadcasts to y and may be absent). */
#include "model/ops/shared/backward.h"
#include "model/ops/shared/broadcast.h"
#include "model/ops/shared/infer.h"
#include "model/ops/shared/matrix.h"

static int gemm_infer(struct graph *graph, const struct node *node, struct err *err) {
  const struct value *c = node_input(graph, node, 2);
  struct shape a, b, y, common;
  char left[128], right[128];
  if (infer_check_f32(graph, node, err) || infer_check_rank(graph, node, 0, 2, err) ||
      infer_check_rank(graph, node, 1, 2, err))
    return err->code;
  a = node_input(graph, node, 0)->shape;
  b = node_input(graph, node, 1)->shape;
  int is_a_transposed = node_attr_int(node, "transA", 0) != 0,
      is_b_transposed = node_attr_int(node, "transB", 0) != 0;
  y = (struct shape){.rank = 2, .dim = {a.dim[is_a_transposed], b.dim[!is_b_transposed]}};
  if (a.dim[!is_a_transposed] != b.dim[is_b_transposed])
    return node_error(node, err, ERR_INVALID, "matrices of shapes %s and %s do not multiply%s",
                      shape_text(&a, left, sizeof left), shape_text(&b, right, sizeof right),
                      is_a_transposed || is_b_transposed ? " when transposed" : "");
  if (c && (!broadcast_shapes(&c->shape, &y, &common) || !shape_is_same(&common, &y)))
    return node_error(node, err, ERR_INVALID, "C of shape %s does not broadcast to %s",
                      shape_text(&c->shape, left, sizeof left), shape_text(&y, right, sizeof right));
  return infer_f32(graph, node, 0, &y, err);
}

/* A matrix in the graph, and whether it is multiplied transposed. */
struct factor {
  int value;
  bool is_transposed;
};

static int add_product(struct graph *graph, struct factor a, struct factor b, float alpha) {
  return backward_node(graph, "Gemm", VALUES(a.value, b.value),
                       ATTR_LIST(attr_of_int("transA", a.is_transposed),
                                 attr_of_int("transB", b.is_transposed), attr_of_float("alpha", alpha)));
}

static int gemm_backward(struct autodiff *ad, struct graph *graph, const struct node *node, struct err *err) {
  bool is_a_transposed = node_attr_int(node, "transA", 0) != 0;
  bool is_b_transposed = node_attr_int(node, "transB", 0) != 0;
  float alpha = node_attr_float(node, "alpha", 1.0f), beta = node_attr_float(node, "beta", 1.0f);
  int dy = autodiff_grad(ad, node, 0), a = node->inputs[0], b = node->inputs[1];
  (void)err;
  if (autodiff_wants(ad, node, 1))
    autodiff_add(
        ad, node, 1,
        is_b_transposed
            ? add_product(graph, (struct factor){dy, true}, (struct factor){a, is_a_transposed}, alpha)
            : add_product(graph, (struct factor){a, !is_a_transposed}, (struct factor){dy, false}, alpha));
  if (autodiff_wants(ad, node, 2))
    backward_add_summed(ad, graph, node, 2, backward_scale(graph, dy, beta));
  if (autodiff_wants(ad, node, 0))
    autodiff_add(
        ad, node, 0,
        is_a_transposed
            ? add_product(graph, (struct factor){b, is_b_transposed}, (struct factor){dy, true}, alpha)
            : add_product(graph, (struct factor){dy, false}, (struct factor){b, !is_b_transposed}, alpha));
  return ERR_OK;
}

/* The operand as it is multiplied. */
static struct matrix operand_matrix(const struct tensor *tensor, bool is_transposed) {
  struct matrix matrix = {tensor->data, tensor->shape.dim[0], tensor->shape.dim[1], tensor->shape.dim[1], 1};
  return is_transposed ? matrix_transposed(matrix) : matrix;
}

static int gemm_ref(const struct op_call *call, struct err *err) {
  const struct node *node = call->node;
  float alpha = node_attr_float(node, "alpha", 1.0f), beta = node_attr_float(node, "beta", 1.0f);
  const float *c = call->in[2].data;
  float *y = call->out[0].data;
  struct broadcast walk;
  (void)err;
  matrix_multiply(operand_matrix(&call->in[0], node_attr_int(node, "transA", 0) != 0),
                  operand_matrix(&call->in[1], node_attr_int(node, "transB", 0) != 0), y);
  for (int64_t i = 0; i < shape_elems(&call->out[0].shape); i++)
    y[i] *= alpha;
  if (!c)
    return ERR_OK;
  broadcast_init(&walk, &call->out[0].shape, &call->in[2].shape, NULL);
  for (int64_t r = 0; r < walk.runs; r++, broadcast_next(&walk), y += walk.run)
    for (int64_t j = 0; j < walk.run; j++)
      y[j] += beta * c[walk.at[0] + j * walk.step[0]];
  return ERR_OK;
}

static double gemm_multiply_adds(const struct graph *graph, const struct node *node) {
  bool is_a_transposed = node_attr_int(node, "transA", 0) != 0;
  return infer_output_elems(graph, node, 0) * (double)node_input(graph, node, 0)->shape.dim[!is_a_transposed];
}

static const struct op_case gemm_cases[] = {
    {.inputs = "f32[3,4] f32[4,5] f32[5]"},
    {.inputs = "f32[3,4] f32[5,4] f32[5]", .attrs = "transB=1"},
    {.inputs = "f32[4,3] f32[4,5] f32[3,1]", .attrs = "transA=1 alpha=0.5f beta=2f"},
    {.inputs = "f32[4,3] f32[5,4] f32[3,5]", .attrs = "transA=1 transB=1 alpha=-1.5f"},
    {.inputs = "f32[3,4] f32[4,5]", .attrs = "alpha=2f"},
    {.inputs = "f32[3,4] f32[4,5] f32[]", .attrs = "beta=0.5f"},
    {.inputs = "f32[3,4] f32[4,5] f32[1,5]"},
    {.inputs = "f32[16,50] f32[33,50] f32[33]", .attrs = "transB=1"},
    {.inputs = "f32[m,k] f32[k,n] c",
     .attrs = "alpha=u beta=v",
     .draw = "m=1..4 k=1..5 n=1..4 c=-|f32[n]|f32[m,1]|f32[m,n]|f32[] u=1f|0.5f v=1f|-2f"},
    {.inputs = "f32[k,m] f32[n,k] c",
     .attrs = "transA=1 transB=1 alpha=u beta=v",
     .draw = "m=1..4 k=1..5 n=1..4 c=-|f32[n]|f32[m,1]|f32[1,n] u=1f|0.5f v=1f|-2f"},
    {0},
};

const struct op_def op_Gemm = {
    .name = "Gemm",
    .domain = "",
    .min_inputs = 2,
    .max_inputs = 3,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 1,
    .infer = gemm_infer,
    .backward = gemm_backward,
    .ref = gemm_ref,
    .multiply_adds = gemm_multiply_adds,
    .cases = gemm_cases,
};
