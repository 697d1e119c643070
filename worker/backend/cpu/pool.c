/* Pools over windows and over everything, and their gradients, in the layout of the pooled tensor. */
#include "worker/backend/cpu/pool.h"

#include "worker/backend/cpu/window.h"

struct pool {
  dnnl_alg_kind_t kind;
  struct window window;
  const struct shape *in, *out;
};

/* in, out: values of the pooled tensor's shape and of the result's. */
static bool pool_init(struct pool *pool, const struct graph *graph, dnnl_alg_kind_t kind, int in, int out) {
  *pool = (struct pool){.kind = kind, .in = &graph->values[in].shape, .out = &graph->values[out].shape};
  return pool->in->rank >= 3 && pool->in->rank <= 5 && pool->out->rank == pool->in->rank;
}

/* The windows that the node's attributes say. */
static bool pool_set_windows(struct pool *pool, const struct node *node) {
  if (!window_init(&pool->window, node, pool->in, NULL))
    return false;
  return pool->kind != dnnl_pooling_avg_include_padding || !pool->window.is_beyond;
}

/* One window over each whole channel. */
static void pool_set_whole(struct pool *pool) {
  for (int d = 0; d < pool->in->rank - 2; d++) {
    pool->window.kernel[d] = pool->in->dim[d + 2];
    pool->window.strides[d] = 1;
  }
}

static dnnl_primitive_desc_t forward_describe(struct backend_program *program, const struct pool *pool,
                                              bool has_workspace, const dnnl_memory_desc_t *in) {
  const struct window *w = &pool->window;
  dnnl_memory_desc_t out = layout_typed(layout_any(pool->out->rank, pool->out->dim), in->data_type);
  dnnl_pooling_v2_desc_t forward;
  if (dnnl_pooling_v2_forward_desc_init(
          &forward, has_workspace ? dnnl_forward_training : dnnl_forward_inference, pool->kind, in, &out,
          w->strides, w->kernel, w->dilations, w->pads_begin, w->pads_end))
    return NULL;
  return cpu_describe(program, &forward, NULL, NULL);
}

/* X -> Y, and a workspace for the gradient of a maximum. */
static bool prepare_forward(struct backend_program *program, const struct node *node,
                            const struct pool *pool) {
  struct cpu_node *known = &program->nodes[node->index];
  bool has_workspace = known->has_gradient && pool->kind == dnnl_pooling_max;
  dnnl_memory_desc_t in = cpu_layout_as(program, node->inputs[0], pool->in->rank, pool->in->dim);
  in.data_type = cpu_type(program, node->outputs[0]);
  dnnl_primitive_desc_t desc = forward_describe(program, pool, has_workspace, &in);
  if (in.data_type != dnnl_f32 && cpu_rank(desc) == CPU_RANK_REFERENCE) {
    in.data_type = dnnl_f32;
    desc = forward_describe(program, pool, has_workspace, &in);
  }
  if (!desc)
    return false;
  struct cpu_step *step = cpu_step_new(program, node);
  cpu_read(program, step, DNNL_ARG_SRC, node->inputs[0], &in);
  cpu_write(program, step, DNNL_ARG_DST, node->outputs[0], cpu_query(desc, dnnl_query_dst_md, 0));
  if (has_workspace)
    known->workspace =
        cpu_write(program, step, DNNL_ARG_WORKSPACE, -1, cpu_query(desc, dnnl_query_workspace_md, 0));
  known->forward = desc;
  cpu_step_end(program, step, desc);
  return true;
}

/* dY, ... -> dX, in the layouts of the forward node. */
static bool prepare_backward(struct backend_program *program, const struct node *node,
                             const struct pool *pool) {
  const struct window *w = &pool->window;
  const struct cpu_node *forward = &program->nodes[node->forward];
  dnnl_pooling_v2_desc_t backward;
  if (!forward->forward || (pool->kind == dnnl_pooling_max && forward->workspace < 0))
    return false;
  const dnnl_memory_desc_t *in = cpu_query(forward->forward, dnnl_query_src_md, 0);
  const dnnl_memory_desc_t *out = cpu_query(forward->forward, dnnl_query_dst_md, 0);
  if (dnnl_pooling_v2_backward_desc_init(&backward, pool->kind, in, out, w->strides, w->kernel, w->dilations,
                                         w->pads_begin, w->pads_end))
    return false;
  dnnl_primitive_desc_t desc = cpu_describe(program, &backward, NULL, forward->forward);
  if (!desc)
    return false;
  struct cpu_step *step = cpu_step_new(program, node);
  cpu_read(program, step, DNNL_ARG_DIFF_DST, node->inputs[0], out);
  if (forward->workspace >= 0)
    cpu_use(program, step, DNNL_ARG_WORKSPACE, forward->workspace, NULL);
  cpu_write(program, step, DNNL_ARG_DIFF_SRC, node->outputs[0], in);
  cpu_step_end(program, step, desc);
  return true;
}

static bool prepare_windows(struct backend_program *program, const struct node *node, dnnl_alg_kind_t kind) {
  struct pool pool;
  return pool_init(&pool, program->graph, kind, node->inputs[0], node->outputs[0]) &&
         pool_set_windows(&pool, node) && prepare_forward(program, node, &pool);
}

static bool prepare_windows_grad(struct backend_program *program, const struct node *node,
                                 dnnl_alg_kind_t kind) {
  struct pool pool;
  return node->forward >= 0 && pool_init(&pool, program->graph, kind, node->outputs[0], node->inputs[0]) &&
         pool_set_windows(&pool, node) && prepare_backward(program, node, &pool);
}

static dnnl_alg_kind_t average_kind(const struct node *node) {
  return node_attr_int(node, "count_include_pad", 0) ? dnnl_pooling_avg_include_padding
                                                     : dnnl_pooling_avg_exclude_padding;
}

static bool is_read(const struct backend_program *program, const struct node *node, int output) {
  const struct cpu_value *value =
      output < node->n_outputs && node->outputs[output] >= 0 ? &program->values[node->outputs[output]] : NULL;
  return value && (value->last_node >= 0 || value->is_watched);
}

/* MaxPool: X -> Y; oneDNN has no indices of ONNX's kind. */
static bool prepare_max(struct backend_program *program, const struct node *node) {
  return !is_read(program, node, 1) && prepare_windows(program, node, dnnl_pooling_max);
}

static bool prepare_max_grad(struct backend_program *program, const struct node *node) {
  return prepare_windows_grad(program, node, dnnl_pooling_max);
}

static bool prepare_average(struct backend_program *program, const struct node *node) {
  return prepare_windows(program, node, average_kind(node));
}

static bool prepare_average_grad(struct backend_program *program, const struct node *node) {
  return prepare_windows_grad(program, node, average_kind(node));
}

static bool prepare_whole(struct backend_program *program, const struct node *node, dnnl_alg_kind_t kind) {
  struct shape out = node_input(program->graph, node, 0)->shape;
  struct pool pool = {.kind = kind, .in = &node_input(program->graph, node, 0)->shape, .out = &out};
  if (out.rank < 3 || out.rank > 5)
    return false;
  for (int d = 2; d < out.rank; d++)
    out.dim[d] = 1;
  pool_set_whole(&pool);
  return prepare_forward(program, node, &pool);
}

bool pool_prepare_global(struct backend_program *program, const struct node *node) {
  return prepare_whole(program, node, dnnl_pooling_avg_include_padding);
}

static bool prepare_global_max(struct backend_program *program, const struct node *node) {
  return prepare_whole(program, node, dnnl_pooling_max);
}

static bool prepare_global_grad(struct backend_program *program, const struct node *node) {
  struct pool pool;
  if (node->forward < 0 ||
      !pool_init(&pool, program->graph, dnnl_pooling_avg_include_padding, node->outputs[0], node->inputs[0]))
    return false;
  pool_set_whole(&pool);
  return prepare_backward(program, node, &pool);
}

const struct cpu_kernel cpu_max_pool = {"MaxPool", prepare_max};
const struct cpu_kernel cpu_max_pool_grad = {"MaxPoolGrad", prepare_max_grad};
const struct cpu_kernel cpu_average_pool = {"AveragePool", prepare_average};
const struct cpu_kernel cpu_average_pool_grad = {"AveragePoolGrad", prepare_average_grad};
const struct cpu_kernel cpu_global_average_pool = {"GlobalAveragePool", pool_prepare_global};
const struct cpu_kernel cpu_global_max_pool = {"GlobalMaxPool", prepare_global_max};
const struct cpu_kernel cpu_global_average_pool_grad = {"GlobalAveragePoolGrad", prepare_global_grad};
