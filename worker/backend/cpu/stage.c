/* A stage of a pipeline: of all steps of the graph those that worker/backend/stages gives it, between steps
   that receive and send what crosses to its neighbours. What is received stays where the caller has it. */
#include <stdlib.h>
#include <string.h>

#include "worker/backend/cpu/cpu.h"
#include "worker/backend/stages/stages.h"

/* While a program becomes a stage. */
struct carving {
  struct backend_program *program;
  const struct stage *stage;
  int *held_by; /* [n_roots of the stage] the buffer that holds what the stage has in that root */
  struct cpu_step **steps;
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

/* The program in the terms of stages.h. */
struct outlined {
  struct cpu_outline outline;
  struct stage_span *spans;
  struct staged_program staged;
};

static void outlined_init(struct outlined *outlined, const struct backend_program *program) {
  cpu_outline_init(&outlined->outline, program);
  outlined->spans = mem_new(((size_t)program->n_steps + 1) * sizeof *outlined->spans);
  for (int s = 0; s < program->n_steps; s++) {
    int owner = program->steps[s]->owner, place = owner < 0 ? -1 : node_place(program, owner);
    outlined->spans[s] = (struct stage_span){place, place};
  }
  outlined->staged = (struct staged_program){
      .program = &outlined->outline.plain, .spans = outlined->spans, .n_nodes = program->first_backward};
}

static void outlined_fini(struct outlined *outlined) {
  cpu_outline_fini(&outlined->outline);
  free(outlined->spans);
}

void cpu_find_places(const struct backend_program *program, bool *is_valid) {
  struct outlined outlined;
  outlined_init(&outlined, program);
  memset(is_valid, 0, (size_t)program->graph->n_nodes + 1);
  stages_find_places(&outlined.staged, is_valid);
  outlined_fini(&outlined);
}

static int run_receive(struct backend_program *program, struct cpu_step *step, const struct backend_run *run,
                       struct err *err) {
  const struct cpu_message *message = step->details;
  const void **bytes = message->bytes + (size_t)run->in * (size_t)message->of.n;
  bool has_come = message->part == BACKEND_FORWARD && run->part == BACKEND_BACKWARD;
  CHECK(has_come || run->receive);
  if (!has_come && !run->receive(run->user, message->part, bytes))
    return err_set(err, ERR_CANCELLED, "the execution was cancelled before a neighbour's bytes came");
  for (int a = 0; a < step->n_args; a++)
    program->buffers[step->args[a].buffer].data = (void *)bytes[a];
  return ERR_OK;
}

static int run_send(struct backend_program *program, struct cpu_step *step, const struct backend_run *run,
                    struct err *err) {
  const struct cpu_message *message = step->details;
  (void)program;
  (void)err;
  for (int a = 0; a < step->n_args; a++)
    message->bytes[a] = step->args[a].data;
  CHECK(run->send);
  run->send(run->user, message->part, message->bytes);
  return ERR_OK;
}

/* Bytes of each element; 0: they are no reals. */
static int real_size(const dnnl_memory_desc_t *layout) {
  if (layout->ndims == 0)
    return 0;
  return layout->data_type == dnnl_f32 ? 4 : layout->data_type == dnnl_bf16 ? 2 : 0;
}

static struct cpu_step *message_step(struct carving *carving, enum backend_part part,
                                     const struct stage_crossing *crossings, int n) {
  struct backend_program *program = carving->program;
  struct cpu_step *step = cpu_step_new(program, NULL);
  size_t *sizes = arena_new(&program->memory, ((size_t)n + 1) * sizeof *sizes);
  int *real_bytes = arena_new(&program->memory, ((size_t)n + 1) * sizeof *real_bytes);
  for (int c = 0; c < n; c++) {
    const struct cpu_buffer *buffer = &program->buffers[crossings[c].origin];
    sizes[c] = buffer->size_bytes;
    real_bytes[c] = real_size(&buffer->layout);
  }
  struct cpu_message message = {.part = part, .of = {sizes, real_bytes, n}};
  message.bytes =
      arena_new(&program->memory, ((size_t)program->n_contexts * (size_t)n + 1) * sizeof *message.bytes);
  step->details = arena_copy(&program->memory, &message, sizeof message);
  carving->steps[carving->n_steps++] = step;
  return step;
}

/* What comes from a neighbour is only read where it comes to. */
static void receive_add(struct carving *carving, enum backend_part part,
                        const struct stage_crossing *crossings, int n) {
  struct backend_program *program = carving->program;
  struct cpu_step *step = message_step(carving, part, crossings, n);
  step->run = run_receive;
  step->is_resumed = part == BACKEND_FORWARD;
  for (int c = 0; c < n; c++) {
    int buffer = cpu_root_add(program, crossings[c].origin);
    program->buffers[buffer].place = PLACE_HOST;
    program->buffers[buffer].value = -1;
    program->buffers[buffer].data = NULL;
    carving->held_by[part == BACKEND_FORWARD ? crossings[c].upper : crossings[c].lower] = buffer;
    cpu_use(program, step, 0, buffer, NULL);
    step->args[step->n_args - 1].is_written = true;
  }
  program->received[part] = step->details;
}

static void send_add(struct carving *carving, enum backend_part part, const struct stage_crossing *crossings,
                     int n) {
  struct backend_program *program = carving->program;
  struct cpu_step *step = message_step(carving, part, crossings, n);
  step->run = run_send;
  for (int c = 0; c < n; c++)
    cpu_use(program, step, 0,
            carving->held_by[part == BACKEND_FORWARD ? crossings[c].lower : crossings[c].upper], NULL);
  program->sent[part] = step->details;
}

/* What is written over something that was received gets the root for itself. */
static void items_add(struct carving *carving, int begin, int end, const struct replay_step *outlines) {
  for (int i = begin; i < end; i++) {
    const struct stage_item *item = &carving->stage->items[i];
    const struct replay_step *outline = &outlines[item->step];
    int *held = mem_new(((size_t)outline->n_uses + 1) * sizeof *held);
    for (int u = 0; u < outline->n_uses; u++)
      held[u] = outline->uses[u].is_written ? item->roots[u] : carving->held_by[item->roots[u]];
    for (int u = 0; u < outline->n_uses; u++)
      if (outline->uses[u].is_written)
        carving->held_by[item->roots[u]] = item->roots[u];
    struct cpu_step *step = carving->program->steps[item->step];
    cpu_step_set_roots(carving->program, step, held);
    carving->steps[carving->n_steps++] = step;
    free(held);
  }
}

/* Steps that are not the stage's go, and when bytes are in use is found anew. */
static void steps_replace(struct carving *carving) {
  struct backend_program *program = carving->program;
  for (int i = 0; i < carving->stage->n_items; i++)
    program->steps[carving->stage->items[i].step] = NULL;
  for (int s = 0; s < program->n_steps; s++)
    if (program->steps[s])
      cpu_step_release(program->steps[s]);
  free(program->steps);
  program->steps = mem_new(((size_t)carving->n_steps + 1) * sizeof *program->steps);
  program->steps_capacity = carving->n_steps;
  program->n_steps = 0;
  for (int b = 0; b < program->n_buffers; b++)
    program->buffers[b].first = program->buffers[b].last = -1;
  for (int s = 0; s < carving->n_steps; s++)
    cpu_step_append(program, carving->steps[s]);
}

/* The steps of stage number `at`, in order. */
static void carve(struct backend_program *program, const struct stage_slices *slices, int at,
                  const struct replay_step *outlines) {
  const struct stage *stage = &slices->stages[at];
  const struct stage_edge *below = at > 0 ? &slices->edges[at - 1] : NULL;
  const struct stage_edge *above = at + 1 < slices->n_stages ? &slices->edges[at] : NULL;
  enum { MESSAGES = 4 };
  struct carving carving = {.program = program, .stage = stage};
  carving.held_by = mem_new(((size_t)stage->n_roots + 1) * sizeof *carving.held_by);
  carving.steps = mem_new(((size_t)stage->n_items + MESSAGES) * sizeof *carving.steps);
  for (int r = 0; r < stage->n_roots; r++)
    carving.held_by[r] = r < program->n_buffers ? r : cpu_root_add(program, stage->roots[r].origin);
  if (below)
    receive_add(&carving, BACKEND_FORWARD, below->forward, below->n_forward);
  items_add(&carving, 0, stage->n_forward, outlines);
  if (above)
    send_add(&carving, BACKEND_FORWARD, above->forward, above->n_forward);
  program->n_forward = carving.n_steps;
  if (above)
    receive_add(&carving, BACKEND_BACKWARD, above->backward, above->n_backward);
  items_add(&carving, stage->n_forward, stage->n_items, outlines);
  if (below)
    send_add(&carving, BACKEND_BACKWARD, below->backward, below->n_backward);
  steps_replace(&carving);
  free(carving.held_by);
  free(carving.steps);
}

int cpu_carve(struct backend_program *program, const struct backend_options *options, struct err *err) {
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
  carve(program, slices, options->stage, outlined.outline.steps);
  stage_slices_free(slices);
  outlined_fini(&outlined);
  return ERR_OK;
}
