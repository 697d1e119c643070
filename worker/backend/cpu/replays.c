/* Steps that run again: the plan of worker/backend/replay/replay.h put into a program. A replay is a step
   with arguments of its own; it shares primitive and details, which hold nothing from one execution to the
   next. */
#include <stdlib.h>
#include <string.h>

#include "common/base/memory_available.h"
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
static void step_describe(const struct backend_program *program, const struct cpu_step *step,
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

static struct replay_root root_describe(const struct backend_program *program, int b) {
  const struct cpu_buffer *buffer = &program->buffers[b];
  struct replay_root root = {.is_planned = buffer->place == PLACE_PLANNED};
  if (buffer->root == b && buffer->place != PLACE_HOST && buffer->first >= 0)
    root.size_bytes = buffer->size_bytes ? buffer->size_bytes : 1;
  return root;
}

/* The program in the planner's terms, and its plan. */
static int plan_make(const struct backend_program *program, const struct replay_wish *wish,
                     struct replay_plan **plan, struct err *err) {
  struct replay_step *steps = mem_new(((size_t)program->n_steps + 1) * sizeof *steps);
  struct replay_root *roots = mem_new(((size_t)program->n_buffers + 1) * sizeof *roots);
  for (int s = 0; s < program->n_steps; s++)
    step_describe(program, program->steps[s], &steps[s]);
  for (int b = 0; b < program->n_buffers; b++)
    roots[b] = root_describe(program, b);
  int code = replay_plan_new(&(struct replay_program){.steps = steps,
                                                      .n_steps = program->n_steps,
                                                      .n_forward = program->n_forward,
                                                      .roots = roots,
                                                      .n_roots = program->n_buffers},
                             wish, plan, err);
  for (int s = 0; s < program->n_steps; s++)
    free((void *)steps[s].uses);
  free(steps);
  free(roots);
  return code;
}

/* Roots of the plan have the numbers of buffers. */
static void buffers_add(struct backend_program *program, const struct replay_plan *plan) {
  for (int r = program->n_buffers; r < plan->n_roots; r++) {
    array_reserve((void **)&program->buffers, &program->buffers_capacity, r, sizeof program->buffers[0]);
    program->buffers[r] = program->buffers[plan->origins[r]];
    program->buffers[r].root = r;
    program->buffers[r].next = -1;
    program->n_buffers++;
  }
  for (int r = 0; r < plan->n_roots; r++) {
    struct cpu_buffer *root = &program->buffers[r];
    if (root->place != PLACE_PLANNED || plan->spans[r].size_bytes == 0)
      continue;
    root->first = plan->spans[r].first;
    root->last = plan->spans[r].last;
  }
}

static struct cpu_step *step_again(struct backend_program *program, const struct cpu_step *step) {
  struct cpu_step *again = arena_copy(&program->memory, step, sizeof *step);
  again->is_replay = true;
  again->args = mem_new(((size_t)step->n_args + 1) * sizeof *again->args);
  memcpy(again->args, step->args, (size_t)step->n_args * sizeof *again->args);
  return again;
}

static void step_set_roots(const struct backend_program *program, struct cpu_step *step, const int *roots) {
  for (int a = 0; a < step->n_args; a++) {
    struct cpu_arg *arg = &step->args[a];
    if (arg->buffer < 0)
      continue;
    if (program->buffers[arg->buffer].root != *roots)
      arg->buffer = *roots;
    roots++;
  }
}

static void plan_apply(struct backend_program *program, const struct replay_plan *plan) {
  struct cpu_step **steps = mem_new(((size_t)plan->n_items + 1) * sizeof *steps);
  buffers_add(program, plan);
  for (int i = 0; i < plan->n_items; i++) { /* replays first: they copy the arguments as they were */
    const struct replay_item *item = &plan->items[i];
    if (item->is_replay)
      steps[i] = step_again(program, program->steps[item->step]);
  }
  for (int i = 0; i < plan->n_items; i++) {
    const struct replay_item *item = &plan->items[i];
    if (!item->is_replay)
      steps[i] = program->steps[item->step];
    step_set_roots(program, steps[i], item->roots);
  }
  free(program->steps);
  program->steps = steps;
  program->n_steps = program->steps_capacity = plan->n_items;
}

int cpu_replay(struct backend_program *program, const struct backend_options *options, struct err *err) {
  struct replay_wish wish = {options->replay, options->most_bytes, program->n_contexts};
  struct replay_plan *plan;
  program->replayed.n_steps = program->n_steps;
  if (wish.mode == REPLAY_NONE)
    return ERR_OK;
  if (wish.mode == REPLAY_AUTO && wish.most_bytes == 0) {
    uint64_t available = memory_available_bytes("");
    wish.most_bytes = available < SIZE_MAX ? (size_t)available : SIZE_MAX;
  }
  if (plan_make(program, &wish, &plan, err))
    return err->code;
  if (plan->n_replays > 0)
    plan_apply(program, plan);
  program->replayed = (struct backend_replayed){plan->unreplayed_bytes, plan->n_items, plan->n_replays};
  replay_plan_free(plan);
  return ERR_OK;
}
