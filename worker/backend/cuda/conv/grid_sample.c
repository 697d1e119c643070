/* GridSample and its gradients as steps. */
#include "model/ops/grid_sample.h"

#include "worker/backend/cuda/conv/grid_sample.h"
#include "worker/backend/cuda/rows/rows.h"

struct grid_step {
  struct cuda_grid_sample sample;
  int x, dy, grid, out, weights, sorting;                                     /* arguments; -1: none */
  void (*launch)(const struct cuda_grid_sample *sample, cudaStream_t stream); /* NULL: by sorting */
};

static int enqueue_grid_sample(struct backend_program *program, const struct cuda_step *step,
                               cudaStream_t stream, struct err *err) {
  const struct grid_step *own = step->details;
  struct cuda_grid_sample sample = own->sample;
  (void)program;
  sample.x = cuda_arg_tensor(step, own->x);
  sample.dy = cuda_arg_tensor(step, own->dy);
  sample.out = cuda_arg_tensor(step, own->out);
  sample.grid = cuda_arg_tensor(step, own->grid).data;
  if (own->launch) {
    own->launch(&sample, stream);
  } else {
    struct cuda_sorting sorting = cuda_sorting_of(step, own->sorting);
    sample.weights = cuda_arg_tensor(step, own->weights).data;
    cuda_grid_sample_input_launch(&sample, &sorting, stream);
  }
  return cuda_check(step->node, cudaGetLastError(), "sample a grid", err);
}

/* x and grid: which inputs of the node they are. */
static bool grid_step_init(struct grid_step *own, struct backend_program *program, const struct node *node,
                           int x, int grid) {
  static const enum cuda_grid_mode modes[] = {
      [GRID_LINEAR] = CUDA_GRID_LINEAR, [GRID_NEAREST] = CUDA_GRID_NEAREST, [GRID_CUBIC] = CUDA_GRID_CUBIC};
  static const enum cuda_grid_padding paddings[] = {[GRID_ZEROS] = CUDA_GRID_ZEROS,
                                                    [GRID_BORDER] = CUDA_GRID_BORDER,
                                                    [GRID_REFLECTION] = CUDA_GRID_REFLECTION};
  const struct graph *graph = cuda_view(program)->graph;
  struct grid_sampler s;
  struct err err = ERR_NONE;
  *own = (struct grid_step){.x = -1, .dy = -1, .weights = -1, .sorting = -1};
  if (grid_sampler_init(&s, node, &node_input(graph, node, x)->shape, &node_input(graph, node, grid)->shape,
                        &err))
    return false;
  own->sample.sampler = (struct cuda_grid_sampler){.mode = modes[s.mode],
                                                   .padding = paddings[s.padding],
                                                   .is_aligned = s.is_aligned,
                                                   .dims = s.dims,
                                                   .in = {1, 1, 1},
                                                   .n = s.n,
                                                   .channels = s.channels,
                                                   .in_elems = s.in_elems,
                                                   .out_elems = s.out_elems};
  own->sample.taps = 1;
  for (int d = 0; d < s.dims; d++) {
    own->sample.taps *= s.mode == GRID_NEAREST ? 1 : s.mode == GRID_LINEAR ? 2 : 4;
    own->sample.sampler.in[d] = s.in[d];
  }
  return true;
}

static bool end_step(struct backend_program *program, struct cuda_step *step, const struct grid_step *own) {
  step->details = arena_copy(cuda_view(program)->memory, own, sizeof *own);
  step->enqueue = enqueue_grid_sample;
  cuda_step_end(program, step);
  return true;
}

static bool prepare_forward(struct backend_program *program, const struct node *node) {
  struct grid_step own;
  struct cuda_step *step;
  if (!grid_step_init(&own, program, node, 0, 1))
    return false;
  step = cuda_step_new(program, node);
  own.launch = cuda_grid_sample_launch;
  own.x = cuda_read(program, step, node->inputs[0], CUDA_ANY_TYPE, CUDA_DENSE);
  own.grid = cuda_read(program, step, node->inputs[1], CUDA_F32, CUDA_DENSE);
  own.out = cuda_write(program, step, node->outputs[0], CUDA_ANY_TYPE, CUDA_DENSE);
  return end_step(program, step, &own);
}

/* dy, x, grid -> dgrid */
static bool prepare_grad_grid(struct backend_program *program, const struct node *node) {
  struct grid_step own;
  struct cuda_step *step;
  if (!grid_step_init(&own, program, node, 1, 2))
    return false;
  step = cuda_step_new(program, node);
  own.launch = cuda_grid_sample_grid_launch;
  own.dy = cuda_read(program, step, node->inputs[0], CUDA_ANY_TYPE, CUDA_DENSE);
  own.x = cuda_read(program, step, node->inputs[1], CUDA_ANY_TYPE, CUDA_DENSE);
  own.grid = cuda_read(program, step, node->inputs[2], CUDA_F32, CUDA_DENSE);
  own.out = cuda_write(program, step, node->outputs[0], CUDA_ANY_TYPE, CUDA_DENSE);
  return end_step(program, step, &own);
}

/* dy, x, grid -> dx. False where 32 bits do not count the taps, or the elements that they are of. */
static bool prepare_grad_input(struct backend_program *program, const struct node *node) {
  struct grid_step own;
  const struct cuda_grid_sampler *s = &own.sample.sampler;
  struct cuda_step *step;
  if (!grid_step_init(&own, program, node, 1, 2) || s->out_elems > INT32_MAX / own.sample.taps / s->n ||
      s->in_elems >= INT32_MAX / s->n)
    return false;
  int64_t taps = s->n * s->out_elems * own.sample.taps;
  step = cuda_step_new(program, node);
  own.dy = cuda_read(program, step, node->inputs[0], CUDA_ANY_TYPE, CUDA_DENSE);
  own.grid = cuda_read(program, step, node->inputs[2], CUDA_F32, CUDA_DENSE);
  own.out = cuda_write(program, step, node->outputs[0], CUDA_ANY_TYPE, CUDA_DENSE);
  own.weights = cuda_scratch(program, step, (size_t)taps * sizeof(float));
  own.sorting = cuda_sorting_add(program, step, taps);
  return end_step(program, step, &own);
}

const struct cuda_kernel cuda_kernel_grid_sample = {.op = "GridSample", .prepare = prepare_forward};
const struct cuda_kernel cuda_kernel_grid_sample_grad_grid = {.op = "GridSampleGradGrid",
                                                              .prepare = prepare_grad_grid};
const struct cuda_kernel cuda_kernel_grid_sample_grad_input = {.op = "GridSampleGradInput",
                                                               .prepare = prepare_grad_input};
