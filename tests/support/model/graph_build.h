/* Graphs of the small ONNX files that tests build with onnx_build.h, or the errors that they end with. */
#ifndef WEIR_TESTS_SUPPORT_MODEL_GRAPH_BUILD_H
#define WEIR_TESTS_SUPPORT_MODEL_GRAPH_BUILD_H

#include "model/graph/graph.h"
#include "tests/support/model/onnx_build.h"

/* Loads the file, binds its batch to 2 and infers shapes. NULL with *err set if one of these fails. The
   graph is the caller's (graph_free). Ends the build. */
struct graph *try_to_load(struct onnx_build *build, struct err *err);

/* The same, which must succeed. */
struct graph *load_graph(struct onnx_build *build);

/* The same, which must fail with this code and a text that holds `text`. */
void refuse_graph(struct onnx_build *build, enum err_code code, const char *text);

/* Whether a node of the graph has this ONNX operator. */
bool has_op(const struct graph *graph, const char *op);

/* Loads the file, which must succeed, and infers nothing. The build is not ended: that is the caller's. */
struct graph *read_graph(struct onnx_build *build);

#endif
