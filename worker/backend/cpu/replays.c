/* Steps that run again: the plan of worker/backend/replay/replay.h put into a program. A replay is a step
   with arguments of its own; it shares primitive and details, which hold nothing from one execution to the
   next. */
#include <stdlib.h>
#include <string.h>

#include "common/machine/memory_available.h"
#include "worker/backend/cpu/cpu.h"

/* The program in the planner's terms, and its plan. */
static int plan_make(const struct backend_program *program, const struct replay_wish *wish,
                     struct replay_plan **plan, struct err *err) {
  struct cpu_outline outline;
  cpu_outline_init(&outline, program);
  int code = replay_plan_new(&outline.plain, wish, plan, err);
  cpu_outline_fini(&outline);
  return code;
}

/* Roots of the plan have the numbers of buffers. */
static void buffers_add(struct backend_program *program, const struct replay_plan *plan) {
  for (int r = program->n_buffers; r < plan->n_roots; r++)
    cpu_root_add(program, plan->origins[r]);
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
    cpu_step_set_roots(program, steps[i], item->roots);
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
