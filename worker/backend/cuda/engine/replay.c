/* Steps that run again (worker/backend/replay/replay.h): the program as the plan says. A replay shares the
   details of its step, and has arguments and scratch of its own. */
#include "worker/backend/replay/replay.h"

#include <stdlib.h>
#include <string.h>

#include "worker/backend/cuda/engine/program.h"

static struct cuda_step *step_again(struct backend_program *program, const struct cuda_step *step) {
  struct cuda_step *again = arena_copy(&program->memory, step, sizeof *step);
  size_t size_bytes = (size_t)step->n_args * sizeof *step->args;
  again->args = mem_new(size_bytes + 1);
  if (size_bytes > 0)
    memcpy(again->args, step->args, size_bytes);
  again->args_capacity = step->n_args;
  again->release = NULL; /* the details are the step's */
  return again;
}

static void steps_apply(struct backend_program *program, const struct replay_plan *plan,
                        const struct cuda_outline *outline) {
  struct cuda_step **steps = mem_new(((size_t)plan->n_items + 1) * sizeof *steps);
  for (int i = 0; i < plan->n_items; i++) {
    struct cuda_step *step = program->steps[plan->items[i].step];
    steps[i] = plan->items[i].is_replay ? step_again(program, step) : step;
  }
  for (int i = 0; i < plan->n_items; i++)
    cuda_step_set_roots(program, outline, steps[i], plan->items[i].roots);
  free(program->steps);
  program->steps = steps;
  program->n_steps = program->steps_capacity = plan->n_items;
  program->n_forward = plan->n_forward;
}

/* Of the roots that are used. */
static void spans_apply(struct backend_program *program, const struct replay_plan *plan,
                        const struct cuda_outline *outline) {
  program->spans = arena_new(&program->memory, ((size_t)plan->n_roots + 1) * sizeof *program->spans);
  program->owners = arena_new(&program->memory, ((size_t)plan->n_roots + 1) * sizeof *program->owners);
  for (int r = 0; r < plan->n_roots; r++) {
    const struct memory_span *span = &plan->spans[r];
    int owner = outline->owners[r];
    if (owner >= 0) {
      program->buffers[owner].first = span->size_bytes > 0 ? span->first : -1;
      program->buffers[owner].last = span->last;
    }
    if (span->size_bytes == 0)
      continue;
    program->owners[program->n_spans] = owner;
    program->spans[program->n_spans++] = *span;
  }
}

/* A delivery is copied while as many segments run as before: replays are in some of them, and none is gone.
 */
static void deliveries_check(const struct backend_program *program) {
  for (int s = 0; s < program->n_steps; s++)
    if (program->steps[s]->kind == CUDA_STEP_DELIVERY) {
      const struct cuda_buffer *root = cuda_root(program, program->steps[s]->args[0].buffer);
      CHECK(root->place == PLACE_KEPT || root->last >= cuda_delivery_until(program, s));
    }
}

static void plan_apply(struct backend_program *program, const struct replay_plan *plan,
                       struct cuda_outline *outline) {
  program->replayed = (struct backend_replayed){plan->unreplayed_bytes, plan->n_items, plan->n_replays};
  for (int r = outline->plain.n_roots; r < plan->n_roots; r++)
    cuda_outline_add_root(outline, program, plan->origins[r]);
  steps_apply(program, plan, outline);
  spans_apply(program, plan, outline);
  if (plan->n_replays > 0) {
    cuda_segments_cut(program);
    deliveries_check(program);
  }
  program->split = (struct split){
      .n_steps = program->n_steps, .n_forward = program->n_forward, .n_contexts = program->n_contexts};
  program->block_bytes = split_plan(&program->split, program->spans, program->n_spans);
}

static int wish_init(const struct backend_program *program, struct replay_wish *wish, struct err *err) {
  const struct backend_options *options = &program->view.options;
  *wish = (struct replay_wish){
      .mode = options->replay, .most_bytes = options->most_bytes, .n_contexts = program->n_contexts};
  if (wish->mode != REPLAY_AUTO || wish->most_bytes > 0)
    return ERR_OK;
  if (cuda_memory_available(&wish->most_bytes, err))
    return err->code;
  wish->most_bytes = wish->most_bytes > options->spare_bytes ? wish->most_bytes - options->spare_bytes : 0;
  return ERR_OK;
}

int cuda_replay_settle(struct backend_program *program, struct err *err) {
  struct replay_plan *plan = NULL;
  struct cuda_outline outline;
  struct replay_wish wish;
  if (wish_init(program, &wish, err))
    return err->code;
  cuda_outline_init(&outline, program);
  if (!replay_plan_new(&outline.plain, &wish, &plan, err))
    plan_apply(program, plan, &outline);
  replay_plan_free(plan);
  cuda_outline_fini(&outline);
  return err->code;
}
