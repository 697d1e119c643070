/* Builds small ONNX files for tests. */
#ifndef WEIR_TESTS_SUPPORT_ONNX_BUILD_H
#define WEIR_TESTS_SUPPORT_ONNX_BUILD_H

#include <stdlib.h>
#include <string.h>

#include "common/base/memory.h"
#include "onnx.pb-c.h"

/* A model being built; everything lives in the arena until onnx_build_fini. */
struct onnx_build {
  struct arena arena;
  Onnx__ModelProto model;
  Onnx__GraphProto graph;
  Onnx__OperatorSetIdProto opset, *opsets[1];
  void *bytes; /* of onnx_build_pack */
};

#define ONNX_BUILD_LIST_MAX 64

void onnx_build_init(struct onnx_build *build, int64_t opset);

void onnx_build_fini(struct onnx_build *build);

/* The file's bytes, good until the next call or onnx_build_fini. */
const void *onnx_build_pack(struct onnx_build *build, size_t *size);

/* A dimension of -1 is symbolic. */
Onnx__ValueInfoProto *onnx_build_info(struct onnx_build *build, const char *name, int type,
                                      const int64_t *dims, int rank);

#define DIMS(...) (const int64_t[]){__VA_ARGS__}, (int)(sizeof((const int64_t[]){__VA_ARGS__}) / 8)

void onnx_build_input(struct onnx_build *build, const char *name, const int64_t *dims, int rank);

void onnx_build_output(struct onnx_build *build, const char *name);

Onnx__TensorProto *onnx_build_tensor(struct onnx_build *build, const char *name, int type,
                                     const int64_t *dims, int rank);

void onnx_build_raw(struct onnx_build *build, Onnx__TensorProto *tensor, const void *data, size_t size);

void onnx_build_add(struct onnx_build *build, Onnx__TensorProto *tensor);

/* An f32 initializer of small numbers that all differ. */
Onnx__TensorProto *onnx_build_weight(struct onnx_build *build, const char *name, const int64_t *dims,
                                     int rank);

/* "a,b,,c": names; an empty one is absent. */
size_t onnx_build_names(struct onnx_build *build, const char *list, char ***out);

Onnx__NodeProto *onnx_build_node(struct onnx_build *build, const char *op, const char *name,
                                 const char *inputs, const char *outputs);

Onnx__AttributeProto *onnx_build_attr(struct onnx_build *build, Onnx__NodeProto *node, const char *name,
                                      int type);

void onnx_build_int(struct onnx_build *build, Onnx__NodeProto *node, const char *name, int64_t value);

void onnx_build_float(struct onnx_build *build, Onnx__NodeProto *node, const char *name, float value);

/* x f32[N,in] -> w1, Relu, w2 -> y f32[N,out]; initializers w1, b1, w2, b2. */
void onnx_build_mlp(struct onnx_build *build, int64_t in, int64_t hidden, int64_t out);

#endif
