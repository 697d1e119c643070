/* Pools over windows and their gradients as steps, in the layout of the pooled tensor. */
#include "worker/backend/cuda/conv/pool.h"

#include <string.h>

#include "model/ops/shared/lp.h"
#include "model/ops/shared/windows.h"
#include "worker/backend/cuda/rows/fold.h"

struct pool_step {
  struct cuda_pool pool;
  int x, y, dy, dx, places, indices; /* arguments; -1: none */
  bool has_places;                   /* of a gradient: what the forward step left */
  bool is_wide;                      /* by the launchers of pool_wide.cu */
  /* Of a gradient without, where a plane has one window, which has all of it: finds its place by as many
     threads as a long plane wants. */
  struct cuda_folding folding;
  bool is_folded;
};

static int enqueue_pool(struct backend_program *program, const struct cuda_step *step, cudaStream_t stream,
                        struct err *err) {
  const struct pool_step *own = step->details;
  struct cuda_pool pool = own->pool;
  (void)program;
  pool.x = cuda_arg_tensor(step, own->x);
  pool.y = cuda_arg_tensor(step, own->y);
  pool.dy = cuda_arg_tensor(step, own->dy);
  pool.dx = cuda_arg_tensor(step, own->dx);
  pool.places = cuda_arg_tensor(step, own->places).data;
  pool.indices = cuda_arg_tensor(step, own->indices).data;
  if (own->is_folded && cuda_folding_enqueue(&own->folding, step, stream, err))
    return err->code;
  if (own->dx < 0 || (pool.kind == POOL_MAX && !own->has_places && !own->is_folded))
    (own->is_wide ? cuda_pool_wide_launch : cuda_pool_launch)(&pool, stream);
  if (own->dx >= 0)
    (own->is_wide ? cuda_pool_wide_grad_launch : cuda_pool_grad_launch)(&pool, stream);
  return cuda_check(step->node, cudaGetLastError(), "pool windows", err);
}

/* Sizes that int holds, so that the device need not count further. */
static bool copy_sizes(int *to, const int64_t *from) {
  for (int d = 0; d < POOL_DIMS; d++) {
    if (from[d] < -(1 << 20) || from[d] > 1 << 20)
      return false;
    to[d] = (int)from[d];
  }
  return true;
}

/* The node's windows over x. */
static bool pool_init(struct pool_step *own, struct backend_program *program, const struct node *node,
                      enum cuda_pool_kind kind, const struct shape *x) {
  struct cuda_pool *pool = &own->pool;
  struct windows w;
  struct err err = ERR_NONE;
  (void)program;
  *own = (struct pool_step){
      .pool = {.kind = kind}, .x = -1, .y = -1, .dy = -1, .dx = -1, .places = -1, .indices = -1};
  if (windows_init(&w, node, x, NULL, &err) || (kind == POOL_LP && lp_order(node, &pool->power, &err)))
    return false;
  pool->planes = x->dim[0] * x->dim[1];
  pool->channels = x->dim[1];
  pool->dims = w.dims;
  pool->includes_pad = node_attr_int(node, "count_include_pad", 0) != 0;
  pool->is_column_major = node_attr_int(node, "storage_order", 0) != 0;
  return w.in_elems <= INT32_MAX / pool->planes && w.out_elems <= INT32_MAX / pool->planes &&
         w.taps <= INT32_MAX && copy_sizes(pool->in, w.in) && copy_sizes(pool->out, w.out) &&
         copy_sizes(pool->kernel, w.kernel) && copy_sizes(pool->stride, w.stride) &&
         copy_sizes(pool->dilation, w.dilation) && copy_sizes(pool->pad_begin, w.pad_begin) &&
         copy_sizes(pool->pad_end, w.pad_end);
}

static bool end_step(struct backend_program *program, struct cuda_step *step, const struct pool_step *own) {
  step->details = arena_copy(cuda_view(program)->memory, own, sizeof *own);
  step->enqueue = enqueue_pool;
  cuda_step_end(program, step);
  return true;
}

static size_t places_bytes(const struct pool_step *own) {
  const struct cuda_pool *pool = &own->pool;
  return (size_t)(pool->planes * pool->out[0] * pool->out[1] * pool->out[2]) *
         (own->is_wide ? sizeof(uint8_t) : sizeof(int32_t));
}

static bool has_gradient(const struct graph *graph, const struct node *node) {
  for (int n = node->index + 1; n < graph->n_nodes; n++)
    if (graph->nodes[n]->forward == node->index && strcmp(graph->nodes[n]->op->name, "MaxPoolGrad") == 0)
      return true;
  return false;
}

/* X -> Y, and MaxPool's indices */
static bool prepare_pool(struct backend_program *program, const struct node *node, enum cuda_pool_kind kind) {
  const struct graph *graph = cuda_view(program)->graph;
  const struct value *x = node_input(graph, node, 0);
  struct pool_step own;
  struct cuda_step *step;
  if (!pool_init(&own, program, node, kind, &x->shape))
    return false;
  own.pool.layout = cuda_layout_of(program, node->inputs[0]);
  if (kind == POOL_MAX && node_output(graph, node, 1))
    own.pool.layout = CUDA_DENSE;
  step = cuda_step_new(program, node);
  own.x = cuda_read(program, step, node->inputs[0], CUDA_ANY_TYPE, own.pool.layout);
  own.y = cuda_write(program, step, node->outputs[0], CUDA_ANY_TYPE, own.pool.layout);
  own.is_wide = x->dtype == DTYPE_F32 && cuda_pool_is_wide(&own.pool);
  if (kind == POOL_MAX) {
    own.indices = cuda_write_optional(program, step, 1, CUDA_I64, CUDA_DENSE);
    if (has_gradient(graph, node))
      own.places = cuda_keep(program, step, places_bytes(&own));
  }
  return end_step(program, step, &own);
}

static bool prepare_max(struct backend_program *program, const struct node *node) {
  return prepare_pool(program, node, POOL_MAX);
}

static bool prepare_average(struct backend_program *program, const struct node *node) {
  return prepare_pool(program, node, POOL_AVERAGE);
}

static bool prepare_lp(struct backend_program *program, const struct node *node) {
  return prepare_pool(program, node, POOL_LP);
}

/* The layout in which the forward node's y was made, which is that of its places. */
static enum cuda_layout layout_of_forward(const struct backend_program *program, const struct node *node) {
  const struct node *forward = node->forward < 0 ? NULL : cuda_view(program)->graph->nodes[node->forward];
  return forward ? cuda_layout_of(program, forward->outputs[0]) : CUDA_DENSE;
}

/* Whether a plane has one window, which has all of it. */
static bool is_whole(const struct cuda_pool *pool) {
  for (int d = 0; d < POOL_DIMS; d++)
    if (pool->out[d] != 1 || pool->pad_begin[d] != 0 || pool->dilation[d] != 1 ||
        pool->kernel[d] < pool->in[d])
      return false;
  return true;
}

/* The greatest element's place in each plane of argument x, into the places. */
static void fold_places(struct backend_program *program, struct cuda_step *step, struct pool_step *own,
                        const struct shape *x) {
  own->folding = cuda_folding_of(FOLD_ARG_MAX, FINISH_PLACE);
  own->is_folded = is_whole(&own->pool) && cuda_rows_of_planes(&own->folding.fold.rows, x, own->pool.layout);
  own->folding.x = own->x;
  own->folding.out[0] = own->places;
  if (own->is_folded)
    cuda_folding_plan(program, step, &own->folding);
}

/* MaxPoolGrad: dY, X -> dX; where the forward node left no places, they are found again. */
static bool prepare_max_grad(struct backend_program *program, const struct node *node) {
  struct pool_step own;
  struct cuda_step *step;
  if (!pool_init(&own, program, node, POOL_MAX, &node_output(cuda_view(program)->graph, node, 0)->shape))
    return false;
  step = cuda_step_new(program, node);
  own.places = cuda_read_kept(program, step, node->forward);
  own.has_places = own.places >= 0;
  own.pool.layout =
      own.has_places ? layout_of_forward(program, node) : cuda_layout_of(program, node->inputs[1]);
  own.is_wide = cuda_pool_is_wide(&own.pool) && (own.has_places || !is_whole(&own.pool));
  if (!own.has_places) {
    own.places = cuda_scratch(program, step, places_bytes(&own));
    own.x = cuda_read(program, step, node->inputs[1], CUDA_ANY_TYPE, own.pool.layout);
    fold_places(program, step, &own, &node_input(cuda_view(program)->graph, node, 1)->shape);
  }
  own.dy = cuda_read(program, step, node->inputs[0], CUDA_ANY_TYPE, own.pool.layout);
  own.dx = cuda_write(program, step, node->outputs[0], CUDA_ANY_TYPE, own.pool.layout);
  return end_step(program, step, &own);
}

/* AveragePoolGrad: dY -> dX. LpPoolGrad: dY, X, Y -> dX */
static bool prepare_grad(struct backend_program *program, const struct node *node, enum cuda_pool_kind kind) {
  struct pool_step own;
  struct cuda_step *step;
  if (!pool_init(&own, program, node, kind, &node_output(cuda_view(program)->graph, node, 0)->shape))
    return false;
  step = cuda_step_new(program, node);
  own.pool.layout = layout_of_forward(program, node);
  own.dy = cuda_read(program, step, node->inputs[0], CUDA_ANY_TYPE, own.pool.layout);
  if (kind == POOL_LP) {
    own.x = cuda_read(program, step, node->inputs[1], CUDA_ANY_TYPE, own.pool.layout);
    own.y = cuda_read(program, step, node->inputs[2], CUDA_ANY_TYPE, own.pool.layout);
  }
  own.dx = cuda_write(program, step, node->outputs[0], CUDA_ANY_TYPE, own.pool.layout);
  return end_step(program, step, &own);
}

static bool prepare_average_grad(struct backend_program *program, const struct node *node) {
  return prepare_grad(program, node, POOL_AVERAGE);
}

static bool prepare_lp_grad(struct backend_program *program, const struct node *node) {
  return prepare_grad(program, node, POOL_LP);
}

const struct cuda_kernel cuda_kernel_average_pool = {.op = "AveragePool", .prepare = prepare_average};
const struct cuda_kernel cuda_kernel_average_pool_grad = {.op = "AveragePoolGrad",
                                                          .prepare = prepare_average_grad};
const struct cuda_kernel cuda_kernel_lp_pool = {.op = "LpPool", .prepare = prepare_lp};
const struct cuda_kernel cuda_kernel_lp_pool_grad = {.op = "LpPoolGrad", .prepare = prepare_lp_grad};
const struct cuda_kernel cuda_kernel_max_pool = {.op = "MaxPool", .prepare = prepare_max};
const struct cuda_kernel cuda_kernel_max_pool_grad = {.op = "MaxPoolGrad", .prepare = prepare_max_grad};
