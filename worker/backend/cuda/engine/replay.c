/* Steps that run again (worker/backend/replay/replay.h): the program as the planner sees it, and the program
   as the plan says. A replay shares the details of its step, and has arguments and scratch of its own. */
#include "worker/backend/replay/replay.h"

#include <stdlib.h>
#include <string.h>

#include "worker/backend/cuda/engine/program.h"

/* Root 0 of the planner's: all weights, side by side. */
enum { ROOT_WEIGHTS };

/* The program as the planner sees it; the arrays are freed by the caller. */
struct replay_view {
  struct backend_program *program;
  struct replay_program plain;
  struct replay_step *steps;
  struct replay_use *uses; /* of all steps */
  struct replay_root *roots;
  int *numbers; /* [n_buffers] of a root: its number to the planner; -1: it is not used */
};

static void root_number(struct replay_view *view, int buffer) {
  const struct cuda_buffer *root = &view->program->buffers[buffer];
  int number = view->plain.n_roots;
  view->numbers[buffer] = -1;
  if (root->root != buffer || (root->place == PLACE_PLANNED && root->first < 0))
    return;
  if (cuda_is_weight(view->program, buffer)) {
    view->numbers[buffer] = ROOT_WEIGHTS;
    return;
  }
  view->numbers[buffer] = number;
  view->program->owners[number] = buffer;
  view->roots[number] = (struct replay_root){.size_bytes = cuda_allocated_bytes(root->size_bytes),
                                             .is_planned = root->place == PLACE_PLANNED};
  view->plain.n_roots++;
}

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
  if (step->node && step->node->op->multiply_adds && step->enqueue != cuda_convert_enqueue)
    multiply_adds = step->node->op->multiply_adds(program->graph, step->node);
  return bytes + multiply_adds / multiply_adds_a_byte[program->view.options.precision];
}

static void step_view(struct replay_view *view, int s, struct replay_use **next) {
  const struct cuda_step *step = view->program->steps[s];
  struct replay_step *out = &view->steps[s];
  *out = (struct replay_step){
      .uses = *next, .is_once = step->kind != CUDA_STEP_DEVICE, .cost = step_cost(view->program, step)};
  if (step->kind == CUDA_STEP_DELIVERY)
    out->until = cuda_delivery_until(view->program, s);
  for (int a = 0; a < step->n_args; a++) {
    const struct cuda_arg *arg = &step->args[a];
    if (arg->buffer >= 0)
      (*next)[out->n_uses++] =
          (struct replay_use){view->numbers[view->program->buffers[arg->buffer].root], arg->is_written};
  }
  *next += out->n_uses;
}

/* The first step of the backward part. A chain that has nodes of both parts is of the backward one. */
static int count_forward(const struct backend_program *program) {
  const struct graph *graph = program->graph;
  int first = 0, s = 0;
  while (first < graph->n_nodes && graph->nodes[first]->forward < 0)
    first++;
  while (s < program->n_steps && (!program->steps[s]->node || program->steps[s]->node->index < first))
    s++;
  return s;
}

static void view_init(struct replay_view *view, struct backend_program *program) {
  size_t n_args = 0, n_buffers = (size_t)program->n_buffers;
  for (int s = 0; s < program->n_steps; s++)
    n_args += (size_t)program->steps[s]->n_args;
  *view = (struct replay_view){.program = program,
                               .steps = mem_new(((size_t)program->n_steps + 1) * sizeof *view->steps),
                               .uses = mem_new((n_args + 1) * sizeof *view->uses),
                               .roots = mem_new((n_buffers + 1) * sizeof *view->roots),
                               .numbers = mem_new((n_buffers + 1) * sizeof *view->numbers)};
  program->owners = arena_new(&program->memory, (n_buffers + 1) * sizeof *program->owners);
  program->owners[ROOT_WEIGHTS] = -1;
  view->roots[ROOT_WEIGHTS] = (struct replay_root){.size_bytes = cuda_weights_lay_out(program, NULL)};
  view->plain.n_roots = ROOT_WEIGHTS + 1;
  for (int b = 0; b < program->n_buffers; b++)
    root_number(view, b);
  struct replay_use *next = view->uses;
  for (int s = 0; s < program->n_steps; s++)
    step_view(view, s, &next);
  view->plain.steps = view->steps;
  view->plain.n_steps = program->n_steps;
  view->plain.n_forward = count_forward(program);
  view->plain.roots = view->roots;
}

static void view_fini(struct replay_view *view) {
  free(view->steps);
  free(view->uses);
  free(view->roots);
  free(view->numbers);
}

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

/* Buffers for the roots that the plan has more than the program. */
static void roots_add(struct backend_program *program, const struct replay_plan *plan, int n_roots) {
  int *owners = arena_new(&program->memory, ((size_t)plan->n_roots + 1) * sizeof *owners);
  memcpy(owners, program->owners, (size_t)n_roots * sizeof *owners);
  program->owners = owners;
  for (int r = n_roots; r < plan->n_roots; r++)
    owners[r] = cuda_buffer_again(program, owners[plan->origins[r]]);
}

static void step_rebind(struct backend_program *program, struct cuda_step *step, const int *roots) {
  for (int a = 0; a < step->n_args; a++) {
    int *buffer = &step->args[a].buffer;
    if (*buffer < 0)
      continue;
    int owner = program->owners[*roots++];
    if (owner >= 0 && program->buffers[*buffer].root != owner)
      *buffer = owner;
  }
}

static void steps_apply(struct backend_program *program, const struct replay_plan *plan) {
  struct cuda_step **steps = mem_new(((size_t)plan->n_items + 1) * sizeof *steps);
  for (int i = 0; i < plan->n_items; i++) {
    struct cuda_step *step = program->steps[plan->items[i].step];
    steps[i] = plan->items[i].is_replay ? step_again(program, step) : step;
  }
  for (int i = 0; i < plan->n_items; i++)
    step_rebind(program, steps[i], plan->items[i].roots);
  free(program->steps);
  program->steps = steps;
  program->n_steps = program->steps_capacity = plan->n_items;
}

/* Of the roots that are used. */
static void spans_apply(struct backend_program *program, const struct replay_plan *plan) {
  program->spans = arena_new(&program->memory, ((size_t)plan->n_roots + 1) * sizeof *program->spans);
  for (int r = 0; r < plan->n_roots; r++) {
    const struct memory_span *span = &plan->spans[r];
    int owner = program->owners[r];
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

static void plan_apply(struct backend_program *program, const struct replay_plan *plan, int n_roots) {
  program->replayed = (struct backend_replayed){plan->unreplayed_bytes, plan->n_items, plan->n_replays};
  roots_add(program, plan, n_roots);
  steps_apply(program, plan);
  spans_apply(program, plan);
  if (plan->n_replays > 0) {
    cuda_segments_cut(program);
    deliveries_check(program);
  }
}

static int wish_init(const struct backend_program *program, struct replay_wish *wish, struct err *err) {
  const struct backend_options *options = &program->view.options;
  *wish = (struct replay_wish){.mode = options->replay, .most_bytes = options->most_bytes};
  if (wish->mode != REPLAY_AUTO || wish->most_bytes > 0)
    return ERR_OK;
  if (cuda_memory_available(&wish->most_bytes, err))
    return err->code;
  wish->most_bytes = wish->most_bytes > options->spare_bytes ? wish->most_bytes - options->spare_bytes : 0;
  return ERR_OK;
}

int cuda_replay_settle(struct backend_program *program, struct err *err) {
  struct replay_plan *plan = NULL;
  struct replay_view view;
  struct replay_wish wish;
  if (wish_init(program, &wish, err))
    return err->code;
  view_init(&view, program);
  if (!replay_plan_new(&view.plain, &wish, &plan, err))
    plan_apply(program, plan, view.plain.n_roots);
  replay_plan_free(plan);
  view_fini(&view);
  return err->code;
}
