/* Gather, GatherElements, GatherND and their gradients, ScatterElements and ScatterND: which rows of the data
   they read and write. */
#include "worker/backend/cuda/places.h"

#include <string.h>

#include "worker/backend/cuda/copy.h"
#include "worker/backend/cuda/cuda.h"

/* The product of dimensions begin to end - 1. */
static int64_t elems_of(const struct shape *shape, int begin, int end) {
  int64_t elems = 1;
  for (int d = begin; d < end; d++)
    elems *= shape->dim[d];
  return elems;
}

static int axis_of(const struct node *node, int rank) {
  int64_t axis = node_attr_int(node, "axis", 0);
  return (int)(axis < 0 ? axis + rank : axis);
}

/* Rows [outer,count] of data [outer,n,run]. */
static struct cuda_places rows_along(const struct node *node, const struct shape *data,
                                     const struct shape *indices) {
  int axis = axis_of(node, data->rank);
  int64_t outer = elems_of(data, 0, axis), n = data->dim[axis], count = shape_elems(indices);
  struct cuda_places places = {.rows = outer * count,
                               .run = elems_of(data, axis + 1, data->rank),
                               .data_rows = outer * n,
                               .rank = 2,
                               .tuple = 1,
                               .dim = {cuda_divisor_of(outer), cuda_divisor_of(count)},
                               .period = cuda_divisor_of(count),
                               .stride = {n, 0},
                               .index_stride = {1},
                               .size = {n}};
  return places;
}

/* An index for each element, along an axis. */
static struct cuda_places elements_along(const struct node *node, const struct shape *data,
                                         const struct shape *indices) {
  int axis = axis_of(node, data->rank);
  struct cuda_places places = {.rows = shape_elems(indices),
                               .run = 1,
                               .data_rows = shape_elems(data),
                               .rank = data->rank,
                               .tuple = 1,
                               .period = cuda_divisor_of(shape_elems(indices)),
                               .index_stride = {elems_of(data, axis + 1, data->rank)},
                               .size = {data->dim[axis]}};
  for (int d = 0; d < data->rank; d++) {
    places.dim[d] = cuda_divisor_of(indices->dim[d]);
    places.stride[d] = d == axis ? 0 : elems_of(data, d + 1, data->rank);
  }
  return places;
}

/* A tuple of indices for each row, behind dimensions that both have in common. */
static struct cuda_places tuples(const struct node *node, const struct shape *data,
                                 const struct shape *indices) {
  int batch_dims = (int)node_attr_int(node, "batch_dims", 0), tuple = (int)indices->dim[indices->rank - 1];
  int64_t batches = elems_of(data, 0, batch_dims), rows = shape_elems(indices) / tuple;
  int end = batch_dims + tuple;
  struct cuda_places places = {.rows = rows,
                               .run = elems_of(data, end, data->rank),
                               .data_rows = elems_of(data, 0, end),
                               .rank = 2,
                               .tuple = tuple,
                               .dim = {cuda_divisor_of(batches), cuda_divisor_of(rows / batches)},
                               .period = cuda_divisor_of(rows),
                               .stride = {elems_of(data, batch_dims, end), 0}};
  for (int k = 0; k < tuple; k++) {
    places.index_stride[k] = elems_of(data, batch_dims + k + 1, end);
    places.size[k] = data->dim[batch_dims + k];
  }
  return places;
}

/* Of a node whose indices are input 1 and whose data has that shape. */
static struct cuda_places places_of(const struct graph *graph, const struct node *node,
                                    const struct shape *data) {
  const struct shape *indices = &node_input(graph, node, 1)->shape;
  const char *op = node->op->name;
  struct cuda_places places;
  if (strstr(op, "ND"))
    places = tuples(node, data, indices);
  else if (strcmp(op, "Gather") == 0 || strcmp(op, "GatherGrad") == 0)
    places = rows_along(node, data, indices);
  else
    places = elements_along(node, data, indices);
  places.node = node->index;
  return places;
}

/* Gather. */

static int enqueue_gather(struct backend_program *program, const struct cuda_step *step, cudaStream_t stream,
                          struct err *err) {
  struct cuda_places places = *(const struct cuda_places *)step->details;
  const struct cuda_tensor *data = &step->args[0].tensor;
  int64_t run = places.run;
  int element = cuda_element(data->type);
  while (element < COPY_ELEMENT_MAX && run % 2 == 0) {
    element *= 2;
    run /= 2;
  }
  places.indices = step->args[1].tensor;
  cuda_gather_launch(&places, run, element, data->data, step->args[2].tensor.data, cuda_view(program)->fault,
                     stream);
  return cuda_check(step->node, cudaGetLastError(), "start a gather", err);
}

static bool prepare_gather(struct backend_program *program, const struct node *node) {
  const struct graph *graph = cuda_view(program)->graph;
  struct cuda_places *places = arena_new(cuda_view(program)->memory, sizeof *places);
  struct cuda_step *step = cuda_step_new(program, node);
  *places = places_of(graph, node, &node_input(graph, node, 0)->shape);
  cuda_read(program, step, node->inputs[0], CUDA_ANY_TYPE, CUDA_DENSE);
  cuda_read(program, step, node->inputs[1], CUDA_ANY_TYPE, CUDA_DENSE);
  cuda_write(program, step, node->outputs[0], step->args[0].tensor.type, CUDA_DENSE);
  step->details = places;
  step->enqueue = enqueue_gather;
  cuda_step_end(program, step);
  return true;
}

/* Scatter. Arguments: the target, the indices, the updates, the data (of a gradient: absent) and scratch. */
enum {
  ARG_TO,
  ARG_INDICES,
  ARG_UPDATES,
  ARG_DATA,
  ARG_KEYS,
  ARG_ROWS = ARG_KEYS + 2,
  ARG_COUNTS = ARG_ROWS + 2
};

struct scatter {
  struct cuda_places places;
  enum cuda_scatter how;
};

static int enqueue_scatter(struct backend_program *program, const struct cuda_step *step, cudaStream_t stream,
                           struct err *err) {
  const struct scatter *scatter = step->details;
  const struct cuda_tensor *to = &step->args[ARG_TO].tensor, *data = &step->args[ARG_DATA].tensor;
  struct cuda_places places = scatter->places;
  struct cuda_sorting sorting = {.counts = step->args[ARG_COUNTS].tensor.data};
  struct cuda_copy copy = {.element = cuda_element(to->type)};
  for (int i = 0; i < 2; i++) {
    sorting.keys[i] = step->args[ARG_KEYS + i].tensor.data;
    sorting.rows[i] = step->args[ARG_ROWS + i].tensor.data;
  }
  places.indices = step->args[ARG_INDICES].tensor;
  cuda_copy_dim(&copy, to->elems, 1, 1);
  cuda_copy_settle(&copy);
  if (scatter->how == SCATTER_FIRST)
    cuda_fill_launch(to->data, to->elems, cuda_element(to->type), 0, stream);
  else
    cuda_copy_launch(&copy, data->data, to->data, stream);
  cuda_sort_launch(&places, &sorting, cuda_view(program)->fault, stream);
  cuda_scatter_launch(&places, &sorting, scatter->how, &step->args[ARG_UPDATES].tensor, to, stream);
  return cuda_check(step->node, cudaGetLastError(), "start a scatter", err);
}

/* data and updates are values; data -1: zeros. False where 32 bits do not count the rows. */
static bool prepare_scatter(struct backend_program *program, const struct node *node, enum cuda_scatter how,
                            int data, int updates) {
  const struct graph *graph = cuda_view(program)->graph;
  const struct value *out = node_output(graph, node, 0);
  struct scatter scatter = {places_of(graph, node, &out->shape), how};
  int64_t rows = scatter.places.rows, blocks = cuda_sort_blocks(rows);
  if (out->dtype != DTYPE_F32 || rows > INT32_MAX || scatter.places.data_rows > INT32_MAX)
    return false;
  struct cuda_step *step = cuda_step_new(program, node);
  cuda_write(program, step, node->outputs[0], CUDA_ANY_TYPE, CUDA_DENSE);
  cuda_read(program, step, node->inputs[1], CUDA_ANY_TYPE, CUDA_DENSE);
  cuda_read(program, step, updates, CUDA_ANY_TYPE, CUDA_DENSE);
  cuda_read(program, step, data, step->args[ARG_TO].tensor.type, CUDA_DENSE);
  for (int i = 0; i < 4; i++)
    cuda_scratch(program, step, (size_t)rows * sizeof(uint32_t));
  cuda_scratch(program, step, (size_t)(blocks * SORT_DIGITS) * sizeof(uint32_t));
  step->details = arena_copy(cuda_view(program)->memory, &scatter, sizeof scatter);
  step->enqueue = enqueue_scatter;
  cuda_step_end(program, step);
  return true;
}

/* dy, indices -> dx */
static bool prepare_gather_grad(struct backend_program *program, const struct node *node) {
  return prepare_scatter(program, node, SCATTER_FIRST, -1, node->inputs[0]);
}

/* data, indices, updates */
static bool prepare_scatter_updates(struct backend_program *program, const struct node *node) {
  static const char *const names[] = {
      [SCATTER_ADD] = "add", [SCATTER_MUL] = "mul", [SCATTER_MIN] = "min", [SCATTER_MAX] = "max"};
  const char *reduction = node_attr_string(node, "reduction", "none");
  enum cuda_scatter how = SCATTER_ADD;
  while (how < SCATTER_LAST && strcmp(names[how], reduction) != 0)
    how++;
  return prepare_scatter(program, node, how, node->inputs[0], node->inputs[2]);
}

const struct cuda_kernel cuda_kernel_gather = {"Gather", prepare_gather, false};
const struct cuda_kernel cuda_kernel_gather_elements = {"GatherElements", prepare_gather, false};
const struct cuda_kernel cuda_kernel_gather_elements_grad = {"GatherElementsGrad", prepare_gather_grad,
                                                             false};
const struct cuda_kernel cuda_kernel_gather_grad = {"GatherGrad", prepare_gather_grad, false};
const struct cuda_kernel cuda_kernel_gather_nd = {"GatherND", prepare_gather, false};
const struct cuda_kernel cuda_kernel_gather_nd_grad = {"GatherNDGrad", prepare_gather_grad, false};
const struct cuda_kernel cuda_kernel_scatter = {"Scatter", prepare_scatter_updates, false};
const struct cuda_kernel cuda_kernel_scatter_elements = {"ScatterElements", prepare_scatter_updates, false};
const struct cuda_kernel cuda_kernel_scatter_nd = {"ScatterND", prepare_scatter_updates, false};
