/* Builds small ONNX files in memory: onnx_build_init(), inputs, weights, nodes in order, outputs, then
   onnx_build_pack(). Nothing is checked, so that a test can build what must be refused. */
#ifndef WEIR_TESTS_SUPPORT_MODEL_ONNX_BUILD_H
#define WEIR_TESTS_SUPPORT_MODEL_ONNX_BUILD_H

#include "common/base/memory.h"
#include "onnx.pb-c.h"

/* A model being built. Texts and data that the functions below are given are copied. What they return lives
   until onnx_build_fini(); a test may change its fields before it packs. */
struct onnx_build {
  struct arena arena;
  Onnx__ModelProto model;
  Onnx__GraphProto graph;
  Onnx__OperatorSetIdProto opset, *opsets[1];
  void *bytes; /* of onnx_build_pack */
};

#define ONNX_BUILD_LIST_MAX 64 /* nodes, initializers, inputs and outputs, of each */

void onnx_build_init(struct onnx_build *build, int64_t opset);
void onnx_build_fini(struct onnx_build *build);

/* The file's bytes, good until the next call or onnx_build_fini. */
const void *onnx_build_pack(struct onnx_build *build, size_t *size);

/* The description of a tensor, which a test puts where it wants it. type: of ONNX's DataType. A dimension
   of -1 is symbolic, named N. */
Onnx__ValueInfoProto *onnx_build_info(struct onnx_build *build, const char *name, int type,
                                      const int64_t *dims, int rank);

/* dims and rank in one: onnx_build_input(&build, "x", DIMS(-1, 3)). */
#define DIMS(...) (const int64_t[]){__VA_ARGS__}, (int)(sizeof((const int64_t[]){__VA_ARGS__}) / 8)

/* Add an f32 input or output of the graph; an output gets no dimensions. */
void onnx_build_input(struct onnx_build *build, const char *name, const int64_t *dims, int rank);
void onnx_build_output(struct onnx_build *build, const char *name);

/* A tensor without data. onnx_build_raw() gives it little-endian bytes, onnx_build_add() makes it an
   initializer of the graph. */
Onnx__TensorProto *onnx_build_tensor(struct onnx_build *build, const char *name, int type,
                                     const int64_t *dims, int rank);
void onnx_build_raw(struct onnx_build *build, Onnx__TensorProto *tensor, const void *data, size_t size);
void onnx_build_add(struct onnx_build *build, Onnx__TensorProto *tensor);

/* Adds an f32 initializer of small numbers that differ by place and by initializer. */
Onnx__TensorProto *onnx_build_weight(struct onnx_build *build, const char *name, const int64_t *dims,
                                     int rank);

/* Splits "a,b,,c" at its commas into *out, a list of the build's; an empty name is an input or output left
   out. Returns how many. */
size_t onnx_build_names(struct onnx_build *build, const char *list, char ***out);

/* Adds a node; inputs and outputs are names as above. name may be NULL. A node has at most 8 attributes. */
Onnx__NodeProto *onnx_build_node(struct onnx_build *build, const char *op, const char *name,
                                 const char *inputs, const char *outputs);

/* Adds an attribute of ONNX's AttributeType, whose value the caller sets; the next two set it. */
Onnx__AttributeProto *onnx_build_attr(struct onnx_build *build, Onnx__NodeProto *node, const char *name,
                                      int type);
void onnx_build_int(struct onnx_build *build, Onnx__NodeProto *node, const char *name, int64_t value);
void onnx_build_float(struct onnx_build *build, Onnx__NodeProto *node, const char *name, float value);

/* Begins a build and fills it: x f32[N,in] -> Gemm -> Relu -> Gemm -> y f32[N,out], with initializers w1
   f32[in,hidden], b1, w2 f32[hidden,out], b2. */
void onnx_build_mlp(struct onnx_build *build, int64_t in, int64_t hidden, int64_t out);

#endif
