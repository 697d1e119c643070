/* The memory of a program: one block on the device, laid out by the steps between which buffers live, and
   what the host needs to copy from and to it. With several contexts the block begins with what is there once
   and goes on with an arena for each of them. */
#include <stdlib.h>
#include <string.h>

#include "worker/backend/cuda/engine/program.h"

enum { ROOM_SHARE = 256 }; /* of a device of 80 GiB: 320 MiB */

int cuda_memory_new(size_t size_bytes, const char *what, void **out, struct err *err) {
  size_t free_bytes = 0, total_bytes = 0;
  int device = 0;
  cudaError_t status = cudaMalloc(out, size_bytes);
  if (status == cudaSuccess)
    return ERR_OK;
  *out = NULL;
  if (status != cudaErrorMemoryAllocation)
    return cuda_check(NULL, status, "allocate memory", err);
  cudaGetLastError(); /* not sticky: forgotten */
  cudaGetDevice(&device);
  cudaMemGetInfo(&free_bytes, &total_bytes);
  return err_set(err, ERR_NO_MEMORY, "%s needs %zu bytes of device memory, %zu of %zu are free on cuda:%d",
                 what, size_bytes, free_bytes, total_bytes, device);
}

/* Kernels of NVIDIA's libraries and ours are loaded when they are first launched, and graphs made later: a
   device that has no room for them is too full now, not in the middle of a run. So is one that what is
   exchanged would fill, which has other places to go to. */
static int leave_room(size_t size_bytes, const char *what, struct err *err) {
  size_t free_bytes = 0, total_bytes = 0;
  int device = 0;
  if (cuda_check(NULL, cudaMemGetInfo(&free_bytes, &total_bytes), "ask for free memory", err))
    return err->code;
  if (free_bytes >= total_bytes / ROOM_SHARE)
    return ERR_OK;
  cudaGetDevice(&device);
  return err_set(
      err, ERR_NO_MEMORY,
      "%s needs %zu bytes of device memory, which leaves %zu on cuda:%d; %zu are kept for kernels and graphs",
      what, size_bytes, free_bytes, device, total_bytes / ROOM_SHARE);
}

int cuda_memory_available(size_t *out, struct err *err) {
  size_t free_bytes = 0, total_bytes = 0;
  if (cuda_check(NULL, cudaMemGetInfo(&free_bytes, &total_bytes), "ask for free memory", err))
    return err->code;
  size_t kept_bytes = total_bytes / ROOM_SHARE;
  *out = free_bytes > kept_bytes ? free_bytes - kept_bytes : 0;
  return ERR_OK;
}

int cuda_memory_new_leaving_room(size_t size_bytes, const char *what, void **out, struct err *err) {
  if (cuda_memory_new(size_bytes, what, out, err) || !leave_room(size_bytes, what, err))
    return err->code;
  cudaFree(*out);
  *out = NULL;
  return err->code;
}

size_t cuda_allocated_bytes(size_t size_bytes) {
  return size_bytes == 0 ? CUDA_ALIGN : (size_bytes + CUDA_ALIGN - 1) / CUDA_ALIGN * CUDA_ALIGN;
}

bool cuda_is_weight(const struct backend_program *program, int buffer) {
  const struct cuda_buffer *root = &program->buffers[buffer];
  return root->root == buffer && root->place == PLACE_KEPT && root->source < 0;
}

size_t cuda_weights_lay_out(const struct backend_program *program, void *at) {
  size_t size = 0;
  for (int v = 0; v < program->graph->n_values; v++) {
    int b = program->values[v].buffer;
    if (b < 0 || !cuda_is_weight(program, b) || !program->buffers[b].is_used)
      continue;
    if (at)
      program->buffers[b].data = (char *)at + size;
    size += cuda_allocated_bytes(program->buffers[b].size_bytes);
  }
  return size;
}

static int block_allocate(struct backend_program *program, struct err *err) {
  if (program->block_bytes > 0 &&
      cuda_memory_new_leaving_room(program->block_bytes, "one execution", &program->block, err))
    return err->code;
  for (int i = 0; i < program->n_spans && program->block; i++) {
    const struct memory_span *span = &program->spans[i];
    bool is_saved = split_is_saved(&program->split, span);
    char *at = (char *)program->block + (is_saved ? program->split.shared_bytes : 0) + span->offset;
    if (program->owners[i] < 0) {
      cuda_weights_lay_out(program, at);
      continue;
    }
    program->buffers[program->owners[i]].data = at;
    program->buffers[program->owners[i]].is_saved = is_saved;
  }
  return ERR_OK;
}

void *cuda_root_data(const struct backend_program *program, const struct cuda_buffer *root, int in) {
  return root->is_saved ? (char *)root->data + (size_t)in * program->split.saved_bytes : root->data;
}

void cuda_step_bind(const struct backend_program *program, struct cuda_step *step, int in) {
  for (int a = 0; a < step->n_args; a++)
    if (step->args[a].buffer >= 0)
      step->args[a].tensor.data = cuda_root_data(program, cuda_root(program, step->args[a].buffer), in);
}

void cuda_memory_bytes(const struct backend_program *program, struct backend_bytes *out) {
  size_t n = (size_t)program->n_spans * sizeof(struct memory_span);
  struct split split = program->split;
  struct memory_span *spans = mem_new(n + 1);
  if (n > 0)
    memcpy(spans, program->spans, n);
  split.n_contexts = 2;
  split_plan(&split, spans, program->n_spans);
  out->kept = split_kept_bytes(&split, spans, program->n_spans);
  out->scratch = split.shared_bytes - out->kept;
  out->saved = split.saved_bytes;
  free(spans);
}

int cuda_memory_open(struct backend_program *program, struct err *err) {
  size_t pinned_bytes =
      sizeof *program->pinned + ((size_t)program->n_segments + 1) * sizeof program->pinned->faults[0];
  size_t flags_bytes = ((size_t)program->n_watched + 1) * sizeof *program->not_finite;
  if (block_allocate(program, err))
    return err->code;
  for (int s = 0; s < program->n_steps; s++)
    cuda_step_bind(program, program->steps[s], 0);
  for (int c = 0; c < program->n_conversions; c++)
    cuda_step_bind(program, program->conversions[c].step, 0);
  cuda_check(NULL, cudaMallocHost((void **)&program->pinned, pinned_bytes), "pin memory", err);
  if (!err->code)
    cuda_check(NULL, cudaMallocHost((void **)&program->not_finite, flags_bytes), "pin memory", err);
  if (!err->code && program->staging_bytes > 0)
    cuda_check(NULL, cudaMallocHost(&program->staging, program->staging_bytes), "pin memory", err);
  if (!err->code)
    cuda_messages_open(program, err);
  return err->code;
}

void cuda_memory_close(struct backend_program *program) {
  for (int w = 0; w < program->n_watched && program->landings; w++)
    cudaFreeHost(program->landings[w]);
  cuda_messages_close(program);
  cudaFreeHost(program->staging);
  cudaFreeHost(program->not_finite);
  cudaFreeHost(program->pinned);
  cudaFree(program->block);
}
