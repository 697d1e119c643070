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
  int *fresh;                  /* values that the step is the first to read */
  int n_fresh;
  size_t weights_bytes, deliveries_bytes;
};

static void note_fresh(struct cutter *cutter, int value) {
  if (!cutter->is_read[value])
    cutter->fresh[cutter->n_fresh++] = value;
  cutter->is_read[value] = true;
}

/* Returns their bytes. */
static size_t find_fresh(struct cutter *cutter, const struct cuda_step *step) {
  struct backend_program *program = cutter->program;
  const struct graph *graph = program->graph;
  size_t bytes = 0;
  cutter->n_fresh = 0;
  for (int a = 0; a < step->n_args; a++) {
    int source = step->args[a].buffer < 0 ? -1 : cuda_source_of(program, step->args[a].buffer);
    if (source >= 0)
      note_fresh(cutter, program->buffers[source].value);
  }
  for (int i = 0; step->kind == CUDA_STEP_HOST && i < step->node->n_inputs; i++)
    if (step->node->inputs[i] >= 0 && graph->values[step->node->inputs[i]].kind == VALUE_INITIALIZER)
      note_fresh(cutter, step->node->inputs[i]);
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

static void segment_end(struct cutter *cutter, int at) {
  struct backend_program *program = cutter->program;
  struct cuda_segment *segment = &cutter->segment;
  cutter->weights_bytes = cutter->deliveries_bytes = 0;
  if (segment->begin == at)
    return;
  segment->end = at;
  if (segment->n_weights > 1) /* as they lie in memory */
    qsort(segment->weights, (size_t)segment->n_weights, sizeof *segment->weights, compare_values);
  array_reserve((void **)&program->segments, &program->segments_capacity, program->n_segments,
                sizeof *segment);
  program->segments[program->n_segments++] = *segment;
  *segment = (struct cuda_segment){.begin = at};
}

static void segment_add_weights(struct cutter *cutter) {
  struct cuda_segment *segment = &cutter->segment;
  size_t n = (size_t)segment->n_weights + (size_t)cutter->n_fresh;
  if (cutter->n_fresh == 0)
    return;
  segment->weights = mem_resize(segment->weights, n * sizeof *segment->weights);
  memcpy(segment->weights + segment->n_weights, cutter->fresh,
         (size_t)cutter->n_fresh * sizeof *cutter->fresh);
  segment->n_weights = (int)n;
}

static void cut_step(struct cutter *cutter, int s) {
  const struct cuda_step *step = cutter->program->steps[s];
  bool is_delivery = step->kind == CUDA_STEP_DELIVERY, is_host = step->kind == CUDA_STEP_HOST;
  size_t bytes = find_fresh(cutter, step);
  bool is_full = cutter->weights_bytes > 0 && bytes > 0 && cutter->weights_bytes + bytes > WEIGHTS_BYTES;
  if (!is_delivery &&
      (is_host || cutter->segment.is_host || is_full || cutter->deliveries_bytes > DELIVERIES_BYTES))
    segment_end(cutter, s);
  segment_add_weights(cutter);
  cutter->segment.is_host |= is_host;
  cutter->segment.n_deliveries += is_delivery;
  cutter->weights_bytes += bytes;
  if (is_delivery)
    cutter->deliveries_bytes += cutter->program->buffers[step->args[0].buffer].size_bytes;
}

static void segments_clear(struct backend_program *program) {
  for (int k = 0; k < program->n_segments; k++)
    free(program->segments[k].weights);
  program->n_segments = 0;
}

void cuda_segments_cut(struct backend_program *program) {
  size_t n = (size_t)program->graph->n_values + 1;
  struct cutter cutter = {.program = program,
                          .is_read = mem_new(n * sizeof *cutter.is_read),
                          .fresh = mem_new(n * sizeof *cutter.fresh)};
  segments_clear(program);
  for (int s = 0; s < program->n_steps; s++)
    cut_step(&cutter, s);
  segment_end(&cutter, program->n_steps);
  free(cutter.is_read);
  free(cutter.fresh);
}

int cuda_segments_open(struct backend_program *program, struct err *err) {
  for (int k = 0; k < program->n_segments; k++) {
    struct cuda_segment *segment = &program->segments[k];
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
    if (segment->graph)
      cudaGraphExecDestroy(segment->graph);
  }
  segments_clear(program);
  free(program->segments);
}
