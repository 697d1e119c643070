/* The memory of a program: one block on the device, laid out by the steps between which buffers live, and
   what the host needs to copy from and to it. */
#include "model/graph/memory_plan.h"

#include <stdlib.h>

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

int cuda_memory_new_leaving_room(size_t size_bytes, const char *what, void **out, struct err *err) {
  if (cuda_memory_new(size_bytes, what, out, err) || !leave_room(size_bytes, what, err))
    return err->code;
  cudaFree(*out);
  *out = NULL;
  return err->code;
}

static size_t rounded_up(size_t size) {
  return size == 0 ? CUDA_ALIGN : (size + CUDA_ALIGN - 1) / CUDA_ALIGN * CUDA_ALIGN;
}

/* When a root's bytes are in use. Inputs are there before the first step. */
static struct memory_span span_of(const struct backend_program *program, const struct cuda_buffer *root) {
  struct memory_span span = {.size_bytes = rounded_up(root->size_bytes), .last = program->n_steps};
  if (root->place == PLACE_KEPT)
    return span;
  bool is_input = root->value >= 0 && program->graph->values[root->value].kind == VALUE_INPUT;
  span.first = is_input ? 0 : root->first;
  span.last = root->last;
  return span;
}

/* Copied from outside, not made from another. */
static bool is_weight(const struct backend_program *program, int b) {
  const struct cuda_buffer *buffer = &program->buffers[b];
  return buffer->root == b && buffer->place == PLACE_KEPT && buffer->source < 0;
}

/* Side by side in the graph's order: parameters, which lie so where they come from, go up in one copy where
   alignment leaves no gap. Returns their bytes. at: where they go; NULL: that is not known yet. */
static size_t weights_lay_out(struct backend_program *program, char *at) {
  size_t size = 0;
  for (int v = 0; v < program->graph->n_values; v++) {
    int b = program->values[v].buffer;
    if (b < 0 || !is_weight(program, b))
      continue;
    if (at)
      program->buffers[b].data = at + size;
    size += rounded_up(program->buffers[b].size_bytes);
  }
  return size;
}

static int block_allocate(struct backend_program *program, struct err *err) {
  struct memory_span *spans = mem_new(((size_t)program->n_buffers + 1) * sizeof *spans), *weights = spans;
  int *owners = mem_new(((size_t)program->n_buffers + 1) * sizeof *owners);
  int n = 1, code = ERR_OK;
  *weights = (struct memory_span){.size_bytes = weights_lay_out(program, NULL), .last = program->n_steps};
  for (int b = 0; b < program->n_buffers; b++) {
    const struct cuda_buffer *root = &program->buffers[b];
    if (root->root != b || is_weight(program, b) || (root->place == PLACE_PLANNED && root->first < 0))
      continue;
    owners[n] = b;
    spans[n++] = span_of(program, root);
  }
  program->block_bytes = memory_plan(spans, n);
  if (program->block_bytes > 0)
    code = cuda_memory_new_leaving_room(program->block_bytes, "one execution", &program->block, err);
  if (program->block)
    weights_lay_out(program, (char *)program->block + weights->offset);
  for (int i = 1; i < n && !code; i++)
    program->buffers[owners[i]].data = (char *)program->block + spans[i].offset;
  free(spans);
  free(owners);
  return code;
}

static void step_bind(struct backend_program *program, struct cuda_step *step) {
  for (int a = 0; a < step->n_args; a++)
    if (step->args[a].buffer >= 0)
      step->args[a].tensor.data = cuda_root(program, step->args[a].buffer)->data;
}

int cuda_memory_open(struct backend_program *program, struct err *err) {
  size_t pinned_bytes =
      sizeof *program->pinned + ((size_t)program->n_segments + 1) * sizeof program->pinned->faults[0];
  if (block_allocate(program, err))
    return err->code;
  for (int s = 0; s < program->n_steps; s++)
    step_bind(program, program->steps[s]);
  for (int c = 0; c < program->n_conversions; c++)
    step_bind(program, program->conversions[c].step);
  cuda_check(NULL, cudaMallocHost((void **)&program->pinned, pinned_bytes), "pin memory", err);
  if (!err->code && program->staging_bytes > 0)
    cuda_check(NULL, cudaMallocHost(&program->staging, program->staging_bytes), "pin memory", err);
  return err->code;
}

void cuda_memory_close(struct backend_program *program) {
  for (int w = 0; w < program->n_watched && program->landings; w++)
    cudaFreeHost(program->landings[w]);
  cudaFreeHost(program->staging);
  cudaFreeHost(program->pinned);
  cudaFree(program->block);
}
