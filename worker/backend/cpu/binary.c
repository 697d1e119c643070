/* Arithmetic of two tensors, and sums of several. */

#include "worker/backend/cpu/channels.h"
#include "worker/backend/cpu/cpu.h"

/* The shape's dimensions behind 1s, up to ndims. */
static void dims_padded(const struct shape *shape, int ndims, int64_t *dims) {
  for (int d = 0; d < ndims; d++)
    dims[d] = d < ndims - shape->rank ? 1 : shape->dim[d - (ndims - shape->rank)];
}

static dnnl_primitive_desc_t binary_describe(struct backend_program *program, dnnl_alg_kind_t kind,
                                             const dnnl_memory_desc_t *a, const dnnl_memory_desc_t *b,
                                             const dnnl_memory_desc_t *out) {
  dnnl_binary_desc_t binary;
  return dnnl_binary_desc_init(&binary, kind, a, b, out) ? NULL : cpu_describe_fast(program, &binary, NULL);
}

/* Tensors of one shape: in the layout of the first, unless only the second is blocked. */
static bool prepare_same(struct backend_program *program, const struct node *node, dnnl_alg_kind_t kind) {
  dnnl_memory_desc_t layout = *cpu_layout(program, node->inputs[0]);
  if (layout_is_dense(&layout))
    layout = *cpu_layout(program, node->inputs[1]);
  dnnl_primitive_desc_t desc = binary_describe(program, kind, &layout, &layout, &layout);
  if (!desc)
    return false;
  struct cpu_step *step = cpu_step_new(program, node);
  int a = cpu_read(program, step, DNNL_ARG_SRC_0, node->inputs[0], &layout);
  cpu_read(program, step, DNNL_ARG_SRC_1, node->inputs[1], &layout);
  cpu_write_over(program, step, DNNL_ARG_DST, &layout, a);
  cpu_step_end(program, step, desc);
  return true;
}

/* One operand has the output's shape, the other is broadcast to it; oneDNN broadcasts the second one. */
static bool prepare_broadcast(struct backend_program *program, const struct node *node, dnnl_alg_kind_t kind,
                              int whole) {
  const struct graph *graph = program->graph;
  const struct shape *out = &node_output(graph, node, 0)->shape;
  const struct shape *small = &node_input(graph, node, !whole)->shape;
  int64_t out_dims[RANK_MAX], small_dims[RANK_MAX];
  int ndims = out->rank;
  if (ndims < 1 || small->rank > ndims)
    return false;
  dims_padded(out, ndims, out_dims);
  dims_padded(small, ndims, small_dims);
  dnnl_memory_desc_t layout = cpu_layout_as(program, node->inputs[whole], ndims, out_dims);
  dnnl_memory_desc_t broadcast = layout_dense(ndims, small_dims);
  dnnl_primitive_desc_t desc = binary_describe(program, kind, &layout, &broadcast, &layout);
  if (!desc)
    return false;
  struct cpu_step *step = cpu_step_new(program, node);
  int a = cpu_read(program, step, DNNL_ARG_SRC_0, node->inputs[whole], &layout);
  cpu_use(program, step, DNNL_ARG_SRC_1, cpu_buffer_in(program, node, node->inputs[!whole], NULL),
          &broadcast);
  cpu_write_over(program, step, DNNL_ARG_DST, &layout, a);
  cpu_step_end(program, step, desc);
  return true;
}

static bool prepare_binary(struct backend_program *program, const struct node *node, dnnl_alg_kind_t kind,
                           bool commutes) {
  const struct shape *a = &node_input(program->graph, node, 0)->shape;
  const struct shape *b = &node_input(program->graph, node, 1)->shape;
  const struct shape *out = &node_output(program->graph, node, 0)->shape;
  if (shape_is_same(a, b))
    return prepare_same(program, node, kind);
  if (shape_is_same(a, out))
    return channels_prepare_broadcast(program, node, 0) || prepare_broadcast(program, node, kind, 0);
  return shape_is_same(b, out) && (channels_prepare_broadcast(program, node, 1) ||
                                   (commutes && prepare_broadcast(program, node, kind, 1)));
}

static bool prepare_add(struct backend_program *program, const struct node *node) {
  return prepare_binary(program, node, dnnl_binary_add, true);
}

static bool prepare_sub(struct backend_program *program, const struct node *node) {
  return prepare_binary(program, node, dnnl_binary_sub, false);
}

static bool prepare_mul(struct backend_program *program, const struct node *node) {
  return prepare_binary(program, node, dnnl_binary_mul, true);
}

static bool prepare_div(struct backend_program *program, const struct node *node) {
  return prepare_binary(program, node, dnnl_binary_div, false);
}

const struct cpu_kernel cpu_add = {"Add", prepare_add};
const struct cpu_kernel cpu_sub = {"Sub", prepare_sub};
const struct cpu_kernel cpu_mul = {"Mul", prepare_mul};
const struct cpu_kernel cpu_div = {"Div", prepare_div};
