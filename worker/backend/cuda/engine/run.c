/* One execution, or a part of one: segment after segment is enqueued while the copies of those before go on.
 */
#include <string.h>

#include "worker/backend/cuda/engine/program.h"

/* The segments of what runs. */
struct range {
  int begin, end;
};

/* After each segment that is enqueued, the values of one that has come are handed over; of more only while
   the device still has so many segments to compute, for that may take longer than they do. */
enum { SEGMENTS_AHEAD = 4 };

/* How far it is: the first segment whose values were not handed over, the first that is not enqueued, the
   end. */
struct progress {
  int next, enqueued, end;
};

static int steps_run(struct backend_program *program, struct cuda_segment *segment,
                     const struct backend_run *run, struct err *err) {
  if (!segment->is_host)
    return cuda_segment_enqueue(program, segment, err);
  for (int s = segment->begin; s < segment->end && !err->code; s++) {
    const struct cuda_step *step = program->steps[s];
    if (step->kind == CUDA_STEP_HOST)
      cuda_host_run(program, step, run, err);
    else if (step->kind != CUDA_STEP_DELIVERY)
      cuda_message_run(program, step, run, err);
  }
  return err->code;
}

static int await_copy(struct backend_program *program, int at, const struct backend_run *run,
                      struct err *err) {
  if (at < 0 || program->segments[at].n_deliveries == 0 || !run->on_value)
    return ERR_OK;
  return cuda_check(NULL, cudaStreamWaitEvent(program->compute, program->segments[at].copied, 0),
                    "order its streams", err);
}

/* The deliveries of so many segments before are still being copied: what is enqueued now may overwrite those
   of the ones before. The backward part may overwrite all of the forward part. */
static int await_copies(struct backend_program *program, int at, const struct backend_run *run,
                        struct err *err) {
  if (at == program->n_forward_segments && run->part == BACKEND_WHOLE)
    for (int before = at - CUDA_SEGMENTS_BEHIND; before < at; before++)
      if (await_copy(program, before, run, err))
        return err->code;
  return await_copy(program, at - CUDA_SEGMENTS_BEHIND - 1, run, err);
}

/* Whether the last segments that were enqueued are still to be computed. It is not known of those without
   deliveries, which are before the others. */
static bool is_far_ahead(const struct backend_program *program, const struct progress *progress) {
  int at = progress->enqueued - SEGMENTS_AHEAD;
  if (at < progress->next || program->segments[at].n_deliveries == 0)
    return false;
  if (cudaEventQuery(program->segments[at].computed) != cudaErrorNotReady)
    return false;
  cudaGetLastError(); /* no error, but noted as one */
  return true;
}

/* Hands over what has come, in order. Waits for all when all are enqueued. */
static int run_deliver(struct backend_program *program, const struct backend_run *run,
                       struct progress *progress, struct err *err) {
  bool is_all = progress->enqueued == progress->end, is_due = true;
  while (progress->next < progress->enqueued && is_due) {
    struct cuda_segment *segment = &program->segments[progress->next];
    cudaError_t status = cuda_delivery_status(segment, run, is_all);
    if (status == cudaErrorNotReady)
      return ERR_OK;
    if (cuda_check(NULL, status, "finish its work", err) || cuda_delivery_finish(program, segment, run, err))
      return err->code;
    progress->next++;
    is_due = is_all || segment->n_deliveries == 0 || is_far_ahead(program, progress);
  }
  return ERR_OK;
}

/* Its steps have the addresses of the context that they ran in last. */
static void segment_bind(struct backend_program *program, struct cuda_segment *segment, int in) {
  if (segment->in == in)
    return;
  for (int s = segment->begin; s < segment->end; s++)
    cuda_step_bind(program, program->steps[s], in);
  segment->in = in;
}

static int segment_run(struct backend_program *program, int k, bool is_first, const struct backend_run *run,
                       struct err *err) {
  struct cuda_segment *segment = &program->segments[k];
  segment_bind(program, segment, run->in);
  if (cuda_upload_weights(program, segment, is_first, run, err) || await_copies(program, k, run, err))
    return err->code;
  cuda_timeline_mark(program, segment, CUDA_MARK_COMPUTE);
  if (steps_run(program, segment, run, err))
    return err->code;
  cuda_timeline_mark(program, segment, CUDA_MARK_COMPUTE + 1);
  return cuda_delivery_start(program, segment, run, err);
}

static int segments_run(struct backend_program *program, const struct range *range,
                        const struct backend_run *run, struct err *err) {
  struct progress progress = {range->begin, range->begin, range->end};
  while (progress.enqueued < range->end) {
    int k = progress.enqueued++;
    if (segment_run(program, k, k == range->begin, run, err) || run_deliver(program, run, &progress, err))
      return err->code;
  }
  return ERR_OK;
}

int cuda_compute_finish(struct backend_program *program, struct err *err) {
  struct cuda_fault *fault = &program->pinned->faults[program->n_segments];
  if (cuda_check(NULL,
                 cudaMemcpyAsync(fault, &program->words->fault, sizeof *fault, cudaMemcpyDeviceToHost,
                                 program->compute),
                 "copy from the device", err) ||
      cuda_check(NULL, cudaStreamSynchronize(program->compute), "finish its work", err))
    return err->code;
  return cuda_fault_error(program, fault, err);
}

/* Nothing of ours is under way when an execution ends, however it ends. */
static void streams_drain(struct backend_program *program) {
  cudaStreamSynchronize(program->up);
  cudaStreamSynchronize(program->compute);
  cudaStreamSynchronize(program->down);
  cudaGetLastError();
}

static int part_run(struct backend_program *program, const struct range *range, const struct backend_run *run,
                    struct err *err) {
  if (backend_thread_init(err) || cuda_device_use(program->view.options.device, err))
    return err->code;
  cuda_timeline_begin(program);
  memset(program->not_finite, 0, (size_t)program->n_watched * sizeof *program->not_finite);
  if (cuda_upload_begin(program, range->begin, run, err) ||
      (run->part == BACKEND_BACKWARD && cuda_upload_resumed(program, run, err)) ||
      segments_run(program, range, run, err) || cuda_compute_finish(program, err))
    streams_drain(program);
  else
    cuda_timeline_end(program, run);
  return err->code;
}

int cuda_run(struct backend_program *program, const struct backend_run *run, struct err *err) {
  bool is_backward = run->part == BACKEND_BACKWARD;
  struct range range = {.begin = is_backward ? program->n_forward_segments : 0,
                        .end =
                            run->part == BACKEND_FORWARD ? program->n_forward_segments : program->n_segments};
  CHECK(run->in >= 0 && run->in < program->n_contexts);
  uint64_t *in_flight = &program->in_flight[run->in];
  CHECK(!is_backward || *in_flight != 0);
  program->execution = is_backward ? *in_flight : ++program->executions;
  *in_flight = 0;
  if (range.begin < range.end && part_run(program, &range, run, err))
    return err->code;
  if (run->part == BACKEND_FORWARD)
    *in_flight = program->execution;
  return ERR_OK;
}
