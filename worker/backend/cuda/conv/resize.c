/* Resize, Upsample and their gradient: the tables of model/ops/shared/resize.h, in device memory. */
#include "worker/backend/cuda/conv/resize.h"

#include <stdlib.h>
#include <string.h>

#include "model/ops/shared/resize.h"
#include "worker/backend/cuda/engine/program.h"

struct details {
  struct cuda_resize resize;
  void *tables; /* device memory */
};

/* The tables of one axis as host memory: `terms` behind one another. */
struct table {
  int64_t n, terms;
  int32_t *first, *from;
  float *weight;
  const uint8_t *is_outside;
};

static int enqueue_resize(struct backend_program *program, const struct cuda_step *step, cudaStream_t stream,
                          struct err *err) {
  const struct details *details = step->details;
  (void)program;
  cuda_resize_launch(&details->resize, &step->args[0].tensor, &step->args[1].tensor, stream);
  return cuda_check(step->node, cudaGetLastError(), "start resizing", err);
}

static void resize_release(struct cuda_step *step) {
  struct details *details = step->details;
  cudaFree(details->tables);
}

static bool is_outside(const struct resample_axis *axis, int64_t o) {
  return axis->is_outside && axis->is_outside[o];
}

/* By the elements of the result. */
static struct table table_forward(const struct resample_axis *axis, struct arena *arena) {
  struct table table = {.n = axis->out, .terms = axis->out * axis->taps};
  table.first = arena_new(arena, (size_t)(table.n + 1) * sizeof *table.first);
  table.from = arena_new(arena, (size_t)table.terms * sizeof *table.from);
  table.weight = axis->weight;
  table.is_outside = (const uint8_t *)axis->is_outside;
  for (int64_t o = 0; o <= table.n; o++)
    table.first[o] = (int32_t)(o * axis->taps);
  for (int64_t t = 0; t < table.terms; t++)
    table.from[t] = (int32_t)axis->from[t];
  return table;
}

/* By the elements of the input: where each goes, in the order of the result. */
static struct table table_backward(const struct resample_axis *axis, struct arena *arena) {
  struct table table = {.n = axis->in, .terms = axis->out * axis->taps};
  int32_t *next = arena_new(arena, (size_t)(table.n + 1) * sizeof *next);
  table.first = arena_new(arena, (size_t)(table.n + 1) * sizeof *table.first);
  table.from = arena_new(arena, (size_t)table.terms * sizeof *table.from);
  table.weight = arena_new(arena, (size_t)table.terms * sizeof *table.weight);
  for (int64_t t = 0; t < table.terms; t++)
    if (!is_outside(axis, t / axis->taps))
      table.first[axis->from[t] + 1]++;
  for (int64_t i = 0; i < table.n; i++)
    next[i + 1] = table.first[i + 1] += table.first[i];
  for (int64_t t = 0; t < table.terms; t++) {
    if (is_outside(axis, t / axis->taps))
      continue;
    int32_t at = next[axis->from[t]]++;
    table.from[at] = (int32_t)(t / axis->taps);
    table.weight[at] = axis->weight[t];
  }
  return table;
}

static size_t table_bytes(const struct table *table) {
  return ((size_t)(table->n + 1) + 2 * (size_t)table->terms) * sizeof(int32_t) + (size_t)table->n;
}

/* Copies the tables to device memory, one behind the other, and points the axes at them. */
static bool tables_upload(struct backend_program *program, const struct node *node, struct details *details,
                          const struct table *tables) {
  size_t size = 0, at = 0;
  bool is_ok;
  for (int k = 0; k < details->resize.n_axes; k++)
    size += (table_bytes(&tables[k]) + sizeof(int32_t) - 1) / sizeof(int32_t) * sizeof(int32_t);
  char *bytes = mem_new(size), *device;
  if (cuda_memory_new(size, "tables for resizing", &details->tables, &program->err)) {
    free(bytes);
    return false;
  }
  device = details->tables;
  for (int k = 0; k < details->resize.n_axes; k++) {
    const struct table *table = &tables[k];
    struct cuda_resize_axis *axis = &details->resize.axis[k];
    const void *parts[] = {table->first, table->from, table->weight, table->is_outside};
    size_t sizes[] = {(size_t)(table->n + 1) * sizeof(int32_t), (size_t)table->terms * sizeof(int32_t),
                      (size_t)table->terms * sizeof(float), (size_t)table->n};
    const void *places[4];
    for (int p = 0; p < 4; p++) {
      places[p] = device + at;
      if (parts[p])
        memcpy(bytes + at, parts[p], sizes[p]);
      at += (sizes[p] + sizeof(int32_t) - 1) / sizeof(int32_t) * sizeof(int32_t);
    }
    axis->first = places[0];
    axis->from = places[1];
    axis->weight = places[2];
    axis->is_outside = table->is_outside ? places[3] : NULL;
  }
  is_ok = cuda_ok(program, node,
                  cudaMemcpyAsync(details->tables, bytes, size, cudaMemcpyHostToDevice, program->compute),
                  "copy tables for resizing") &&
          cuda_ok(program, node, cudaStreamSynchronize(program->compute), "copy tables for resizing");
  free(bytes);
  return is_ok;
}

/* How the result is walked: dense, or in channels-last, where the first axis of the tables is that of samples
   and channels together. */
static void resize_describe(struct cuda_resize *resize, const struct resample *resample,
                            const struct cuda_tensor *to, bool is_back) {
  bool is_channels_last = to->layout == CUDA_CHANNELS_LAST;
  int64_t stride = is_channels_last ? to->dim[1] : 1;
  resize->rank = resample->rank + is_channels_last;
  resize->elems = to->elems;
  for (int d = resample->rank - 1; d >= 0; d--) {
    const struct resample_axis *axis = &resample->axis[d];
    int64_t out = is_back ? axis->in : axis->out;
    if (axis->from) {
      resize->axis[resize->n_axes].dim = d;
      resize->axis[resize->n_axes++].stride = stride;
    } else {
      resize->kept[d] = stride;
      out = is_channels_last && d == 0 ? to->dim[0] : out;
    }
    resize->out[d] = cuda_divisor_of(out);
    stride *= is_back ? axis->out : axis->in;
  }
  if (is_channels_last) {
    resize->kept[resize->rank - 1] = 1;
    resize->out[resize->rank - 1] = cuda_divisor_of(to->dim[1]);
  }
}

/* Channels-last where only what is behind the channels is resized. */
static enum cuda_layout layout_of(const struct backend_program *program, const struct node *node,
                                  const struct resample *resample) {
  const struct shape *shape = &node_input(program->graph, node, 0)->shape;
  if (cuda_layout_of(program, node->inputs[0]) != CUDA_CHANNELS_LAST || resample->axis[0].from ||
      resample->axis[0].in != shape->dim[0] * shape->dim[1])
    return CUDA_DENSE;
  for (int d = 1; d < resample->rank; d++)
    if (!resample->axis[d].from)
      return CUDA_DENSE;
  return CUDA_CHANNELS_LAST;
}

static bool is_fit(const struct resample *resample) {
  for (int d = 0; d < resample->rank; d++) {
    const struct resample_axis *axis = &resample->axis[d];
    if (axis->from && (axis->in > INT32_MAX || axis->out * axis->taps >= INT32_MAX))
      return false;
  }
  return true;
}

static bool is_unchanged(const struct resample *resample) {
  int n = 0;
  for (int d = 0; d < resample->rank; d++)
    n += resample->axis[d].from != NULL;
  return n == 0;
}

static void resize_build(struct backend_program *program, const struct node *node,
                         const struct resample *resample, bool is_back) {
  struct details *details = arena_new(&program->memory, sizeof *details);
  struct cuda_step *step = cuda_step_new(program, node);
  enum cuda_layout layout = layout_of(program, node, resample);
  struct table tables[RESIZE_AXES_MAX];
  struct arena arena;
  cuda_read(program, step, node->inputs[0], CUDA_ANY_TYPE, layout);
  cuda_write(program, step, node->outputs[0], CUDA_ANY_TYPE, layout);
  resize_describe(&details->resize, resample, &step->args[1].tensor, is_back);
  details->resize.fill = is_back ? 0.0f : resample->fill;
  arena_init(&arena);
  for (int k = 0; k < details->resize.n_axes; k++) {
    const struct resample_axis *axis = &resample->axis[details->resize.axis[k].dim];
    tables[k] = is_back ? table_backward(axis, &arena) : table_forward(axis, &arena);
  }
  tables_upload(program, node, details, tables);
  arena_fini(&arena);
  step->details = details;
  step->enqueue = enqueue_resize;
  step->release = resize_release;
  cuda_step_end(program, step);
}

bool cuda_resample_prepare(struct backend_program *program, const struct node *node,
                           const struct resample *resample, bool is_back) {
  if (!is_fit(resample))
    return false;
  if (is_unchanged(resample))
    cuda_alias(program, node->outputs[0], node->inputs[0]);
  else
    resize_build(program, node, resample, is_back);
  return true;
}

static bool prepare_either(struct backend_program *program, const struct node *node, bool is_back) {
  const struct graph *graph = program->graph;
  const struct value *x = is_back ? node_output(graph, node, 0) : node_input(graph, node, 0);
  struct resample resample;
  struct resize resize;
  struct err err = ERR_NONE;
  bool is_prepared;
  if (resize_read(graph, node, &x->shape, &resize, &err))
    return false;
  is_prepared = !resize_tables(&resize, node, &resample, &err) &&
                cuda_resample_prepare(program, node, &resample, is_back);
  resample_fini(&resample);
  return is_prepared;
}

static bool prepare_resize(struct backend_program *program, const struct node *node) {
  return prepare_either(program, node, false);
}

static bool prepare_resize_grad(struct backend_program *program, const struct node *node) {
  return prepare_either(program, node, true);
}

const struct cuda_kernel cuda_kernel_resize = {.op = "Resize", .prepare = prepare_resize, .settings = 1};
const struct cuda_kernel cuda_kernel_resize_grad = {.op = "ResizeGrad", .prepare = prepare_resize_grad};
const struct cuda_kernel cuda_kernel_upsample = {.op = "Upsample", .prepare = prepare_resize, .settings = 1};
