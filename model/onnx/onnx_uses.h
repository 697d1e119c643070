/* Who reads a value of an ONNX graph. */
#ifndef WEIR_MODEL_ONNX_ONNX_USES_H
#define WEIR_MODEL_ONNX_ONNX_USES_H

#include <stdbool.h>

#include "onnx.pb-c.h"

/* Whether a node reads it, also one in a branch, or the graph gives it. */
bool onnx_is_used(const Onnx__GraphProto *graph, const char *name);

/* Every reader of `old` reads `new` instead; what the graph gives keeps its name. */
void onnx_rename_uses(Onnx__GraphProto *graph, const char *old, const char *new);

bool onnx_is_output(const Onnx__GraphProto *graph, const char *name);

/* The standard operator's node that gives the value; NULL if there is none. */
Onnx__NodeProto *onnx_producer(const Onnx__GraphProto *graph, const char *name);

#endif
