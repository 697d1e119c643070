/* Trilu, ReverseSequence, OneHot, CumSum and the gradient of Tile. */
#include "worker/backend/cuda/moves/arrange.h"

#include "worker/backend/cuda/engine/cuda.h"

/* Appends the step with a copy of `details`. */
static bool arrange_end(struct backend_program *program, struct cuda_step *step, const void *details,
                        size_t size,
                        int (*enqueue)(struct backend_program *program, const struct cuda_step *step,
                                       cudaStream_t stream, struct err *err)) {
  step->details = arena_copy(cuda_view(program)->memory, details, size);
  step->enqueue = enqueue;
  cuda_step_end(program, step);
  return true;
}

/* The product of dimensions begin to end - 1. */
static int64_t elems_of(const struct cuda_tensor *tensor, int begin, int behind) {
  int64_t elems = 1;
  for (int d = begin; d < behind; d++)
    elems *= tensor->dim[d];
  return elems;
}

static int enqueue_triangle(struct backend_program *program, const struct cuda_step *step,
                            cudaStream_t stream, struct err *err) {
  struct cuda_triangle triangle = *(const struct cuda_triangle *)step->details;
  (void)program;
  triangle.x = step->args[0].tensor;
  triangle.k = step->args[1].tensor.data;
  triangle.y = step->args[2].tensor;
  cuda_triangle_launch(&triangle, stream);
  return cuda_check(step->node, cudaGetLastError(), "start cutting triangles", err);
}

static bool prepare_trilu(struct backend_program *program, const struct node *node) {
  struct cuda_step *step = cuda_step_new(program, node);
  cuda_read(program, step, node->inputs[0], CUDA_ANY_TYPE, CUDA_DENSE);
  cuda_read(program, step, node->n_inputs > 1 ? node->inputs[1] : -1, CUDA_ANY_TYPE, CUDA_DENSE);
  cuda_write(program, step, node->outputs[0], step->args[0].tensor.type, CUDA_DENSE);
  const struct cuda_tensor *x = &step->args[0].tensor;
  struct cuda_triangle triangle = {.rows = cuda_divisor_of(x->dim[x->rank - 2]),
                                   .cols = cuda_divisor_of(x->dim[x->rank - 1]),
                                   .is_upper = node_attr_int(node, "upper", 1) != 0};
  return arrange_end(program, step, &triangle, sizeof triangle, enqueue_triangle);
}

static int enqueue_reversal(struct backend_program *program, const struct cuda_step *step,
                            cudaStream_t stream, struct err *err) {
  struct cuda_reversal reversal = *(const struct cuda_reversal *)step->details;
  reversal.x = step->args[0].tensor;
  reversal.lengths = step->args[1].tensor.data;
  reversal.y = step->args[2].tensor;
  reversal.fault = cuda_view(program)->fault;
  cuda_reversal_launch(&reversal, stream);
  return cuda_check(step->node, cudaGetLastError(), "start reversing sequences", err);
}

static bool prepare_reverse_sequence(struct backend_program *program, const struct node *node) {
  int time = node_attr_int(node, "time_axis", 0) != 0;
  struct cuda_step *step = cuda_step_new(program, node);
  cuda_read(program, step, node->inputs[0], CUDA_ANY_TYPE, CUDA_DENSE);
  cuda_read(program, step, node->inputs[1], CUDA_ANY_TYPE, CUDA_DENSE);
  cuda_write(program, step, node->outputs[0], step->args[0].tensor.type, CUDA_DENSE);
  const struct cuda_tensor *x = &step->args[0].tensor;
  struct cuda_reversal reversal = {.batch = cuda_divisor_of(x->dim[!time]),
                                   .steps = cuda_divisor_of(x->dim[time]),
                                   .inner = cuda_divisor_of(elems_of(x, 2, x->rank)),
                                   .is_time_first = time == 0,
                                   .node = node->index};
  return arrange_end(program, step, &reversal, sizeof reversal, enqueue_reversal);
}

static int enqueue_one_hot(struct backend_program *program, const struct cuda_step *step, cudaStream_t stream,
                           struct err *err) {
  struct cuda_one_hot one_hot = *(const struct cuda_one_hot *)step->details;
  (void)program;
  one_hot.indices = step->args[0].tensor;
  one_hot.values = step->args[1].tensor;
  one_hot.y = step->args[2].tensor;
  cuda_one_hot_launch(&one_hot, stream);
  return cuda_check(step->node, cudaGetLastError(), "start one-hot rows", err);
}

/* indices, depth, values */
static bool prepare_one_hot(struct backend_program *program, const struct node *node) {
  struct cuda_step *step = cuda_step_new(program, node);
  cuda_read(program, step, node->inputs[0], CUDA_ANY_TYPE, CUDA_DENSE);
  cuda_read(program, step, node->inputs[2], CUDA_ANY_TYPE, CUDA_DENSE);
  cuda_write(program, step, node->outputs[0], step->args[1].tensor.type, CUDA_DENSE);
  const struct cuda_tensor *y = &step->args[2].tensor;
  int64_t axis = node_attr_int(node, "axis", -1);
  axis = axis < 0 ? axis + y->rank : axis;
  struct cuda_one_hot one_hot = {.depth = cuda_divisor_of(y->dim[axis]),
                                 .inner = cuda_divisor_of(elems_of(y, (int)axis + 1, y->rank))};
  return arrange_end(program, step, &one_hot, sizeof one_hot, enqueue_one_hot);
}

static int enqueue_running_sum(struct backend_program *program, const struct cuda_step *step,
                               cudaStream_t stream, struct err *err) {
  struct cuda_running_sum sum = *(const struct cuda_running_sum *)step->details;
  (void)program;
  sum.x = step->args[0].tensor;
  sum.y = step->args[1].tensor;
  cuda_running_sum_launch(&sum, stream);
  return cuda_check(step->node, cudaGetLastError(), "start running sums", err);
}

/* The axis is a tensor, which must be known here. */
static bool prepare_cum_sum(struct backend_program *program, const struct node *node) {
  const struct graph *graph = cuda_view(program)->graph;
  const struct value *x = node_input(graph, node, 0), *of = node_input(graph, node, 1);
  int64_t axis;
  if (of->kind != VALUE_CONSTANT)
    return false;
  axis = of->dtype == DTYPE_I32 ? *(const int32_t *)of->data : *(const int64_t *)of->data;
  if (axis < -x->shape.rank || axis >= x->shape.rank)
    return false;
  axis = axis < 0 ? axis + x->shape.rank : axis;
  struct cuda_step *step = cuda_step_new(program, node);
  cuda_read(program, step, node->inputs[0], CUDA_ANY_TYPE, CUDA_DENSE);
  cuda_write(program, step, node->outputs[0], CUDA_ANY_TYPE, CUDA_DENSE);
  const struct cuda_tensor *tensor = &step->args[0].tensor;
  struct cuda_running_sum sum = {.rows = tensor->elems / tensor->dim[axis],
                                 .n = tensor->dim[axis],
                                 .inner = cuda_divisor_of(elems_of(tensor, (int)axis + 1, tensor->rank)),
                                 .is_reverse = node_attr_int(node, "reverse", 0) != 0,
                                 .is_exclusive = node_attr_int(node, "exclusive", 0) != 0};
  return arrange_end(program, step, &sum, sizeof sum, enqueue_running_sum);
}

static int enqueue_tile_sum(struct backend_program *program, const struct cuda_step *step,
                            cudaStream_t stream, struct err *err) {
  struct cuda_tile_sum sum = *(const struct cuda_tile_sum *)step->details;
  (void)program;
  sum.dy = step->args[0].tensor;
  sum.dx = step->args[1].tensor;
  cuda_tile_sum_launch(&sum, stream);
  return cuda_check(step->node, cudaGetLastError(), "start sums of repeats", err);
}

static bool prepare_tile_grad(struct backend_program *program, const struct node *node) {
  struct cuda_step *step = cuda_step_new(program, node);
  cuda_read(program, step, node->inputs[0], CUDA_ANY_TYPE, CUDA_DENSE);
  cuda_write(program, step, node->outputs[0], CUDA_ANY_TYPE, CUDA_DENSE);
  const struct cuda_tensor *dy = &step->args[0].tensor, *dx = &step->args[1].tensor;
  struct cuda_tile_sum sum = {.repeats = dy->elems / dx->elems};
  for (int d = 0; d < dx->rank; d++) {
    sum.dim[d] = cuda_divisor_of(dx->dim[d]);
    sum.repeat[d] = cuda_divisor_of(dy->dim[d] / dx->dim[d]);
    sum.stride[d] = elems_of(dy, d + 1, dy->rank);
  }
  return arrange_end(program, step, &sum, sizeof sum, enqueue_tile_sum);
}

const struct cuda_kernel cuda_kernel_cum_sum = {.op = "CumSum", .prepare = prepare_cum_sum};
const struct cuda_kernel cuda_kernel_one_hot = {.op = "OneHot", .prepare = prepare_one_hot};
const struct cuda_kernel cuda_kernel_reverse_sequence = {.op = "ReverseSequence",
                                                         .prepare = prepare_reverse_sequence};
const struct cuda_kernel cuda_kernel_tile_grad = {.op = "TileGrad", .prepare = prepare_tile_grad};
const struct cuda_kernel cuda_kernel_trilu = {.op = "Trilu", .prepare = prepare_trilu};
