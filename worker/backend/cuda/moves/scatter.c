/* ScatterElements, ScatterND and their gradients; the gradients of Gather, GatherElements and GatherND. */
#include "worker/backend/cuda/moves/scatter.h"

#include <string.h>

#include "worker/backend/cuda/moves/copy.h"
#include "worker/backend/cuda/rows/rows.h"

/* Arguments: the target, the indices, the updates, the data (of a gradient: absent) and scratch. */
enum { ARG_TO, ARG_INDICES, ARG_UPDATES, ARG_DATA, ARG_SORTING };

struct scatter {
  struct cuda_places places;
  enum cuda_scatter how;
};

static int enqueue_scatter(struct backend_program *program, const struct cuda_step *step, cudaStream_t stream,
                           struct err *err) {
  const struct scatter *scatter = step->details;
  const struct cuda_tensor *to = &step->args[ARG_TO].tensor, *data = &step->args[ARG_DATA].tensor;
  struct cuda_places places = scatter->places;
  struct cuda_sorting sorting = cuda_sorting_of(step, ARG_SORTING);
  struct cuda_copy copy = {.element = cuda_element(to->type)};
  const struct cuda_scattering scattering = {.how = scatter->how,
                                             .rows = places.rows,
                                             .run = places.run,
                                             .keys = sorting.keys[0],
                                             .order = sorting.rows[0],
                                             .updates = step->args[ARG_UPDATES].tensor,
                                             .to = *to};
  places.indices = step->args[ARG_INDICES].tensor;
  cuda_copy_dim(&copy, to->elems, 1, 1);
  cuda_copy_settle(&copy);
  if (scatter->how == SCATTER_FIRST)
    cuda_fill_launch(to->data, to->elems, cuda_element(to->type), 0, stream);
  else
    cuda_copy_launch(&copy, data->data, to->data, stream);
  cuda_places_sort_launch(&places, &sorting, cuda_view(program)->fault, stream);
  cuda_scatter_launch(&scattering, stream);
  return cuda_check(step->node, cudaGetLastError(), "start a scatter", err);
}

/* Whether 32 bits count the rows. */
static bool is_countable(const struct cuda_places *places) {
  return places->rows <= INT32_MAX && places->data_rows <= INT32_MAX;
}

/* data and updates are values; data -1: zeros. */
static bool prepare_scatter(struct backend_program *program, const struct node *node, enum cuda_scatter how,
                            int data, int updates) {
  const struct graph *graph = cuda_view(program)->graph;
  const struct value *out = node_output(graph, node, 0);
  struct scatter scatter = {.places = cuda_places_of(graph, node, &out->shape), .how = how};
  if (!is_countable(&scatter.places))
    return false;
  struct cuda_step *step = cuda_step_new(program, node);
  cuda_write(program, step, node->outputs[0], CUDA_ANY_TYPE, CUDA_DENSE);
  cuda_read(program, step, node->inputs[1], CUDA_ANY_TYPE, CUDA_DENSE);
  cuda_read(program, step, updates, CUDA_ANY_TYPE, CUDA_DENSE);
  cuda_read(program, step, data, step->args[ARG_TO].tensor.type, CUDA_DENSE);
  cuda_sorting_add(program, step, scatter.places.rows);
  step->details = arena_copy(cuda_view(program)->memory, &scatter, sizeof scatter);
  step->enqueue = enqueue_scatter;
  cuda_step_end(program, step);
  return true;
}

/* dy, indices -> dx */
static bool prepare_gather_grad(struct backend_program *program, const struct node *node) {
  return prepare_scatter(program, node, SCATTER_FIRST, -1, node->inputs[0]);
}

static enum cuda_scatter reduction_of(const struct node *node) {
  static const char *const names[] = {
      [SCATTER_ADD] = "add", [SCATTER_MUL] = "mul", [SCATTER_MIN] = "min", [SCATTER_MAX] = "max"};
  const char *reduction = node_attr_string(node, "reduction", "none");
  enum cuda_scatter how = SCATTER_ADD;
  while (how < SCATTER_LAST && strcmp(names[how], reduction) != 0)
    how++;
  return how;
}

/* data, indices, updates */
static bool prepare_scatter_updates(struct backend_program *program, const struct node *node) {
  return prepare_scatter(program, node, reduction_of(node), node->inputs[0], node->inputs[2]);
}

/* Of a gradient: arguments. */
struct scatter_grad {
  struct scatter scatter;
  int dy, data, updates, y, indices, d_data, d_updates, sorting;
};

static int enqueue_grad(struct backend_program *program, const struct cuda_step *step, cudaStream_t stream,
                        struct err *err) {
  const struct scatter_grad *own = step->details;
  struct cuda_places places = own->scatter.places;
  struct cuda_sorting sorting = cuda_sorting_of(step, own->sorting);
  struct cuda_scatter_grad grad = {.how = own->scatter.how,
                                   .rows = places.rows,
                                   .run = places.run,
                                   .keys = sorting.keys[0],
                                   .order = sorting.rows[0],
                                   .dy = cuda_arg_tensor(step, own->dy),
                                   .data = cuda_arg_tensor(step, own->data),
                                   .updates = cuda_arg_tensor(step, own->updates),
                                   .y = cuda_arg_tensor(step, own->y),
                                   .d_data = cuda_arg_tensor(step, own->d_data),
                                   .d_updates = cuda_arg_tensor(step, own->d_updates)};
  places.indices = step->args[own->indices].tensor;
  cuda_places_sort_launch(&places, &sorting, cuda_view(program)->fault, stream);
  cuda_scatter_grad_launch(&grad, stream);
  return cuda_check(step->node, cudaGetLastError(), "start the gradient of a scatter", err);
}

/* dy, indices, data, updates, y -> d_data, d_updates. Extremes are found again by comparison, so all are in
   the type of y. */
static bool prepare_scatter_grad(struct backend_program *program, const struct node *node) {
  const struct graph *graph = cuda_view(program)->graph;
  struct scatter_grad own = {
      .scatter = {.places = cuda_places_of(graph, node, &node_input(graph, node, 0)->shape),
                  .how = reduction_of(node)},
      .data = -1,
      .updates = -1,
      .y = -1};
  enum cuda_type type = own.scatter.how == SCATTER_MUL ? CUDA_F32 : CUDA_ANY_TYPE;
  if (!is_countable(&own.scatter.places))
    return false;
  struct cuda_step *step = cuda_step_new(program, node);
  own.dy = cuda_read(program, step, node->inputs[0], CUDA_ANY_TYPE, CUDA_DENSE);
  own.indices = cuda_read(program, step, node->inputs[1], CUDA_ANY_TYPE, CUDA_DENSE);
  if (own.scatter.how != SCATTER_LAST) {
    own.y = cuda_read(program, step, node->inputs[4], CUDA_ANY_TYPE, CUDA_DENSE);
    own.data = cuda_read(program, step, node->inputs[2], step->args[own.y].tensor.type, CUDA_DENSE);
    own.updates = cuda_read(program, step, node->inputs[3], step->args[own.y].tensor.type, CUDA_DENSE);
  }
  own.d_data = cuda_write(program, step, node->outputs[0], type, CUDA_DENSE);
  own.d_updates = cuda_write(program, step, node->outputs[1], type, CUDA_DENSE);
  own.sorting = cuda_sorting_add(program, step, own.scatter.places.rows);
  step->details = arena_copy(cuda_view(program)->memory, &own, sizeof own);
  step->enqueue = enqueue_grad;
  cuda_step_end(program, step);
  return true;
}

const struct cuda_kernel cuda_kernel_gather_elements_grad = {.op = "GatherElementsGrad",
                                                             .prepare = prepare_gather_grad};
const struct cuda_kernel cuda_kernel_gather_grad = {.op = "GatherGrad", .prepare = prepare_gather_grad};
const struct cuda_kernel cuda_kernel_gather_nd_grad = {.op = "GatherNDGrad", .prepare = prepare_gather_grad};
const struct cuda_kernel cuda_kernel_scatter = {.op = "Scatter", .prepare = prepare_scatter_updates};
const struct cuda_kernel cuda_kernel_scatter_elements = {.op = "ScatterElements",
                                                         .prepare = prepare_scatter_updates};
const struct cuda_kernel cuda_kernel_scatter_elements_grad = {.op = "ScatterElementsGrad",
                                                              .prepare = prepare_scatter_grad};
const struct cuda_kernel cuda_kernel_scatter_nd = {.op = "ScatterND", .prepare = prepare_scatter_updates};
const struct cuda_kernel cuda_kernel_scatter_nd_grad = {.op = "ScatterNDGrad",
                                                        .prepare = prepare_scatter_grad};
