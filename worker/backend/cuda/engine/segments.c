/* Cuts a program's steps into segments, each of which is enqueued at once: where enough weights have gathered
   for the first steps to begin, where enough gradients are complete to leave, and at steps that run on the
   host. A cut costs a few microseconds on the device; a copy of this size takes a hundred. */
#include <stdlib.h>
#include <string.h>

#include "worker/backend/cuda/engine/program.h"

static const size_t WEIGHTS_BYTES = 4 << 20, DELIVERIES_BYTES = 4 << 20;

struct cutter {
  struct backend_program *program;
  struct cuda_segment segment; /* the one that grows */
  bool *is_read;               /* by value: some step before reads it */
  bool *is_resumed;            /* by value: of those, some of the backward part do */
  int *fresh;                  /* values that the step is the first to read */
  int n_fresh;
  size_t weights_bytes, deliveries_bytes;
};

static void values_add(struct cuda_segment *segment, const int *values, int n) {
  size_t size = sizeof *values;
  if (n == 0)
    return;
  segment->weights = mem_resize(segment->weights, ((size_t)segment->n_weights + (size_t)n) * size);
  memcpy(segment->weights + segment->n_weights, values, (size_t)n * size);
  segment->n_weights += n;
}

static void note_read(struct cutter *cutter, int value, bool is_backward) {
  bool is_later = is_backward && cutter->is_read[value];
  if (!cutter->is_read[value])
    cutter->fresh[cutter->n_fresh++] = value;
  if (is_later && !cutter->is_resumed[value])
    values_add(&cutter->program->resumed, &value, 1);
  cutter->is_read[value] = true;
  cutter->is_resumed[value] |= is_backward;
}

/* Returns their bytes. */
static size_t find_fresh(struct cutter *cutter, int s) {
  struct backend_program *program = cutter->program;
  const struct cuda_step *step = program->steps[s];
  bool is_backward = s >= program->n_forward;
  const struct graph *graph = program->graph;
  size_t bytes = 0;
  cutter->n_fresh = 0;
  for (int a = 0; a < step->n_args; a++) {
    int source = step->args[a].buffer < 0 ? -1 : cuda_source_of(program, step->args[a].buffer);
    if (source >= 0)
      note_read(cutter, program->buffers[source].value, is_backward);
  }
  for (int i = 0; step->kind == CUDA_STEP_HOST && i < step->node->n_inputs; i++)
    if (step->node->inputs[i] >= 0 && graph->values[step->node->inputs[i]].kind == VALUE_INITIALIZER)
      note_read(cutter, step->node->inputs[i], is_backward);
  for (int f = 0; f < cutter->n_fresh; f++) {
    const struct value *v = &graph->values[cutter->fresh[f]];
    bytes += (size_t)shape_elems(&v->shape) * dtype_size(v->dtype);
  }
  return bytes;
}

static int compare_values(const void *a, const void *b) {
  int x = *(const int *)a, y = *(const int *)b;
  return (x > y) - (x < y);
}

/* As they lie in memory. */
static void weights_sort(struct cuda_segment *segment) {
  if (segment->n_weights > 1)
    qsort(segment->weights, (size_t)segment->n_weights, sizeof *segment->weights, compare_values);
}

static void segment_end(struct cutter *cutter, int at) {
  struct backend_program *program = cutter->program;
  struct cuda_segment *segment = &cutter->segment;
  cutter->weights_bytes = cutter->deliveries_bytes = 0;
  if (segment->begin == at)
    return;
  segment->end = at;
  weights_sort(segment);
  array_reserve((void **)&program->segments, &program->segments_capacity, program->n_segments,
                sizeof *segment);
  program->segments[program->n_segments++] = *segment;
  *segment = (struct cuda_segment){.begin = at};
}

static void cut_step(struct cutter *cutter, int s) {
  const struct cuda_step *step = cutter->program->steps[s];
  bool is_delivery = step->kind == CUDA_STEP_DELIVERY, is_host = step->kind > CUDA_STEP_DELIVERY;
  size_t bytes = find_fresh(cutter, s);
  bool is_full = cutter->weights_bytes > 0 && bytes > 0 && cutter->weights_bytes + bytes > WEIGHTS_BYTES;
  bool is_cut = is_host || cutter->segment.is_host || is_full || cutter->deliveries_bytes > DELIVERIES_BYTES;
  if ((!is_delivery && is_cut) || s == cutter->program->n_forward)
    segment_end(cutter, s);
  if (s == cutter->program->n_forward)
    cutter->program->n_forward_segments = cutter->program->n_segments;
  values_add(&cutter->segment, cutter->fresh, cutter->n_fresh);
  cutter->segment.is_host |= is_host;
  cutter->segment.n_deliveries += is_delivery;
  cutter->weights_bytes += bytes;
  if (is_delivery)
    cutter->deliveries_bytes += cutter->program->buffers[step->args[0].buffer].size_bytes;
}

static void segments_clear(struct backend_program *program) {
  for (int k = 0; k < program->n_segments; k++)
    free(program->segments[k].weights);
  free(program->resumed.weights);
  program->resumed = (struct cuda_segment){0};
  program->n_segments = 0;
}

void cuda_segments_cut(struct backend_program *program) {
  size_t n = (size_t)program->graph->n_values + 1;
  struct cutter cutter = {.program = program,
                          .is_read = mem_new(n * sizeof *cutter.is_read),
                          .is_resumed = mem_new(n * sizeof *cutter.is_resumed),
                          .fresh = mem_new(n * sizeof *cutter.fresh)};
  segments_clear(program);
  for (int s = 0; s < program->n_steps; s++)
    cut_step(&cutter, s);
  segment_end(&cutter, program->n_steps);
  if (program->n_forward == program->n_steps)
    program->n_forward_segments = program->n_segments;
  weights_sort(&program->resumed);
  free(cutter.is_read);
  free(cutter.is_resumed);
  free(cutter.fresh);
}

int cuda_segments_open(struct backend_program *program, struct err *err) {
  for (int k = 0; k < program->n_segments; k++) {
    struct cuda_segment *segment = &program->segments[k];
    segment->graphs = mem_new((size_t)program->n_contexts * sizeof *segment->graphs);
    const struct {
      cudaEvent_t *event;
      unsigned flags;
    } events[] = {
        {&segment->arrived, cudaEventDisableTiming},
        {&segment->computed, cudaEventDisableTiming},
        {&segment->copied, cudaEventDisableTiming | cudaEventBlockingSync}}; /* the host waits for it */
    for (int e = 0; e < 3; e++)
      if (cuda_check(NULL, cudaEventCreateWithFlags(events[e].event, events[e].flags), "make an event", err))
        return err->code;
  }
  return ERR_OK;
}

void cuda_segments_close(struct backend_program *program) {
  for (int k = 0; k < program->n_segments; k++) {
    struct cuda_segment *segment = &program->segments[k];
    cudaEvent_t events[] = {segment->arrived, segment->computed, segment->copied};
    for (int e = 0; e < 3; e++)
      if (events[e])
        cudaEventDestroy(events[e]);
    for (int c = 0; c < program->n_contexts && segment->graphs; c++)
      if (segment->graphs[c])
        cudaGraphExecDestroy(segment->graphs[c]);
    free(segment->graphs);
  }
  segments_clear(program);
  free(program->segments);
}
