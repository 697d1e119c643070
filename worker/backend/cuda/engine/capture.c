/* Segments as CUDA graphs: enqueued step by step the first time, when libraries load what they need; captured
   the second time, and replayed from then on. Each context has graphs of its own, whose kernels have its
   addresses. A segment that cannot be captured is always enqueued. */
#include "common/base/log.h"
#include "worker/backend/cuda/engine/program.h"

/* Fewer launches are not worth a graph. */
enum { STEPS_MIN = 2 };

static int steps_enqueue(struct backend_program *program, const struct cuda_segment *segment,
                         struct err *err) {
  for (int s = segment->begin; s < segment->end; s++) {
    const struct cuda_step *step = program->steps[s];
    if (step->kind == CUDA_STEP_DEVICE && step->enqueue(program, step, program->compute, err))
      return err->code;
  }
  return cuda_check(NULL, cudaPeekAtLastError(), "start its kernels", err);
}

static int steps_count(const struct backend_program *program, const struct cuda_segment *segment) {
  int n = 0;
  for (int s = segment->begin; s < segment->end; s++)
    n += program->steps[s]->kind == CUDA_STEP_DEVICE;
  return n;
}

/* Of this thread's calls alone are forbidden that a capture cannot hold: others go on as they like. */
static int segment_capture(struct backend_program *program, struct cuda_segment *segment, struct err *err) {
  cudaGraph_t graph = NULL;
  if (cuda_check(NULL, cudaStreamBeginCapture(program->compute, cudaStreamCaptureModeThreadLocal), "capture",
                 err))
    return err->code;
  steps_enqueue(program, segment, err);
  cudaError_t status = cudaStreamEndCapture(program->compute, &graph);
  if (!err->code && !cuda_check(NULL, status, "end a capture", err))
    cuda_check(NULL, cudaGraphInstantiate(&segment->graphs[segment->in], graph, 0), "instantiate a graph",
               err);
  if (graph)
    cudaGraphDestroy(graph);
  if (err->code)
    segment->graphs[segment->in] = NULL;
  return err->code;
}

/* Without it the steps are enqueued one by one: slower, but no less right. */
static void capture_try(struct backend_program *program, struct cuda_segment *segment) {
  struct err err = ERR_NONE;
  if (!segment_capture(program, segment, &err))
    return;
  segment->is_uncapturable = true;
  cudaGetLastError();
  if (!program->has_told_capture)
    log_event(LOG_WARN, "worker", "graph_not_captured", "error=\"%s\"", err.text);
  program->has_told_capture = true;
}

int cuda_segment_enqueue(struct backend_program *program, struct cuda_segment *segment, struct err *err) {
  bool is_warm = segment->is_warm;
  if (is_warm && !segment->graphs[segment->in] && !segment->is_uncapturable) {
    if (steps_count(program, segment) >= STEPS_MIN)
      capture_try(program, segment);
    else
      segment->is_uncapturable = true;
  }
  cudaGraphExec_t graph = segment->graphs[segment->in];
  if (graph)
    return cuda_check(NULL, cudaGraphLaunch(graph, program->compute), "launch a graph", err);
  segment->is_warm = true;
  return steps_enqueue(program, segment, err);
}
