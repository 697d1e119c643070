/* Memory of devices, for worker/train: gradients are added where they are, weights go from device to device.
 */
#include "worker/backend/device_memory.h"

#include <stdlib.h>

#include "worker/backend/cuda/engine/program.h"
#include "worker/backend/cuda/engine/sums.h"

/* So much of what is not on the device is brought there at once, to be added. */
enum { SCRATCH_BYTES = 8 << 20 };

struct device_stream {
  int device;
  cudaStream_t stream;
  int *not_finite; /* on the device */
  int *noted;      /* pinned: what it was when the stream was waited for */
  float *scratch;  /* f32[SCRATCH_BYTES / 4] on the device; NULL: not needed yet */
  struct cuda_sums sums;
  size_t scratch_used; /* elements, by the sums that are not launched yet */
};

static int memory_new(int device, size_t size_bytes, void **out, struct err *err) {
  *out = NULL;
  if (cuda_device_use(device, err))
    return err->code;
  return cuda_memory_new_leaving_room(size_bytes, "what is exchanged", out, err);
}

static void memory_free(int device, void *bytes) {
  struct err ignored = ERR_NONE;
  if (bytes && !cuda_device_use(device, &ignored))
    cudaFree(bytes);
}

static void stream_close(struct device_stream *s) {
  struct err ignored = ERR_NONE;
  if (!s)
    return;
  cuda_device_use(s->device, &ignored);
  if (s->stream) {
    cudaStreamSynchronize(s->stream);
    cudaStreamDestroy(s->stream);
  }
  cudaFree(s->scratch);
  cudaFree(s->not_finite);
  cudaFreeHost(s->noted);
  free(s);
}

static int stream_open(int device, struct device_stream **out, struct err *err) {
  struct device_stream *s = mem_new(sizeof *s);
  void *word = NULL;
  *out = NULL;
  s->device = device;
  if (!cuda_device_use(device, err) && !cuda_memory_new(sizeof *s->not_finite, "an exchange", &word, err)) {
    s->not_finite = word;
    cuda_check(NULL, cudaStreamCreateWithFlags(&s->stream, cudaStreamNonBlocking), "make a stream", err);
  }
  if (!err->code)
    cuda_check(NULL, cudaMallocHost((void **)&s->noted, sizeof *s->noted), "pin memory", err);
  if (!err->code)
    cuda_check(NULL, cudaMemsetAsync(s->not_finite, 0, sizeof *s->not_finite, s->stream), "clear memory",
               err);
  if (err->code) {
    stream_close(s);
    return err->code;
  }
  *out = s;
  return ERR_OK;
}

/* Between devices it is a copy from peer to peer where they reach each other, or by way of the host. */
static int copy_bytes(struct device_stream *s, void *to, const void *from, size_t size_bytes,
                      struct err *err) {
  return cuda_check(NULL, cudaMemcpyAsync(to, from, size_bytes, cudaMemcpyDefault, s->stream),
                    "copy what is exchanged", err);
}

static int stream_copy(struct device_stream *s, void *to, const void *from, size_t size_bytes,
                       struct err *err) {
  if (size_bytes == 0 || to == from || cuda_device_use(s->device, err))
    return err->code;
  return copy_bytes(s, to, from, size_bytes, err);
}

/* What was put on the list. The scratch is free again for what comes after it on the stream. */
static int sums_launch(struct device_stream *s, struct err *err) {
  if (s->sums.n == 0)
    return ERR_OK;
  cuda_sums_launch(&s->sums, s->stream);
  s->sums.n = 0;
  s->scratch_used = 0;
  return cuda_check(NULL, cudaGetLastError(), "add what is exchanged", err);
}

/* Whether a kernel on the stream's device may read it. */
static bool is_here(const struct device_stream *s, const void *bytes) {
  struct cudaPointerAttributes attributes;
  if (cudaPointerGetAttributes(&attributes, bytes) != cudaSuccess) {
    cudaGetLastError(); /* it is asked for after a launch */
    return false;
  }
  return attributes.type == cudaMemoryTypeDevice && attributes.device == s->device;
}

static int sums_add(struct device_stream *s, float *out, const float *in, size_t elems, struct err *err) {
  if (s->sums.n == CUDA_SUMS_MAX && sums_launch(s, err))
    return err->code;
  s->sums.ranges[s->sums.n++] =
      (struct cuda_sum){.out = out, .in = in, .elems = (int64_t)elems, .not_finite = s->not_finite};
  return ERR_OK;
}

/* `in` comes to the device piece by piece. */
static int list_foreign(struct device_stream *s, const struct device_sum *sum, struct err *err) {
  const size_t room = SCRATCH_BYTES / sizeof(float);
  void *scratch = s->scratch;
  cuda_device_reach(s->device, sum->in);
  if (!scratch && cuda_memory_new(SCRATCH_BYTES, "an exchange", &scratch, err))
    return err->code;
  s->scratch = scratch;
  for (size_t done = 0; done < sum->elems && !err->code;) {
    size_t left = sum->elems - done, n;
    if ((s->scratch_used == room || s->sums.n == CUDA_SUMS_MAX) && sums_launch(s, err))
      return err->code;
    n = left < room - s->scratch_used ? left : room - s->scratch_used;
    float *to = s->scratch + s->scratch_used;
    if (!copy_bytes(s, to, sum->in + done, n * sizeof(float), err) &&
        !sums_add(s, sum->out + done, to, n, err))
      s->scratch_used += n;
    done += n;
  }
  return err->code;
}

static int stream_add(struct device_stream *s, const struct device_sum *sums, int n, struct err *err) {
  if (cuda_device_use(s->device, err))
    return err->code;
  for (int i = 0; i < n && !err->code; i++)
    if (sums[i].elems == 0)
      continue;
    else if (!sums[i].in || is_here(s, sums[i].in))
      sums_add(s, sums[i].out, sums[i].in, sums[i].elems, err);
    else
      list_foreign(s, &sums[i], err);
  if (!err->code)
    sums_launch(s, err);
  s->sums.n = 0;
  s->scratch_used = 0;
  return err->code;
}

static int stream_wait(struct device_stream *s, bool *is_finite, struct err *err) {
  if (cuda_device_use(s->device, err) || copy_bytes(s, s->noted, s->not_finite, sizeof *s->noted, err) ||
      cuda_check(NULL, cudaMemsetAsync(s->not_finite, 0, sizeof *s->not_finite, s->stream), "clear memory",
                 err) ||
      cuda_check(NULL, cudaStreamSynchronize(s->stream), "finish an exchange", err))
    return err->code;
  *is_finite = *s->noted == 0;
  return ERR_OK;
}

const struct device_memory cuda_device_memory = {
    .new = memory_new,
    .free = memory_free,
    .open = stream_open,
    .close = stream_close,
    .copy = stream_copy,
    .add = stream_add,
    .wait = stream_wait,
};
