/* MaxUnpool and its gradient: a scatter or a gather of elements between the pooled tensor and the one that
   its indices are of, which lies in a corner of the unpooled one. */
#include "model/ops/max_unpool.h"

#include "worker/backend/cuda/moves/copy.h"
#include "worker/backend/cuda/moves/scatter.h"

struct unpool {
  struct cuda_places places;
  struct cuda_copy
      copy; /* between the indexed tensor and the unpooled one; of no elements where they are one */
  int pooled, indices, unpooled, indexed, sorting; /* arguments; sorting: not of a gradient */
};

static int enqueue_unpool(struct backend_program *program, const struct cuda_step *step, cudaStream_t stream,
                          struct err *err) {
  const struct unpool *own = step->details;
  const struct cuda_tensor *y = &step->args[own->unpooled].tensor;
  struct cuda_tensor indexed = *y;
  struct cuda_places places = own->places;
  struct cuda_sorting sorting = cuda_sorting_of(step, own->sorting);
  places.indices = step->args[own->indices].tensor;
  cuda_fill_launch(y->data, y->elems, cuda_element(y->type), 0, stream);
  if (own->copy.elems) {
    indexed.data = step->args[own->indexed].tensor.data;
    cuda_fill_launch(indexed.data, places.data_rows, cuda_element(y->type), 0, stream);
  }
  cuda_places_sort_launch(&places, &sorting, cuda_view(program)->fault, stream);
  const struct cuda_scattering scattering = {.how = SCATTER_LAST,
                                             .rows = places.rows,
                                             .run = places.run,
                                             .keys = sorting.keys[0],
                                             .order = sorting.rows[0],
                                             .updates = step->args[own->pooled].tensor,
                                             .to = indexed};
  cuda_scatter_launch(&scattering, stream);
  if (own->copy.elems)
    cuda_copy_launch(&own->copy, indexed.data, y->data, stream);
  return cuda_check(step->node, cudaGetLastError(), "unpool", err);
}

static int enqueue_unpool_grad(struct backend_program *program, const struct cuda_step *step,
                               cudaStream_t stream, struct err *err) {
  const struct unpool *own = step->details;
  struct cuda_tensor indexed = step->args[own->unpooled].tensor;
  struct cuda_places places = own->places;
  places.indices = step->args[own->indices].tensor;
  if (own->copy.elems) {
    indexed.data = step->args[own->indexed].tensor.data;
    cuda_copy_launch(&own->copy, step->args[own->unpooled].tensor.data, indexed.data, stream);
  }
  cuda_gather_enqueue(program, &places, &indexed, &step->args[own->pooled].tensor, stream);
  return cuda_check(step->node, cudaGetLastError(), "gather what was unpooled", err);
}

/* What a corner of a tensor has in common with one that is as large as the corner. */
static struct cuda_copy copy_of_corner(const struct shape *corner, const struct cuda_tensor *whole,
                                       bool is_back) {
  struct cuda_copy copy = {.element = cuda_element(whole->type)};
  int64_t stride = 1;
  for (int d = corner->rank - 1; d >= 0; d--) {
    int64_t outer = cuda_stride(whole, d);
    cuda_copy_dim(&copy, corner->dim[d], is_back ? outer : stride, is_back ? stride : outer);
    stride *= corner->dim[d];
  }
  cuda_copy_settle(&copy);
  return copy;
}

/* x, indices -> y; or dy, indices -> dx */
static bool prepare_unpool(struct backend_program *program, const struct node *node, bool is_back) {
  const struct graph *graph = cuda_view(program)->graph;
  struct unpool *own = arena_new(cuda_view(program)->memory, sizeof *own);
  int64_t n = shape_elems(&node_input(graph, node, 1)->shape), end;
  struct shape indexed;
  struct err err = ERR_NONE;
  if (max_unpool_indexed(node, &node_input(graph, node, 1)->shape, &indexed, &err) ||
      (end = shape_elems(&indexed)) > INT32_MAX || n > INT32_MAX)
    return false;
  own->places = (struct cuda_places){.node = node->index,
                                     .rows = n,
                                     .run = 1,
                                     .data_rows = end,
                                     .tuple = 1,
                                     .period = cuda_divisor_of(n),
                                     .index_stride = {1},
                                     .size = {end},
                                     .is_unsigned = true};
  struct cuda_step *step = cuda_step_new(program, node);
  int from = cuda_read(program, step, node->inputs[0], CUDA_ANY_TYPE, CUDA_DENSE);
  own->indices = cuda_read(program, step, node->inputs[1], CUDA_ANY_TYPE, CUDA_DENSE);
  int to = cuda_write(program, step, node->outputs[0], step->args[from].tensor.type, CUDA_DENSE);
  own->pooled = is_back ? to : from;
  own->unpooled = is_back ? from : to;
  if (step->args[own->unpooled].tensor.elems != end) {
    own->indexed =
        cuda_scratch(program, step, (size_t)end * (size_t)cuda_element(step->args[to].tensor.type));
    own->copy = copy_of_corner(&indexed, &step->args[own->unpooled].tensor, is_back);
  }
  if (!is_back)
    own->sorting = cuda_sorting_add(program, step, n);
  step->details = own;
  step->enqueue = is_back ? enqueue_unpool_grad : enqueue_unpool;
  cuda_step_end(program, step);
  return true;
}

static bool prepare_max_unpool(struct backend_program *program, const struct node *node) {
  return prepare_unpool(program, node, false);
}

static bool prepare_max_unpool_grad(struct backend_program *program, const struct node *node) {
  return prepare_unpool(program, node, true);
}

const struct cuda_kernel cuda_kernel_max_unpool = {.op = "MaxUnpool", .prepare = prepare_max_unpool};
const struct cuda_kernel cuda_kernel_max_unpool_grad = {.op = "MaxUnpoolGrad",
                                                        .prepare = prepare_max_unpool_grad};
