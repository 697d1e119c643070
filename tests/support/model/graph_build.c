#include "tests/support/model/graph_build.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "model/graph/op.h"

struct graph *try_to_load(struct onnx_build *build, struct err *err) {
  struct graph *graph;
  size_t size;
  const void *bytes = onnx_build_pack(build, &size);
  *err = ERR_NONE;
  graph_load_onnx(bytes, size, &graph, err);
  if (graph && (graph_bind_batch(graph, 2, err) || graph_infer(graph, err))) {
    graph_free(graph);
    graph = NULL;
  }
  onnx_build_fini(build);
  return graph;
}

struct graph *load_graph(struct onnx_build *build) {
  struct err err;
  struct graph *graph = try_to_load(build, &err);
  if (!graph)
    fail_msg("%s", err.text);
  return graph;
}

void refuse_graph(struct onnx_build *build, enum err_code code, const char *text) {
  struct err err;
  assert_null(try_to_load(build, &err));
  if (err.code != code || !strstr(err.text, text))
    fail_msg("expected %s '%s', got %s '%s'", err_name(code), text, err_name(err.code), err.text);
}

bool has_op(const struct graph *graph, const char *op) {
  for (int n = 0; n < graph->n_nodes; n++)
    if (strcmp(graph->nodes[n]->op->name, op) == 0)
      return true;
  return false;
}

struct graph *read_graph(struct onnx_build *build) {
  struct err err = ERR_NONE;
  struct graph *graph;
  size_t size;
  const void *bytes = onnx_build_pack(build, &size);
  if (graph_load_onnx(bytes, size, &graph, &err))
    fail_msg("%s", err.text);
  return graph;
}
