/* A program in the terms of the planners, which know what bytes steps read and write. */
#include <stdlib.h>

#include "worker/backend/cpu/cpu.h"

/* In the time that it takes to move one byte, a core does so many multiplications and additions. */
static const double OPERATIONS_PER_BYTE = 8;

static bool is_made_by(const struct backend_program *program, const struct cpu_arg *arg,
                       const struct node *node) {
  int value = program->buffers[arg->buffer].value;
  return arg->is_written && value >= 0 && program->graph->values[value].producer == node->index;
}

/* In bytes moved. A node's reorders are steps, too: they only move. */
static double step_cost(const struct backend_program *program, const struct cpu_step *step) {
  const struct node *node = step->node;
  double bytes = 0;
  bool is_main = false;
  for (int a = 0; a < step->n_args; a++) {
    if (step->args[a].buffer < 0)
      continue;
    bytes += (double)program->buffers[step->args[a].buffer].size_bytes;
    is_main |= is_made_by(program, &step->args[a], node);
  }
  if (is_main && node->op->multiply_adds)
    bytes += 2 * node->op->multiply_adds(program->graph, node) / OPERATIONS_PER_BYTE;
  return bytes;
}

/* What belongs to no node calls out, and what writes PLACE_KEPT bytes knows of earlier executions. */
static void step_outline(const struct backend_program *program, const struct cpu_step *step,
                         struct replay_step *out) {
  struct replay_use *uses = mem_new(((size_t)step->n_args + 1) * sizeof *uses);
  *out = (struct replay_step){.uses = uses, .is_once = !step->node};
  for (int a = 0; a < step->n_args; a++) {
    const struct cpu_arg *arg = &step->args[a];
    if (arg->buffer < 0)
      continue;
    int root = program->buffers[arg->buffer].root;
    uses[out->n_uses++] = (struct replay_use){root, arg->is_written};
    out->is_once |= arg->is_written && program->buffers[root].place != PLACE_PLANNED;
  }
  if (step->node)
    out->cost = step_cost(program, step);
}

static struct replay_root root_outline(const struct backend_program *program, int b) {
  const struct cpu_buffer *buffer = &program->buffers[b];
  struct replay_root root = {.is_planned = buffer->place == PLACE_PLANNED};
  if (buffer->root == b && buffer->place != PLACE_HOST && buffer->first >= 0)
    root.size_bytes = buffer->size_bytes ? buffer->size_bytes : 1;
  return root;
}

void cpu_outline_init(struct cpu_outline *outline, const struct backend_program *program) {
  outline->steps = mem_new(((size_t)program->n_steps + 1) * sizeof *outline->steps);
  outline->roots = mem_new(((size_t)program->n_buffers + 1) * sizeof *outline->roots);
  for (int s = 0; s < program->n_steps; s++)
    step_outline(program, program->steps[s], &outline->steps[s]);
  for (int b = 0; b < program->n_buffers; b++)
    outline->roots[b] = root_outline(program, b);
  outline->plain = (struct replay_program){.steps = outline->steps,
                                           .n_steps = program->n_steps,
                                           .n_forward = program->n_forward,
                                           .roots = outline->roots,
                                           .n_roots = program->n_buffers};
}

void cpu_outline_fini(struct cpu_outline *outline) {
  for (int s = 0; s < outline->plain.n_steps; s++)
    free((void *)outline->steps[s].uses);
  free(outline->steps);
  free(outline->roots);
}
