/* One execution: segment after segment is enqueued while the copies of those before go on. */
#include "worker/backend/cuda/engine/program.h"

static int steps_run(struct backend_program *program, struct cuda_segment *segment,
                     const struct backend_run *run, struct err *err) {
  if (!segment->is_host)
    return cuda_segment_enqueue(program, segment, err);
  for (int s = segment->begin; s < segment->end; s++) {
    const struct cuda_step *step = program->steps[s];
    if (step->kind == CUDA_STEP_HOST && cuda_host_run(program, step, run, err))
      return err->code;
  }
  return ERR_OK;
}

/* The deliveries of so many segments before are still being copied: what is enqueued now may overwrite those
   of the ones before. */
static int await_copies(struct backend_program *program, int at, const struct backend_run *run,
                        struct err *err) {
  int before = at - CUDA_SEGMENTS_BEHIND - 1;
  if (before < 0 || program->segments[before].n_deliveries == 0 || !run->on_value)
    return ERR_OK;
  return cuda_check(NULL, cudaStreamWaitEvent(program->compute, program->segments[before].copied, 0),
                    "order its streams", err);
}

/* Hands over what has come, in order; *next is the first segment that has not been. Waits for all when all
   are enqueued. */
static int run_deliver(struct backend_program *program, const struct backend_run *run, int enqueued,
                       int *next, struct err *err) {
  for (; *next < enqueued; ++*next) {
    struct cuda_segment *segment = &program->segments[*next];
    cudaError_t status = cuda_delivery_status(segment, run, enqueued == program->n_segments);
    if (status == cudaErrorNotReady)
      return ERR_OK;
    if (cuda_check(NULL, status, "finish its work", err) || cuda_delivery_finish(program, segment, run, err))
      return err->code;
  }
  return ERR_OK;
}

static int segment_run(struct backend_program *program, int k, const struct backend_run *run,
                       struct err *err) {
  struct cuda_segment *segment = &program->segments[k];
  if (cuda_upload_weights(program, segment, run, err) || await_copies(program, k, run, err))
    return err->code;
  cuda_timeline_mark(program, segment, CUDA_MARK_COMPUTE);
  if (steps_run(program, segment, run, err))
    return err->code;
  cuda_timeline_mark(program, segment, CUDA_MARK_COMPUTE + 1);
  return cuda_delivery_start(program, segment, run, err);
}

static int segments_run(struct backend_program *program, const struct backend_run *run, struct err *err) {
  int next = 0;
  for (int k = 0; k < program->n_segments; k++)
    if (segment_run(program, k, run, err) || run_deliver(program, run, k + 1, &next, err))
      return err->code;
  return ERR_OK;
}

/* What the kernels of the last segments found. */
static int run_end(struct backend_program *program, struct err *err) {
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

int cuda_run(struct backend_program *program, const struct backend_run *run, struct err *err) {
  if (run->part != BACKEND_WHOLE)
    return err_set(err, ERR_UNSUPPORTED, "the cuda backend runs forward and backward part as one");
  if (program->n_segments == 0)
    return ERR_OK;
  if (backend_thread_init(err) || cuda_device_use(program->view.options.device, err))
    return err->code;
  cuda_timeline_begin(program);
  if (cuda_upload_begin(program, run, err) || segments_run(program, run, err) || run_end(program, err))
    streams_drain(program);
  else
    cuda_timeline_end(program, run);
  return err->code;
}
