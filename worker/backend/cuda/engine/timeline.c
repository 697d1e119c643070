/* The segments of an execution on the timeline, by events with times on the three streams. Only where tracing
   was on when the program was made. */
#include <stdio.h>
#include <string.h>

#include "worker/backend/cuda/engine/program.h"
#include "common/trace/trace.h"

/* Marks of one segment: pairs of begin and end, in the order of enum cuda_mark. */
struct marks {
  cudaEvent_t events[CUDA_MARKS];
  bool is_set[CUDA_MARKS]; /* in this execution */
};

struct cuda_timeline {
  cudaEvent_t origin; /* on compute, when an execution begins */
  uint64_t origin_ns;
  struct marks *marks; /* [n_segments] */
};

void cuda_timeline_open(struct backend_program *program) {
  struct cuda_timeline *timeline;
  bool is_ok = true;
  if (!trace_is_on())
    return;
  timeline = arena_new(&program->memory, sizeof *timeline);
  timeline->marks = arena_new(&program->memory, (size_t)program->n_segments * sizeof *timeline->marks);
  is_ok = cudaEventCreate(&timeline->origin) == cudaSuccess;
  for (int k = 0; k < program->n_segments; k++)
    for (int m = 0; m < CUDA_MARKS; m++)
      is_ok = is_ok && cudaEventCreate(&timeline->marks[k].events[m]) == cudaSuccess;
  program->timeline = timeline;
  if (!is_ok) {
    cudaGetLastError();
    cuda_timeline_close(program);
  }
}

void cuda_timeline_close(struct backend_program *program) {
  struct cuda_timeline *timeline = program->timeline;
  program->timeline = NULL;
  if (!timeline)
    return;
  for (int k = 0; k < program->n_segments; k++)
    for (int m = 0; m < CUDA_MARKS; m++)
      if (timeline->marks[k].events[m])
        cudaEventDestroy(timeline->marks[k].events[m]);
  if (timeline->origin)
    cudaEventDestroy(timeline->origin);
}

void cuda_timeline_begin(struct backend_program *program) {
  struct cuda_timeline *timeline = program->timeline;
  if (!timeline)
    return;
  for (int k = 0; k < program->n_segments; k++)
    memset(timeline->marks[k].is_set, 0, sizeof timeline->marks[k].is_set);
  cudaEventRecord(timeline->origin, program->compute);
  cudaEventSynchronize(timeline->origin);
  timeline->origin_ns = trace_now_ns();
}

void cuda_timeline_mark(struct backend_program *program, const struct cuda_segment *segment,
                        enum cuda_mark mark) {
  static const int row_of[] = {0, 0, 1, 1, 2, 2};
  cudaStream_t streams[] = {program->up, program->compute, program->down};
  if (!program->timeline)
    return;
  struct marks *marks = &program->timeline->marks[segment - program->segments];
  marks->is_set[mark] = cudaEventRecord(marks->events[mark], streams[row_of[mark]]) == cudaSuccess;
}

static uint64_t moment_ns(const struct cuda_timeline *timeline, cudaEvent_t event) {
  float ms = 0;
  if (cudaEventElapsedTime(&ms, timeline->origin, event) != cudaSuccess)
    return 0;
  return timeline->origin_ns + (uint64_t)(ms > 0 ? (double)ms * 1e6 : 0);
}

/* "7: node 'conv1'": its first node. */
static void segment_name(const struct backend_program *program, int k, char *name, size_t size) {
  const struct cuda_segment *segment = &program->segments[k];
  const struct node *node = NULL;
  for (int s = segment->begin; s < segment->end && !node; s++)
    node = program->steps[s]->node;
  snprintf(name, size, "%d: %s", k, node ? node->name : "copies");
}

void cuda_timeline_end(struct backend_program *program, const struct backend_run *run) {
  static const struct {
    enum cuda_mark begin;
    enum trace_row row;
    const char *category;
  } rows[] = {{CUDA_MARK_UP, TRACE_UP, "up"},
              {CUDA_MARK_COMPUTE, TRACE_COMPUTE, "compute"},
              {CUDA_MARK_DOWN, TRACE_DOWN, "down"}};
  const struct cuda_timeline *timeline = program->timeline;
  char name[64];
  for (int k = 0; timeline && k < program->n_segments; k++) {
    const struct marks *marks = &timeline->marks[k];
    segment_name(program, k, name, sizeof name);
    for (int r = 0; r < 3; r++)
      if (marks->is_set[rows[r].begin] && marks->is_set[rows[r].begin + 1])
        trace_span(&(struct trace_span){.row = rows[r].row,
                                        .category = rows[r].category,
                                        .name = name,
                                        .begin_ns = moment_ns(timeline, marks->events[rows[r].begin]),
                                        .end_ns = moment_ns(timeline, marks->events[rows[r].begin + 1]),
                                        .step = run->context.step,
                                        .index = run->context.microbatch});
  }
}
