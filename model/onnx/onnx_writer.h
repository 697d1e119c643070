/* Writing ONNX models: nodes, and weights that are drawn when the model is packed. */
#ifndef WEIR_MODEL_ONNX_ONNX_WRITER_H
#define WEIR_MODEL_ONNX_ONNX_WRITER_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/memory.h"
#include "model/onnx/initial_values.h"
#include "onnx.pb-c.h"

enum { ONNX_DIMS_MAX = 8 };

/* A model being built. Everything lives in the arena until onnx_writer_fini. The first error stays, whatever
   is added behind it, and comes out of onnx_writer_pack. */
struct onnx_writer {
  struct arena arena;
  Onnx__ModelProto model;
  Onnx__GraphProto graph;
  int node_capacity, tensor_capacity;
  struct initial_values *values; /* of each initializer */
  uint64_t elems, parameters;    /* of all initializers; of those that are no statistics */
  uint64_t seed;                 /* of the initial weights */
  struct err err;
};

/* An attribute of a node; a list of them ends with {0}. */
struct onnx_attr {
  const char *name;
  enum { ONNX_INT, ONNX_INTS, ONNX_FLOAT, ONNX_TEXT } kind;
  int n; /* of ints */
  int64_t ints[ONNX_DIMS_MAX];
  float real;
  const char *text;
};

static inline struct onnx_attr onnx_int(const char *name, int64_t value) {
  return (struct onnx_attr){.name = name, .kind = ONNX_INT, .n = 1, .ints = {value}};
}
static inline struct onnx_attr onnx_float(const char *name, float value) {
  return (struct onnx_attr){.name = name, .kind = ONNX_FLOAT, .real = value};
}
static inline struct onnx_attr onnx_text(const char *name, const char *value) {
  return (struct onnx_attr){.name = name, .kind = ONNX_TEXT, .text = value};
}
/* Lists of names and attributes, for the calls below. */
#define ONNX_NAMES(...) ((const char *const[]){__VA_ARGS__, NULL})
#define ONNX_ATTRS(...) ((const struct onnx_attr[]){__VA_ARGS__, {0}})

/* n times the same value, as a kernel's or a stride's is in each direction. */
struct onnx_attr onnx_ints_of(const char *name, int n, int64_t value);
struct onnx_attr onnx_ints(const char *name, int n, const int64_t *values);

void onnx_writer_init(struct onnx_writer *writer, const char *name, uint64_t seed);
void onnx_writer_fini(struct onnx_writer *writer);

/* The model is refused: for builders, which go on. */
void onnx_writer_fail(struct onnx_writer *writer, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* [batch, dims...], where the batch is symbolic. Inputs return their name. */
const char *onnx_writer_input(struct onnx_writer *writer, const char *name, Onnx__TensorProto__DataType type,
                              const int64_t *dims, int rank);
void onnx_writer_output(struct onnx_writer *writer, const char *name, const int64_t *dims, int rank);

/* An f32 initializer, which returns its name: a parameter, whose values are drawn from the seed and its place
   among the initializers, or a running statistic. */
const char *onnx_writer_parameter(struct onnx_writer *writer, const char *name, const int64_t *dims, int rank,
                                  struct initial_values values);
const char *onnx_writer_statistic(struct onnx_writer *writer, const char *name, int64_t elems, double value);

/* Constants, as nodes: an initializer would be trained. They return their name. */
const char *onnx_writer_ints(struct onnx_writer *writer, const char *name, const int64_t *values, int n);
const char *onnx_writer_int(struct onnx_writer *writer, const char *name, int64_t value); /* i64[] */
const char *onnx_writer_float(struct onnx_writer *writer, const char *name, float value); /* f32[] */
const char *onnx_writer_true(struct onnx_writer *writer, const char *name);               /* bool[] */

/* A node with one output, named after it; returns the output's name. inputs end with NULL, attrs may be NULL.
 */
const char *onnx_writer_node(struct onnx_writer *writer, const char *op, const char *output,
                             const char *const *inputs, const struct onnx_attr *attrs);
/* The same with further outputs (ending with NULL). */
const char *onnx_writer_node_outputs(struct onnx_writer *writer, const char *op, const char *const *outputs,
                                     const char *const *inputs, const struct onnx_attr *attrs);

/* Draws the weights and gives the model's bytes, which are the caller's to free. Errors: what a builder
   refused; UNSUPPORTED for more than a file can hold; NO_MEMORY. */
int onnx_writer_pack(struct onnx_writer *writer, void **bytes, size_t *size_bytes, struct err *err);

#endif
