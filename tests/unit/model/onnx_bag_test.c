/* The Loop that PyTorch's older exporter writes for nn.EmbeddingBag becomes a reduction; what is only like it
   stays a Loop, which is refused. (Numbers, and the newer exporter's: tests/integration/test_parity.py.) */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "model/graph/op.h"
#include "model/model.h"
#include "tests/support/model/onnx_build.h"

enum { BAGS = 2, WIDTH = 3 };

static void add_ints(struct onnx_build *build, const char *name, const int64_t *values, int64_t n) {
  Onnx__TensorProto *tensor = onnx_build_tensor(build, name, ONNX__TENSOR_PROTO__DATA_TYPE__INT64, DIMS(n));
  onnx_build_raw(build, tensor, values, (size_t)n * sizeof *values);
  onnx_build_add(build, tensor);
}

/* The nodes from `first` on become the body of a Loop of two inputs and two outputs. */
static Onnx__GraphProto *cut_body(struct onnx_build *build, size_t first, const char *row) {
  Onnx__GraphProto *body = arena_new(&build->arena, sizeof *body);
  const char *inputs[] = {"i", "go"}, *outputs[] = {"go_on", row};
  onnx__graph_proto__init(body);
  body->n_node = build->graph.n_node - first;
  body->node = arena_copy(&build->arena, build->graph.node + first, body->n_node * sizeof(void *));
  build->graph.n_node = first;
  body->input = arena_new(&build->arena, 2 * sizeof(void *));
  body->output = arena_new(&build->arena, 2 * sizeof(void *));
  body->n_input = body->n_output = 2;
  for (int i = 0; i < 2; i++) {
    body->input[i] = onnx_build_info(build, inputs[i], ONNX__TENSOR_PROTO__DATA_TYPE__INT64, NULL, 0);
    body->output[i] = onnx_build_info(build, outputs[i], ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, NULL, 0);
  }
  return body;
}

/* ends: what the ends of bags are cut from. rows: which rows of the table a bag takes. */
static void build_bags(struct onnx_build *build, const int64_t *offsets, const char *ends, const char *rows) {
  size_t first;
  Onnx__GraphProto *body;
  onnx_build_init(build, 17);
  onnx_build_weight(build, "table", DIMS(4, WIDTH));
  add_ints(build, "indices", (int64_t[]){0, 3, 1, 1}, 4);
  add_ints(build, "offsets", offsets, BAGS + 1);
  add_ints(build, "zero", (int64_t[]){0}, 1);
  add_ints(build, "one", (int64_t[]){1}, 1);
  add_ints(build, "all", (int64_t[]){INT64_MAX}, 1);
  onnx_build_node(build, "Slice", NULL, ends, "ends");
  first = build->graph.n_node;
  onnx_build_node(build, "Gather", NULL, "offsets,i", "from");
  onnx_build_node(build, "Gather", NULL, "ends,i", "to");
  onnx_build_node(build, "Unsqueeze", NULL, "from,zero", "begin");
  onnx_build_node(build, "Unsqueeze", NULL, "to,zero", "end");
  onnx_build_node(build, "Slice", NULL, "indices,begin,end,zero", "own");
  onnx_build_node(build, "Gather", NULL, rows, "rows");
  onnx_build_int(build, onnx_build_node(build, "ReduceSum", NULL, "rows,zero", "row"), "keepdims", 0);
  onnx_build_node(build, "Identity", NULL, "go", "go_on");
  body = cut_body(build, first, "row");
  onnx_build_attr(build, onnx_build_node(build, "Loop", "bags", "one,zero", "z"), "body",
                  ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__GRAPH)
      ->g = body;
  onnx_build_output(build, "z");
}

static struct graph *try_load(struct onnx_build *build, struct err *err) {
  struct graph *graph;
  size_t size;
  const void *bytes = onnx_build_pack(build, &size);
  *err = ERR_NONE;
  graph_load_onnx(bytes, size, &graph, err);
  if (graph && graph_infer(graph, err)) {
    graph_free(graph);
    graph = NULL;
  }
  onnx_build_fini(build);
  return graph;
}

static void refuse(struct onnx_build *build, const char *text) {
  struct err err;
  assert_null(try_load(build, &err));
  if (!strstr(err.text, text))
    fail_msg("expected '%s', got '%s'", text, err.text);
}

static void bags_of_one_length_become_a_reduction(void **state) {
  struct onnx_build build;
  struct graph *graph;
  struct err err;
  const struct value *output;
  (void)state;
  build_bags(&build, (int64_t[]){0, 2, 4}, "offsets,one,all", "table,own");
  graph = try_load(&build, &err);
  if (!graph)
    fail_msg("%s", err.text);
  output = &graph->values[graph->outputs[0]];
  assert_string_equal(graph->nodes[output->producer]->op->name, "ReduceSum");
  assert_int_equal(output->shape.rank, 2);
  assert_int_equal(output->shape.dim[0], BAGS);
  assert_int_equal(output->shape.dim[1], WIDTH);
  graph_free(graph);
}

static void bags_of_several_lengths_are_refused(void **state) {
  static const int64_t offsets[][BAGS + 1] = {{0, 1, 4}, {0, 2, 3}, {1, 2, 4}, {0, 4, 4}, {0, 3, 4}};
  struct onnx_build build;
  (void)state;
  for (size_t i = 0; i < sizeof offsets / sizeof *offsets; i++) {
    build_bags(&build, offsets[i], "offsets,one,all", "table,own");
    refuse(&build, "node 'bags: bags of one length, as an EmbeddingBag's must be' (Reshape)");
  }
}

static void other_loops_are_refused_as_loops(void **state) {
  struct onnx_build build;
  (void)state;
  build_bags(&build, (int64_t[]){0, 2, 4}, "indices,one,all", "table,own");
  refuse(&build, "'bags' (Loop)");
  build_bags(&build, (int64_t[]){0, 2, 4}, "offsets,one,all", "table,indices");
  refuse(&build, "'bags' (Loop)");
  build_bags(&build, (int64_t[]){0, 2, 4}, "offsets,one,all", "table,own");
  build.graph.node[1]->attribute[0]->g->node[6]->op_type = (char *)"ReduceMin";
  refuse(&build, "'bags' (Loop)");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(bags_of_one_length_become_a_reduction),
      cmocka_unit_test(bags_of_several_lengths_are_refused),
      cmocka_unit_test(other_loops_are_refused_as_loops),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
