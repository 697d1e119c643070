/* The program in the terms of planners, which know what bytes steps read and write, and what a step costs. */
#include <stdlib.h>

#include "worker/backend/cuda/engine/program.h"

/* Root 0 of the planners': all weights, side by side. */
enum { ROOT_WEIGHTS };

/* Roughly as many bytes as a GPU moves in the time: what a step reads and writes, its arithmetic, its launch.
   A conversion for a node only moves. */
static double step_cost(const struct backend_program *program, const struct cuda_step *step) {
  static const double multiply_adds_a_byte[] = {
      [PRECISION_F32] = 8, [PRECISION_TF32] = 50, [PRECISION_BF16] = 100};
  static const double launch_bytes = 4e6;
  double bytes = launch_bytes, multiply_adds = 0;
  for (int a = 0; a < step->n_args; a++)
    if (step->args[a].buffer >= 0)
      bytes += (double)program->buffers[step->args[a].buffer].size_bytes;
  if (step->node && step->node->op->multiply_adds && !step->is_conversion)
    multiply_adds = step->node->op->multiply_adds(program->graph, step->node);
  return bytes + multiply_adds / multiply_adds_a_byte[program->view.options.precision];
}

static void owner_add(struct cuda_outline *outline, int buffer) {
  array_reserve((void **)&outline->owners, &outline->owners_capacity, outline->n_owners,
                sizeof *outline->owners);
  outline->owners[outline->n_owners++] = buffer;
}

/* The number of the root; -1: it is not used. */
static int root_add(struct cuda_outline *outline, const struct backend_program *program, int buffer) {
  const struct cuda_buffer *root = &program->buffers[buffer];
  int number = outline->n_owners;
  if (root->root != buffer || !root->is_used)
    return -1;
  if (cuda_is_weight(program, buffer))
    return ROOT_WEIGHTS;
  owner_add(outline, buffer);
  outline->roots[number] = (struct replay_root){.size_bytes = cuda_allocated_bytes(root->size_bytes),
                                                .is_planned = root->place == PLACE_PLANNED};
  return number;
}

/* numbers: of buffers that are roots. *next: where its uses begin. */
static void step_outline(struct cuda_outline *outline, const struct backend_program *program, int s,
                         const int *numbers, struct replay_use **next) {
  const struct cuda_step *step = program->steps[s];
  struct replay_step *out = &outline->steps[s];
  *out = (struct replay_step){
      .uses = *next, .is_once = step->kind != CUDA_STEP_DEVICE, .cost = step_cost(program, step)};
  if (step->kind == CUDA_STEP_DELIVERY)
    out->until = cuda_delivery_until(program, s);
  for (int a = 0; a < step->n_args; a++) {
    const struct cuda_arg *arg = &step->args[a];
    if (arg->buffer >= 0)
      (*next)[out->n_uses++] =
          (struct replay_use){numbers[program->buffers[arg->buffer].root], arg->is_written};
  }
  *next += out->n_uses;
}

void cuda_outline_init(struct cuda_outline *outline, const struct backend_program *program) {
  size_t n_args = 0, n_buffers = (size_t)program->n_buffers;
  int *numbers = mem_new((n_buffers + 1) * sizeof *numbers);
  for (int s = 0; s < program->n_steps; s++)
    n_args += (size_t)program->steps[s]->n_args;
  *outline = (struct cuda_outline){.steps = mem_new(((size_t)program->n_steps + 1) * sizeof *outline->steps),
                                   .uses = mem_new((n_args + 1) * sizeof *outline->uses),
                                   .roots = mem_new((n_buffers + 1) * sizeof *outline->roots)};
  outline->roots[ROOT_WEIGHTS] = (struct replay_root){.size_bytes = cuda_weights_lay_out(program, NULL)};
  owner_add(outline, -1);
  for (int b = 0; b < program->n_buffers; b++)
    numbers[b] = root_add(outline, program, b);
  struct replay_use *next = outline->uses;
  for (int s = 0; s < program->n_steps; s++)
    step_outline(outline, program, s, numbers, &next);
  outline->plain = (struct replay_program){.steps = outline->steps,
                                           .n_steps = program->n_steps,
                                           .n_forward = program->n_forward,
                                           .roots = outline->roots,
                                           .n_roots = outline->n_owners};
  free(numbers);
}

void cuda_outline_fini(struct cuda_outline *outline) {
  free(outline->steps);
  free(outline->uses);
  free(outline->roots);
  free(outline->owners);
}

void cuda_outline_add_root(struct cuda_outline *outline, struct backend_program *program, int origin) {
  owner_add(outline, cuda_buffer_again(program, outline->owners[origin]));
}

void cuda_step_set_roots(struct backend_program *program, const struct cuda_outline *outline,
                         struct cuda_step *step, const int *roots) {
  for (int a = 0; a < step->n_args; a++) {
    int *buffer = &step->args[a].buffer;
    if (*buffer < 0)
      continue;
    int owner = outline->owners[*roots++];
    if (owner >= 0 && program->buffers[*buffer].root != owner)
      *buffer = owner;
  }
}
