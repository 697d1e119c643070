/* Branches and local functions of ONNX files: the reader leaves plain nodes in their place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "model/graph/op.h"
#include "model/model.h"
#include "tests/support/model/graph_build.h"
#include "tests/support/model/onnx_build.h"

/* A bool initializer of one element. */
static void add_flag(struct onnx_build *build, const char *name, bool value) {
  Onnx__TensorProto *tensor = onnx_build_tensor(build, name, ONNX__TENSOR_PROTO__DATA_TYPE__BOOL, NULL, 0);
  onnx_build_raw(build, tensor, &(uint8_t){value}, 1);
  onnx_build_add(build, tensor);
}

/* Moves the nodes from `first` on into a graph that gives `outputs`. */
static Onnx__GraphProto *cut_branch(struct onnx_build *build, size_t first, const char *outputs) {
  Onnx__GraphProto *branch = arena_new(&build->arena, sizeof *branch);
  char **names;
  size_t n = onnx_build_names(build, outputs, &names);
  onnx__graph_proto__init(branch);
  branch->n_node = build->graph.n_node - first;
  branch->node = arena_copy(&build->arena, build->graph.node + first, branch->n_node * sizeof(void *));
  build->graph.n_node = first;
  branch->output = arena_new(&build->arena, n * sizeof(void *));
  for (branch->n_output = 0; branch->n_output < n; branch->n_output++)
    branch->output[branch->n_output] =
        onnx_build_info(build, names[branch->n_output], ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, NULL, 0);
  return branch;
}

static Onnx__NodeProto *add_if(struct onnx_build *build, const char *condition, Onnx__GraphProto *taken,
                               Onnx__GraphProto *other, const char *outputs) {
  Onnx__NodeProto *node = onnx_build_node(build, "If", "branch", condition, outputs);
  onnx_build_attr(build, node, "then_branch", ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__GRAPH)->g = taken;
  onnx_build_attr(build, node, "else_branch", ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__GRAPH)->g = other;
  return node;
}

/* y -> If(flag) { Relu } else { Sigmoid, then Transpose that does not fit } -> z */
static void build_if(struct onnx_build *build, bool flag) {
  Onnx__GraphProto *taken, *other;
  onnx_build_mlp(build, 2, 2, 2);
  add_flag(build, "flag", flag);
  onnx_build_node(build, "Relu", NULL, "y", "t");
  taken = cut_branch(build, 3, "t");
  onnx_build_node(build, "Sigmoid", NULL, "y", "t"); /* the same name: it is another value */
  onnx_build_node(build, "Gemm", "misfit", "t,b1", "u");
  other = cut_branch(build, 3, "u");
  add_if(build, "flag", taken, other, "z");
  build->graph.output[0]->name = (char *)"z";
}

static void the_branch_that_is_taken_replaces_an_if(void **state) {
  struct onnx_build build;
  struct graph *graph;
  (void)state;
  build_if(&build, true);
  graph = load_graph(&build);
  assert_false(has_op(graph, "Sigmoid"));
  assert_false(has_op(graph, "If"));
  assert_int_equal(graph->n_nodes, 5);
  assert_string_equal(graph->values[graph->nodes[4]->inputs[0]].name, "z/then/t");
  assert_string_equal(graph->values[graph->outputs[0]].name, "z");
  assert_int_equal(graph->n_guards, 0);
  graph_free(graph);
  build_if(&build, false);
  build.graph.node[3]->attribute[1]->g->node[1]->input[1] = (char *)"w1";
  graph = load_graph(&build);
  assert_true(has_op(graph, "Sigmoid"));
  graph_free(graph);
  build_if(&build, false);
  refuse_graph(&build, ERR_INVALID, "misfit");
}

static void a_branch_may_hold_branches(void **state) {
  struct onnx_build build;
  Onnx__GraphProto *inner[2], *outer;
  struct graph *graph;
  (void)state;
  for (int flags = 0; flags < 4; flags++) {
    onnx_build_mlp(&build, 2, 2, 2);
    add_flag(&build, "f", flags & 1);
    add_flag(&build, "g", flags & 2);
    onnx_build_node(&build, "Relu", NULL, "y", "a");
    inner[0] = cut_branch(&build, 3, "a");
    onnx_build_node(&build, "Neg", NULL, "y", "b");
    inner[1] = cut_branch(&build, 3, "b");
    onnx_build_node(&build, "Identity", NULL, "g", "h"); /* known only where it runs */
    add_if(&build, "h", inner[0], inner[1], "c");
    outer = cut_branch(&build, 3, "c");
    add_if(&build, "f", outer, cut_branch(&build, 3, "y"), "z");
    build.graph.output[0]->name = (char *)"z";
    graph = load_graph(&build);
    assert_int_equal(has_op(graph, "Neg"), flags == 1);
    assert_int_equal(graph->n_nodes, flags & 1 ? 6 : 4);
    graph_free(graph);
  }
}

static void branches_that_data_decides_are_refused_by_name(void **state) {
  struct onnx_build build;
  (void)state;
  build_if(&build, true);
  build.graph.node[3]->input[0] = (char *)"y";
  refuse_graph(&build, ERR_UNSUPPORTED,
               "node 'branch' (If): its condition is computed from the model's data");
  build_if(&build, true);
  build.graph.node[3]->input[0] = (char *)"nothing";
  refuse_graph(&build, ERR_INVALID, "reads 'nothing', which nothing produces");
  build_if(&build, true);
  build.graph.node[3]->n_attribute = 1;
  refuse_graph(&build, ERR_INVALID, "its else_branch does not give its 1 outputs");
  build_if(&build, true);
  onnx_build_node(&build, "Loop", "loop", "y", "l");
  refuse_graph(&build, ERR_UNSUPPORTED, "'loop' (Loop)");
}

/* Moves the nodes from `first` on into a function of the domain "local". */
static Onnx__FunctionProto *cut_function(struct onnx_build *build, const char *name, size_t first,
                                         const char *inputs, const char *outputs) {
  Onnx__FunctionProto *function = arena_new(&build->arena, sizeof *function);
  onnx__function_proto__init(function);
  function->name = (char *)name;
  function->domain = (char *)"local";
  function->n_input = onnx_build_names(build, inputs, &function->input);
  function->n_output = onnx_build_names(build, outputs, &function->output);
  function->n_opset_import = 1;
  function->opset_import = build->opsets;
  function->n_node = build->graph.n_node - first;
  function->node = arena_copy(&build->arena, build->graph.node + first, function->n_node * sizeof(void *));
  build->graph.n_node = first;
  if (!build->model.functions)
    build->model.functions = arena_new(&build->arena, ONNX_BUILD_LIST_MAX * sizeof(void *));
  return build->model.functions[build->model.n_functions++] = function;
}

static Onnx__NodeProto *add_call(struct onnx_build *build, const char *function, const char *inputs,
                                 const char *outputs) {
  Onnx__NodeProto *node = onnx_build_node(build, function, NULL, inputs, outputs);
  node->domain = (char *)"local";
  return node;
}

static void calls_of_local_functions_become_their_nodes(void **state) {
  struct onnx_build build;
  struct graph *graph;
  Onnx__NodeProto *node;
  Onnx__AttributeProto *attr;
  (void)state;
  onnx_build_mlp(&build, 2, 2, 2);
  node = onnx_build_node(&build, "Softmax", "soft", "x", "t");
  attr = onnx_build_attr(&build, node, "axis", ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT);
  attr->ref_attr_name = (char *)"dim";
  onnx_build_node(&build, "Add", "sum", "t,y", "r"); /* x and y are its own: not the model's */
  cut_function(&build, "soft_add", 3, "x,y", "r");
  add_call(&build, "soft_add", "y,x", "r"); /* of a function that calls a function */
  onnx_build_int(&build, build.graph.node[3], "dim", 0);
  cut_function(&build, "outer", 3, "x,y", "r,x");
  add_call(&build, "outer", "x,y", "a,same");
  add_call(&build, "soft_add", "a,same", "z");
  build.graph.output[0]->name = (char *)"z";
  graph = load_graph(&build);
  assert_int_equal(graph->n_nodes, 8);
  assert_string_equal(graph->nodes[3]->name, "a/r/soft");
  assert_int_equal(node_attr_int(graph->nodes[3], "axis", 7), 0);
  assert_string_equal(graph->values[graph->nodes[3]->inputs[0]].name, "y");
  assert_string_equal(graph->values[graph->nodes[4]->inputs[1]].name, "x");
  assert_string_equal(graph->values[graph->nodes[4]->outputs[0]].name, "a");
  assert_string_equal(graph->values[graph->nodes[5]->outputs[0]].name, "same");
  assert_int_equal(node_attr_int(graph->nodes[6], "axis", 7), 7); /* nobody gives it */
  graph_free(graph);
}

static void functions_without_end_are_refused(void **state) {
  struct onnx_build build;
  char name[8], callee[8];
  (void)state;
  onnx_build_mlp(&build, 2, 2, 2);
  add_call(&build, "f", "x", "y");
  cut_function(&build, "f", 3, "x", "y");
  add_call(&build, "f", "y", "z");
  refuse_graph(&build, ERR_INVALID, "nested deeper than 64, or without end");
  onnx_build_mlp(&build, 2, 2, 2);
  for (int f = 0; f < 30; f++) { /* each calls the one before twice */
    snprintf(name, sizeof name, "f%d", f);
    snprintf(callee, sizeof callee, "f%d", f - 1);
    if (f == 0) {
      onnx_build_node(&build, "Relu", NULL, "x", "y");
    } else {
      add_call(&build, callee, "x", "t");
      add_call(&build, callee, "t", "y");
    }
    cut_function(&build, arena_strdup(&build.arena, name), 3, "x", "y");
  }
  add_call(&build, "f29", "y", "z");
  refuse_graph(&build, ERR_INVALID, "stand for more nodes than any model has");
  onnx_build_mlp(&build, 2, 2, 2);
  onnx_build_node(&build, "Relu", NULL, "x", "y");
  cut_function(&build, "f", 3, "x", "y");
  add_call(&build, "f", "y,y", "z");
  refuse_graph(&build, ERR_INVALID, "a call of function 'f' has 2 inputs");
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_branch_that_is_taken_replaces_an_if),
      cmocka_unit_test(a_branch_may_hold_branches),
      cmocka_unit_test(branches_that_data_decides_are_refused_by_name),
      cmocka_unit_test(calls_of_local_functions_become_their_nodes),
      cmocka_unit_test(functions_without_end_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
