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

/* A node's operands: `first` has the output's shape. */
struct operands {
  int first, second;
  dnnl_alg_kind_t kind;
};

/* oneDNN takes a second operand in f32 beside a first one in bf16, which only results are. */
static dnnl_data_type_t operands_type(const struct backend_program *program, const struct node *node,
                                      const struct operands *operands) {
  bool is_result = program->graph->values[operands->first].kind == VALUE_RESULT;
  return is_result ? cpu_type(program, node->outputs[0]) : dnnl_f32;
}

static void operands_step(struct backend_program *program, const struct node *node,
                          const struct operands *operands, const dnnl_memory_desc_t layouts[2],
                          dnnl_primitive_desc_t desc) {
  struct cpu_step *step = cpu_step_new(program, node);
  int a = cpu_read(program, step, DNNL_ARG_SRC_0, operands->first, &layouts[0]);
  cpu_use(program, step, DNNL_ARG_SRC_1, cpu_buffer_in(program, node, operands->second, &layouts[1]),
          &layouts[1]);
  cpu_write_over(program, step, DNNL_ARG_DST, &layouts[0], a);
  cpu_step_end(program, step, desc);
}

/* The operands in such layouts, f32 ones: the first, and the output, in `type`. */
static bool prepare_typed(struct backend_program *program, const struct node *node,
                          const struct operands *operands, const dnnl_memory_desc_t layouts[2],
                          dnnl_data_type_t type) {
  const dnnl_memory_desc_t typed[2] = {
      layout_typed(layouts[0], type),
      layout_typed(layouts[1], type == dnnl_f32 ? type : cpu_produced_type(program, operands->second))};
  dnnl_primitive_desc_t desc = binary_describe(program, operands->kind, &typed[0], &typed[1], &typed[0]);
  if (desc)
    operands_step(program, node, operands, typed, desc);
  return desc != NULL;
}

static bool prepare_layouts(struct backend_program *program, const struct node *node,
                            const struct operands *operands, const dnnl_memory_desc_t layouts[2]) {
  dnnl_data_type_t type = operands_type(program, node, operands);
  return prepare_typed(program, node, operands, layouts, type) ||
         (type != dnnl_f32 && prepare_typed(program, node, operands, layouts, dnnl_f32));
}

/* Tensors of one shape: in the layout of the first, unless only the second is blocked. */
static bool prepare_same(struct backend_program *program, const struct node *node,
                         const struct operands *operands) {
  dnnl_memory_desc_t layout = cpu_layout(program, operands->first);
  if (layout_is_dense(&layout))
    layout = cpu_layout(program, operands->second);
  return prepare_layouts(program, node, operands, (const dnnl_memory_desc_t[]){layout, layout});
}

/* One operand has the output's shape, the other is broadcast to it; oneDNN broadcasts the second one. */
static bool prepare_broadcast(struct backend_program *program, const struct node *node,
                              const struct operands *operands) {
  const struct graph *graph = program->graph;
  const struct shape *out = &node_output(graph, node, 0)->shape;
  const struct shape *small = &graph->values[operands->second].shape;
  int64_t out_dims[RANK_MAX], small_dims[RANK_MAX];
  int ndims = out->rank;
  if (ndims < 1 || small->rank > ndims)
    return false;
  dims_padded(out, ndims, out_dims);
  dims_padded(small, ndims, small_dims);
  return prepare_layouts(
      program, node, operands,
      (const dnnl_memory_desc_t[]){cpu_layout_as(program, operands->first, ndims, out_dims),
                                   layout_dense(ndims, small_dims)});
}

static bool prepare_binary(struct backend_program *program, const struct node *node, dnnl_alg_kind_t kind,
                           bool commutes) {
  const struct shape *a = &node_input(program->graph, node, 0)->shape;
  const struct shape *b = &node_input(program->graph, node, 1)->shape;
  const struct shape *out = &node_output(program->graph, node, 0)->shape;
  const struct operands straight = {node->inputs[0], node->inputs[1], kind};
  const struct operands turned = {node->inputs[1], node->inputs[0], kind};
  if (shape_is_same(a, b))
    return prepare_same(program, node, &straight);
  if (shape_is_same(a, out))
    return channels_prepare_broadcast(program, node, 0) || prepare_broadcast(program, node, &straight);
  return shape_is_same(b, out) && (channels_prepare_broadcast(program, node, 1) ||
                                   (commutes && prepare_broadcast(program, node, &turned)));
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
