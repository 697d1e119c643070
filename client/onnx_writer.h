/* Writing ONNX models: a chain of layers with f32 weights. */
#ifndef WEIR_CLIENT_ONNX_WRITER_H
#define WEIR_CLIENT_ONNX_WRITER_H

#include <stdint.h>

#include "common/memory.h"
#include "onnx.pb-c.h"

/* A model being built. Everything lives in the arena until onnx_writer_fini. */
struct onnx_writer {
  struct arena arena;
  Onnx__ModelProto model;
  Onnx__GraphProto graph;
  int node_capacity, initializer_capacity;
  uint64_t seed; /* of the initial weights */
};

/* An integer or list of integers of a node; a list of them ends with {0}. */
struct onnx_ints {
  const char *name;
  int n; /* 0: a single integer, values[0] */
  int64_t values[4];
};

/* One f32 input and one f32 output whose first dimension is the batch (symbolic). */
void onnx_writer_init(struct onnx_writer *writer, const char *name, uint64_t seed);
void onnx_writer_fini(struct onnx_writer *writer);
void onnx_writer_input(struct onnx_writer *writer, const char *name, const int64_t *dims, int rank);
void onnx_writer_output(struct onnx_writer *writer, const char *name, const int64_t *dims, int rank);

/* f32 initializers, which return their name: uniform in (-bound, bound) from the seed and the name, or
 * constant. */
const char *onnx_writer_uniform(struct onnx_writer *writer, const char *name, const int64_t *dims, int rank,
                                float bound);
const char *onnx_writer_constant(struct onnx_writer *writer, const char *name, int64_t elems, float value);

/* A node with one output, named after it; returns the output's name. inputs end with NULL, ints may be NULL.
 */
const char *onnx_writer_node(struct onnx_writer *writer, const char *op, const char *output,
                             const char *const *inputs, const struct onnx_ints *ints);
/* The same with further outputs (ending with NULL). */
const char *onnx_writer_node_outputs(struct onnx_writer *writer, const char *op, const char *const *outputs,
                                     const char *const *inputs, const struct onnx_ints *ints);

/* Layers with PyTorch's names (NAME.weight, NAME.bias) and initialisation: uniform in +-1/sqrt(fan_in). Each
   returns the name of its output. */
const char *onnx_writer_linear(struct onnx_writer *writer, const char *name, const char *input, int64_t in,
                               int64_t out);
const char *onnx_writer_conv2d(struct onnx_writer *writer, const char *name, const char *input, int64_t in,
                               int64_t out, int64_t kernel, int64_t pad);
const char *onnx_writer_batch_norm(struct onnx_writer *writer, const char *name, const char *input,
                                   int64_t channels);
const char *onnx_writer_dropout(struct onnx_writer *writer, const char *name, const char *input, float ratio);
const char *onnx_writer_relu(struct onnx_writer *writer, const char *name, const char *input);

#endif
