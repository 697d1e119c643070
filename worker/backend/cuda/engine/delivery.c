/* Copies of values that the caller reads: into the places that it names, on any device or the host, or into
   pinned memory of ours. */
#include "common/base/clock.h"
#include "worker/backend/cuda/engine/program.h"
#include "worker/backend/cuda/engine/sums.h"

enum { LOOK_NS = 50000 };

static int copy_down(struct backend_program *program, void *to, const void *from, size_t size_bytes,
                     struct err *err) {
  if (size_bytes == 0)
    return ERR_OK;
  return cuda_check(NULL, cudaMemcpyAsync(to, from, size_bytes, cudaMemcpyDefault, program->down),
                    "copy a result", err);
}

/* Into memory of ours, made when it is first needed. */
static int delivery_land(struct backend_program *program, const struct cuda_step *step, struct err *err) {
  const struct cuda_buffer *buffer = &program->buffers[step->args[0].buffer];
  void **landing = &program->landings[step->watch];
  size_t size_bytes = buffer->size_bytes ? buffer->size_bytes : 1;
  if (!*landing && cuda_check(NULL, cudaMallocHost(landing, size_bytes), "pin memory", err))
    return err->code;
  return copy_down(program, *landing, step->args[0].tensor.data, buffer->size_bytes, err);
}

static int looks_launch(struct backend_program *program, struct cuda_sums *looks, struct err *err) {
  if (looks->n > 0)
    cuda_sums_launch(looks, program->down);
  looks->n = 0;
  return cuda_check(NULL, cudaGetLastError(), "look at a result", err);
}

/* Whether a value that is placed is finite is for the device to find out, which has it at hand. */
static int look_later(struct backend_program *program, const struct cuda_step *step, struct cuda_sums *looks,
                      struct err *err) {
  const struct cuda_tensor *tensor = &step->args[0].tensor;
  if (looks->n == CUDA_SUMS_MAX && looks_launch(program, looks, err))
    return err->code;
  if (tensor->elems > 0)
    looks->ranges[looks->n++] = (struct cuda_sum){
        .out = tensor->data, .elems = tensor->elems, .not_finite = &program->not_finite[step->watch]};
  return ERR_OK;
}

static int delivery_start(struct backend_program *program, struct cuda_step *step,
                          const struct backend_run *run, struct cuda_sums *looks, struct err *err) {
  const struct cuda_tensor *tensor = &step->args[0].tensor;
  int n = 0;
  if (run->place && tensor->type == CUDA_F32)
    n = run->place(run->user, step->watch, program->pieces, CUDA_PIECES_MAX);
  step->is_placed = n > 0;
  if (n == 0)
    return delivery_land(program, step, err);
  for (int p = 0; p < n; p++) {
    const struct backend_piece *piece = &program->pieces[p];
    if (copy_down(program, piece->to, (const float *)tensor->data + piece->begin,
                  piece->elems * sizeof(float), err))
      return err->code;
  }
  return look_later(program, step, looks, err);
}

int cuda_delivery_start(struct backend_program *program, struct cuda_segment *segment,
                        const struct backend_run *run, struct err *err) {
  struct cuda_fault *fault = &program->pinned->faults[segment - program->segments];
  struct cuda_sums looks = {.n = 0};
  if (segment->n_deliveries == 0 || !run->on_value)
    return ERR_OK;
  if (cuda_check(NULL, cudaEventRecord(segment->computed, program->compute), "record an event", err) ||
      cuda_check(NULL, cudaStreamWaitEvent(program->down, segment->computed, 0), "order its streams", err))
    return err->code;
  cuda_timeline_mark(program, segment, CUDA_MARK_DOWN);
  if (copy_down(program, fault, &program->words->fault, sizeof *fault, err))
    return err->code;
  for (int s = segment->begin; s < segment->end; s++)
    if (program->steps[s]->kind == CUDA_STEP_DELIVERY &&
        delivery_start(program, program->steps[s], run, &looks, err))
      return err->code;
  if (looks_launch(program, &looks, err))
    return err->code;
  cuda_timeline_mark(program, segment, CUDA_MARK_DOWN + 1);
  return cuda_check(NULL, cudaEventRecord(segment->copied, program->down), "record an event", err);
}

/* The thread sleeps, so that others may have its core; but waking it takes about as long as a small segment,
   which is looked for first. */
static cudaError_t await_copies(const struct cuda_segment *segment) {
  uint64_t end_ns = clock_now_ns() + LOOK_NS;
  cudaError_t status;
  do {
    status = cudaEventQuery(segment->copied);
    if (status != cudaErrorNotReady)
      return status;
    cudaGetLastError(); /* no error, but noted as one */
  } while (clock_now_ns() < end_ns);
  return cudaEventSynchronize(segment->copied);
}

static bool has_deliveries(const struct cuda_segment *segment, const struct backend_run *run) {
  return segment->n_deliveries > 0 && run->on_value;
}

cudaError_t cuda_delivery_status(const struct cuda_segment *segment, const struct backend_run *run,
                                 bool is_waiting) {
  if (!has_deliveries(segment, run))
    return cudaSuccess;
  cudaError_t status = is_waiting ? await_copies(segment) : cudaEventQuery(segment->copied);
  if (status == cudaErrorNotReady)
    cudaGetLastError(); /* no error, but noted as one */
  return status;
}

int cuda_delivery_finish(struct backend_program *program, struct cuda_segment *segment,
                         const struct backend_run *run, struct err *err) {
  if (!has_deliveries(segment, run))
    return ERR_OK;
  if (cuda_fault_error(program, &program->pinned->faults[segment - program->segments], err))
    return err->code;
  for (int s = segment->begin; s < segment->end; s++) {
    const struct cuda_step *step = program->steps[s];
    if (step->kind == CUDA_STEP_DELIVERY && step->is_placed)
      run->placed(run->user, step->watch, !program->not_finite[step->watch]);
    else if (step->kind == CUDA_STEP_DELIVERY)
      run->on_value(run->user, step->watch, program->landings[step->watch]);
  }
  if (run->after_values)
    run->after_values(run->user);
  return ERR_OK;
}
