/* A stage of a pipeline: of all steps of the graph those that worker/backend/stages gives it, between steps
   that receive and send what crosses to its neighbours. */
#include "worker/backend/stages/stages.h"

#include <stdlib.h>
#include <string.h>

#include "worker/backend/cuda/engine/program.h"

/* While a program becomes a stage. */
struct carving {
  struct backend_program *program;
  struct cuda_outline *outline; /* whose roots are the stage's */
  struct cuda_step **steps;
  int n_steps;
};

/* The forward node whose stage runs the node. What reads a node that was pruned was pruned, too, so its
   gradient follows straight from the loss: it belongs to the last node. */
static int node_place(const struct backend_program *program, int n) {
  const struct node *node = program->graph->nodes[n];
  if (n < program->first_backward)
    return n;
  return node->forward >= 0 ? node->forward : program->first_backward - 1;
}

/* The node that a step is for; -1: for whoever reads what it makes. */
static int step_owner(const struct backend_program *program, const struct cuda_step *step) {
  if (step->kind == CUDA_STEP_DELIVERY) {
    const struct value *value = &program->graph->values[program->watched[step->watch]];
    return value->kind == VALUE_RESULT ? value->producer : 0;
  }
  return step->node && !step->is_conversion ? step->node->index : -1;
}

/* The program in the terms of stages.h. */
struct outlined {
  struct cuda_outline outline;
  struct stage_span *spans;
  struct staged_program staged;
};

static void span_add(struct stage_span *span, int place) {
  span->first = span->first < 0 || place < span->first ? place : span->first;
  span->last = place > span->last ? place : span->last;
}

/* Of each node: the places of all that its step does the work of. Freed by the caller. */
static struct stage_span *node_spans_new(const struct backend_program *program) {
  int n = program->graph->n_nodes;
  struct stage_span *spans = mem_new(((size_t)n + 1) * sizeof *spans);
  for (int i = 0; i < n; i++)
    spans[i] = (struct stage_span){-1, -1};
  for (int i = 0; i < n; i++) {
    span_add(&spans[i], node_place(program, i));
    if (program->nodes[i].done_by >= 0)
      span_add(&spans[program->nodes[i].done_by], node_place(program, i));
  }
  return spans;
}

static void outlined_init(struct outlined *outlined, const struct backend_program *program) {
  struct stage_span *of_nodes = node_spans_new(program);
  cuda_outline_init(&outlined->outline, program);
  outlined->spans = mem_new(((size_t)program->n_steps + 1) * sizeof *outlined->spans);
  for (int s = 0; s < program->n_steps; s++) {
    int owner = step_owner(program, program->steps[s]);
    outlined->spans[s] = owner < 0 ? (struct stage_span){-1, -1} : of_nodes[owner];
  }
  outlined->staged = (struct staged_program){
      .program = &outlined->outline.plain, .spans = outlined->spans, .n_nodes = program->first_backward};
  free(of_nodes);
}

static void outlined_fini(struct outlined *outlined) {
  cuda_outline_fini(&outlined->outline);
  free(outlined->spans);
}

void cuda_find_places(const struct backend_program *program, bool *is_valid) {
  struct outlined outlined;
  outlined_init(&outlined, program);
  memset(is_valid, 0, (size_t)program->graph->n_nodes + 1);
  stages_find_places(&outlined.staged, is_valid);
  outlined_fini(&outlined);
}

/* A step that receives or sends the contents. A stage has them in its root lower, where it is below the edge,
   or upper. */
static struct cuda_message *message_add(struct carving *carving, enum cuda_step_kind kind,
                                        enum backend_part part, const struct stage_crossing *crossings,
                                        int n) {
  struct backend_program *program = carving->program;
  bool is_received = kind == CUDA_STEP_RECEIVE, is_above = (part == BACKEND_FORWARD) == is_received;
  struct cuda_step *step = cuda_step_new(program, NULL);
  struct cuda_message *message = arena_new(&program->memory, sizeof *message);
  size_t *sizes = arena_new(&program->memory, ((size_t)n + 1) * sizeof *sizes);
  int *real_bytes = arena_new(&program->memory, ((size_t)n + 1) * sizeof *real_bytes);
  for (int c = 0; c < n; c++) {
    int buffer = carving->outline->owners[is_above ? crossings[c].upper : crossings[c].lower];
    sizes[c] = program->buffers[buffer].size_bytes;
    enum cuda_type type = program->buffers[buffer].type;
    real_bytes[c] = type == CUDA_F32 || type == CUDA_BF16 ? (int)cuda_type_size(type) : 0;
    cuda_use(program, step, buffer, is_received);
  }
  *message = (struct cuda_message){.part = part, .of = {sizes, real_bytes, n}};
  message->pieces = arena_new(&program->memory, ((size_t)n + 1) * sizeof *message->pieces);
  step->kind = kind;
  step->details = message;
  carving->steps[carving->n_steps++] = step;
  return message;
}

static void items_add(struct carving *carving, const struct stage *stage, int begin, int end) {
  for (int i = begin; i < end; i++) {
    struct cuda_step *step = carving->program->steps[stage->items[i].step];
    cuda_step_set_roots(carving->program, carving->outline, step, stage->items[i].roots);
    carving->steps[carving->n_steps++] = step;
  }
}

/* Steps that are not the stage's go. */
static void steps_replace(struct carving *carving, const struct stage *stage) {
  struct backend_program *program = carving->program;
  for (int i = 0; i < stage->n_items; i++)
    program->steps[stage->items[i].step] = NULL;
  for (int s = 0; s < program->n_steps; s++)
    if (program->steps[s])
      cuda_step_release(program->steps[s]);
  free(program->steps);
  program->steps = carving->steps;
  program->n_steps = program->steps_capacity = carving->n_steps;
}

/* The steps of stage number `at`, in order. */
static void carve(struct backend_program *program, const struct stage_slices *slices, int at,
                  struct cuda_outline *outline) {
  enum { MESSAGES = 4 };
  const struct stage *stage = &slices->stages[at];
  const struct stage_edge *below = at > 0 ? &slices->edges[at - 1] : NULL;
  const struct stage_edge *above = at + 1 < slices->n_stages ? &slices->edges[at] : NULL;
  struct carving carving = {.program = program, .outline = outline};
  carving.steps = mem_new(((size_t)stage->n_items + MESSAGES) * sizeof *carving.steps);
  for (int r = outline->plain.n_roots; r < stage->n_roots; r++)
    cuda_outline_add_root(outline, program, stage->roots[r].origin);
  if (below)
    program->received[BACKEND_FORWARD] =
        message_add(&carving, CUDA_STEP_RECEIVE, BACKEND_FORWARD, below->forward, below->n_forward);
  items_add(&carving, stage, 0, stage->n_forward);
  if (above)
    program->sent[BACKEND_FORWARD] =
        message_add(&carving, CUDA_STEP_SEND, BACKEND_FORWARD, above->forward, above->n_forward);
  program->n_forward = carving.n_steps;
  if (above)
    program->received[BACKEND_BACKWARD] =
        message_add(&carving, CUDA_STEP_RECEIVE, BACKEND_BACKWARD, above->backward, above->n_backward);
  items_add(&carving, stage, stage->n_forward, stage->n_items);
  if (below)
    program->sent[BACKEND_BACKWARD] =
        message_add(&carving, CUDA_STEP_SEND, BACKEND_BACKWARD, below->backward, below->n_backward);
  steps_replace(&carving, stage);
}

int cuda_carve(struct backend_program *program, const struct backend_options *options, struct err *err) {
  struct outlined outlined;
  if (options->n_cuts == 0)
    return ERR_OK;
  CHECK(options->stage >= 0 && options->stage <= options->n_cuts);
  outlined_init(&outlined, program);
  if (stages_check_cuts(&outlined.staged, program->graph, options->cuts, options->n_cuts, err)) {
    outlined_fini(&outlined);
    return err->code;
  }
  struct stage_slices *slices = stage_slices_new(&outlined.staged, options->cuts, options->n_cuts);
  carve(program, slices, options->stage, &outlined.outline);
  stage_slices_free(slices);
  outlined_fini(&outlined);
  cuda_uses_find(program);
  return ERR_OK;
}
