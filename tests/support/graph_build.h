/* Graphs of small ONNX files, or the errors that they end with. */
#ifndef WEIR_TESTS_GRAPH_BUILD_H
#define WEIR_TESTS_GRAPH_BUILD_H

#include "model/graph/graph.h"
#include "tests/support/onnx_build.h"

/* Loads and ends the build; the error is the caller's. */
struct graph *try_to_load(struct onnx_build *build, struct err *err);

struct graph *load_graph(struct onnx_build *build);

void refuse_graph(struct onnx_build *build, enum err_code code, const char *text);

bool has_op(const struct graph *graph, const char *op);

struct graph *read_graph(struct onnx_build *build);

#endif
