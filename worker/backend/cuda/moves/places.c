/* Gather, GatherElements and GatherND; and which rows of the data they, their gradients and scatters read and
   write. */
#include "worker/backend/cuda/moves/places.h"

#include <string.h>

#include "worker/backend/cuda/moves/copy.h"

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
static struct cuda_places places_of_tuples(const struct node *node, const struct shape *data,
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

struct cuda_places cuda_places_of(const struct graph *graph, const struct node *node,
                                  const struct shape *data) {
  const struct shape *indices = &node_input(graph, node, 1)->shape;
  const char *op = node->op->name;
  struct cuda_places places;
  if (strstr(op, "ND"))
    places = places_of_tuples(node, data, indices);
  else if (strcmp(op, "Gather") == 0 || strcmp(op, "GatherGrad") == 0)
    places = rows_along(node, data, indices);
  else
    places = elements_along(node, data, indices);
  places.node = node->index;
  return places;
}

void cuda_gather_enqueue(const struct backend_program *program, const struct cuda_places *places,
                         const struct cuda_tensor *data, const struct cuda_tensor *to, cudaStream_t stream) {
  struct cuda_gather gather = {.data = data->data,
                               .out = to->data,
                               .run = places->run,
                               .element = cuda_element(data->type),
                               .fault = cuda_view(program)->fault};
  while (gather.element < COPY_ELEMENT_MAX && gather.run % 2 == 0) {
    gather.element *= 2;
    gather.run /= 2;
  }
  cuda_gather_launch(places, &gather, stream);
}

static int enqueue_gather(struct backend_program *program, const struct cuda_step *step, cudaStream_t stream,
                          struct err *err) {
  struct cuda_places places = *(const struct cuda_places *)step->details;
  places.indices = step->args[1].tensor;
  cuda_gather_enqueue(program, &places, &step->args[0].tensor, &step->args[2].tensor, stream);
  return cuda_check(step->node, cudaGetLastError(), "start a gather", err);
}

static bool prepare_gather(struct backend_program *program, const struct node *node) {
  const struct graph *graph = cuda_view(program)->graph;
  struct cuda_places *places = arena_new(cuda_view(program)->memory, sizeof *places);
  struct cuda_step *step = cuda_step_new(program, node);
  *places = cuda_places_of(graph, node, &node_input(graph, node, 0)->shape);
  cuda_read(program, step, node->inputs[0], CUDA_ANY_TYPE, CUDA_DENSE);
  cuda_read(program, step, node->inputs[1], CUDA_ANY_TYPE, CUDA_DENSE);
  cuda_write(program, step, node->outputs[0], step->args[0].tensor.type, CUDA_DENSE);
  step->details = places;
  step->enqueue = enqueue_gather;
  cuda_step_end(program, step);
  return true;
}

const struct cuda_kernel cuda_kernel_gather = {.op = "Gather", .prepare = prepare_gather};
const struct cuda_kernel cuda_kernel_gather_elements = {.op = "GatherElements", .prepare = prepare_gather};
const struct cuda_kernel cuda_kernel_gather_nd = {.op = "GatherND", .prepare = prepare_gather};
