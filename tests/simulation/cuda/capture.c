/* Stream capture: what is enqueued becomes nodes of a graph, in the order of the streams and of the events
   between them. What CUDA forbids meanwhile is refused, and spoils the capture. */
#include "tests/simulation/cuda/simulation.h"

#include <pthread.h>
#include <stdlib.h>

#include "common/base/memory.h"

struct sim_capture {
  struct CUgraph_st *graph;
  cudaStream_t origin;
  enum cudaStreamCaptureMode mode;
  pthread_t thread;
  bool is_spoilt, is_over;
  int refs; /* one thread captures at a time */
};

/* Captures that the calling thread began in a mode that restricts it. */
static __thread int n_strict;
static __thread struct sim_capture *latest;

struct sim_capture *sim_capture_get(struct sim_capture *capture) {
  capture->refs++;
  return capture;
}

void sim_capture_put(struct sim_capture *capture) {
  if (!capture || --capture->refs > 0)
    return;
  if (capture->graph)
    cudaGraphDestroy(capture->graph);
  free(capture);
}

cudaError_t sim_capture_spoil(struct sim_capture *capture, cudaError_t error) {
  capture->is_spoilt = true;
  return error;
}

cudaError_t sim_capture_forbids(void) {
  if (n_strict == 0)
    return cudaSuccess;
  return sim_capture_spoil(latest, cudaErrorStreamCaptureUnsupported);
}

static void ends_set(cudaStream_t stream, int node) {
  array_reserve((void **)&stream->ends, &stream->ends_capacity, 0, sizeof *stream->ends);
  stream->ends[0] = node;
  stream->n_ends = 1;
}

static void ends_add(cudaStream_t stream, const int *ends, int n) {
  for (int i = 0; i < n; i++) {
    int at = 0;
    while (at < stream->n_ends && stream->ends[at] != ends[i])
      at++;
    if (at < stream->n_ends)
      continue;
    array_reserve((void **)&stream->ends, &stream->ends_capacity, stream->n_ends, sizeof *stream->ends);
    stream->ends[stream->n_ends++] = ends[i];
  }
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode) {
  struct sim_capture *capture;
  if (!stream || stream == cudaStreamLegacy)
    return sim_return(cudaErrorStreamCaptureUnsupported);
  if (stream->capture)
    return sim_return(cudaErrorIllegalState);
  capture = mem_new(sizeof *capture);
  capture->graph = sim_graph_new();
  capture->origin = stream;
  capture->mode = mode;
  capture->thread = pthread_self();
  capture->refs = 1;
  stream->capture = capture;
  stream->n_ends = 0;
  if (mode != cudaStreamCaptureModeRelaxed) {
    n_strict++;
    latest = capture;
  }
  return cudaSuccess;
}

cudaError_t sim_capture_add(cudaStream_t stream, struct sim_op *op) {
  struct sim_capture *capture = stream->capture;
  if (capture->is_spoilt || capture->is_over) {
    sim_op_put(op);
    return cudaErrorStreamCaptureInvalidated;
  }
  ends_set(stream, sim_graph_add(capture->graph, op, stream->ends, stream->n_ends));
  return cudaSuccess;
}

cudaError_t sim_capture_event(cudaStream_t stream, cudaEvent_t event) {
  if (stream->capture->is_spoilt)
    return cudaErrorStreamCaptureInvalidated;
  event->capture = sim_capture_get(stream->capture);
  event->n_ends = stream->n_ends;
  event->ends = mem_new((size_t)(stream->n_ends + 1) * sizeof *event->ends);
  for (int i = 0; i < stream->n_ends; i++)
    event->ends[i] = stream->ends[i];
  return cudaSuccess;
}

/* A stream that waits for an event of a capture becomes part of it. */
cudaError_t sim_capture_wait(cudaStream_t stream, cudaEvent_t event) {
  if (!event->capture) {
    if (!event->moment)
      return cudaSuccess;
    sim_complain("a stream that is captured waits for an event that was recorded outside the capture");
    return sim_capture_spoil(stream->capture, cudaErrorStreamCaptureIsolation);
  }
  if (event->capture->is_over) {
    sim_complain("a stream waits for an event that was recorded in a capture that has ended");
    return cudaErrorCapturedEvent;
  }
  if (stream->capture && stream->capture != event->capture)
    return sim_capture_spoil(stream->capture, cudaErrorStreamCaptureMerge);
  if (event->capture->is_spoilt)
    return cudaErrorStreamCaptureInvalidated;
  if (!stream->capture) {
    stream->capture = sim_capture_get(event->capture);
    stream->n_ends = 0;
  }
  ends_add(stream, event->ends, event->n_ends);
  return cudaSuccess;
}

static void end_in_stream(cudaStream_t stream, void *user) {
  if (stream->capture != user)
    return;
  stream->capture = NULL;
  stream->n_ends = 0;
  sim_capture_put(user);
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *out) {
  struct sim_capture *capture = stream ? stream->capture : NULL;
  cudaError_t error = cudaSuccess;
  *out = NULL;
  if (!capture)
    return sim_return(cudaErrorIllegalState);
  if (capture->origin != stream)
    return sim_return(sim_capture_spoil(capture, cudaErrorStreamCaptureUnmatched));
  if (capture->mode != cudaStreamCaptureModeRelaxed && !pthread_equal(capture->thread, pthread_self()))
    return sim_return(sim_capture_spoil(capture, cudaErrorStreamCaptureWrongThread));
  if (capture->is_spoilt)
    error = cudaErrorStreamCaptureInvalidated;
  else if (!sim_graph_is_joined(capture->graph, stream->ends, stream->n_ends))
    error = cudaErrorStreamCaptureUnjoined;
  if (capture->mode != cudaStreamCaptureModeRelaxed && --n_strict == 0)
    latest = NULL;
  capture->is_over = true;
  if (!error) {
    *out = capture->graph;
    capture->graph = NULL;
  }
  sim_streams_each(end_in_stream, capture);
  return sim_return(error);
}
