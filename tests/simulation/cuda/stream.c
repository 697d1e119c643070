/* Streams, events, kernels and host functions in them. */
#include "tests/simulation/cuda/simulation.h"

#include <stdlib.h>

#include "common/base/memory.h"

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags) {
  cudaError_t error = sim_device_error(sim_device());
  if (error)
    return sim_return(error);
  *out = mem_new(sizeof **out);
  (*out)->device = sim_device();
  (*out)->flags = flags;
  sim_stream_add(*out);
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  if (!stream)
    return sim_return(cudaErrorInvalidResourceHandle);
  sim_run_stream(stream); /* CUDA lets it finish */
  if (stream->capture) {
    sim_capture_spoil(stream->capture, cudaErrorStreamCaptureInvalidated);
    sim_capture_put(stream->capture);
  }
  sim_stream_remove(stream);
  free(stream->ends);
  free(stream);
  return sim_return(sim_device_error(sim_device()));
}

/* Of a call that waits for the stream or asks about it. */
static cudaError_t may_ask(cudaStream_t stream) {
  cudaError_t error;
  if (stream->capture)
    return sim_capture_spoil(stream->capture, cudaErrorStreamCaptureUnsupported);
  error = sim_capture_forbids();
  return error ? error : sim_device_error(stream->device);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  cudaError_t error;
  stream = sim_stream_of(stream);
  error = may_ask(stream);
  if (error)
    return sim_return(error);
  sim_run_stream(stream);
  return sim_return(sim_device_error(stream->device));
}

cudaError_t cudaDeviceSynchronize(void) {
  cudaError_t error = sim_capture_forbids();
  if (error)
    return sim_return(error);
  sim_run_device(sim_device());
  return sim_return(sim_device_error(sim_device()));
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags) {
  cudaError_t error = sim_device_error(sim_device());
  if (error)
    return sim_return(error);
  *out = mem_new(sizeof **out);
  (*out)->device = sim_device();
  (*out)->flags = flags;
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *out) {
  return cudaEventCreateWithFlags(out, cudaEventDefault);
}

static void event_clear(cudaEvent_t event) {
  sim_moment_put(event->moment);
  sim_capture_put(event->capture);
  free(event->ends);
  event->moment = NULL;
  event->capture = NULL;
  event->ends = NULL;
  event->n_ends = 0;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  if (!event)
    return sim_return(cudaErrorInvalidResourceHandle);
  event_clear(event);
  free(event);
  return sim_return(sim_device_error(sim_device()));
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  stream = sim_stream_of(stream);
  if (!event || event->device != stream->device)
    return sim_return(cudaErrorInvalidResourceHandle);
  event_clear(event);
  if (stream->capture)
    return sim_return(sim_capture_event(stream, event));
  event->moment = sim_moment_new();
  return sim_return(sim_enqueue(stream, sim_pass_new(event->moment)));
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  stream = sim_stream_of(stream);
  if (!event)
    return sim_return(cudaErrorInvalidResourceHandle);
  if (flags != cudaEventWaitDefault)
    return sim_return(cudaErrorNotSupported);
  if (stream->capture || event->capture)
    return sim_return(sim_capture_wait(stream, event));
  if (!event->moment)
    return cudaSuccess; /* never recorded: nothing to wait for */
  return sim_return(sim_enqueue(stream, sim_wait_new(event->moment)));
}

static cudaError_t may_ask_event(cudaEvent_t event) {
  cudaError_t error;
  if (!event)
    return cudaErrorInvalidResourceHandle;
  if (event->capture)
    return sim_capture_spoil(event->capture, cudaErrorCapturedEvent);
  error = sim_capture_forbids();
  return error ? error : sim_device_error(event->device);
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  cudaError_t error = may_ask_event(event);
  if (error || !event->moment)
    return sim_return(error);
  if (!event->moment->is_past)
    sim_run_some();
  error = sim_device_error(event->device);
  return sim_return(error                    ? error
                    : event->moment->is_past ? cudaSuccess
                                             : cudaErrorNotReady); /* noted, too */
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  struct sim_moment *moment;
  cudaError_t error = may_ask_event(event);
  if (error || !event->moment)
    return sim_return(error);
  moment = sim_moment_get(event->moment);
  sim_run_until(moment);
  sim_moment_put(moment);
  return sim_return(sim_device_error(event->device));
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to) {
  if (!from || !to || !from->moment || !to->moment || (from->flags | to->flags) & cudaEventDisableTiming)
    return sim_return(cudaErrorInvalidResourceHandle);
  if (!from->moment->is_past || !to->moment->is_past)
    return cudaErrorNotReady;
  *ms = (float)((double)(int64_t)(to->moment->time_ns - from->moment->time_ns) * 1e-6);
  return sim_return(sim_device_error(from->device));
}

struct kernel_op {
  struct sim_op op;
  struct sim_launch launch;
};

static enum sim_progress kernel_run(struct sim_op *op, void **state, int device) {
  struct kernel_op *kernel = (struct kernel_op *)op;
  (void)state;
  if (!sim_launch_run(&kernel->launch, sim_random()))
    sim_device_lose(device, cudaErrorLaunchFailure, op->name);
  return SIM_DONE;
}

static void kernel_fini(struct sim_op *op) {
  free(((struct kernel_op *)op)->launch.arguments);
}

void *sim_arguments_new(size_t size) {
  return mem_new(size);
}

void sim_launch_enqueue(const struct sim_launch *launch, cudaStream_t stream) {
  unsigned blocks = launch->blocks, threads = launch->threads;
  struct kernel_op *kernel;
  stream = sim_stream_of(stream);
  if (blocks == 0 || blocks > 0x7fffffffu || threads == 0 || threads > 1024) {
    sim_complain("kernel %s: %u blocks of %u threads", launch->name, blocks, threads);
    sim_return(cudaErrorInvalidConfiguration);
    free(launch->arguments);
    return;
  }
  if (stream->device != sim_device()) {
    sim_complain("kernel %s: its stream is of device %d, the thread is on device %d", launch->name,
                 stream->device, sim_device());
    sim_return(cudaErrorInvalidResourceHandle);
    free(launch->arguments);
    return;
  }
  kernel = sim_op_new(sizeof *kernel, launch->name, kernel_run);
  kernel->op.is_work = true;
  kernel->op.fini = kernel_fini;
  kernel->launch = *launch;
  sim_return(sim_enqueue(stream, &kernel->op));
}
