/* What is made of a graph once it is read: folding, pruning, gradients, a plan of its memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "common/agree/random.h"
#include "model/graph/autodiff.h"
#include "model/graph/listing.h"
#include "model/graph/memory_plan.h"
#include "tests/support/model/graph_build.h"
#include "tests/support/model/graph_run.h"
#include "tests/support/model/onnx_build.h"

static void known_data_is_folded_and_weights_are_not(void **state) {
  struct onnx_build build;
  struct graph *graph;
  struct err err = ERR_NONE;
  Onnx__NodeProto *node;
  (void)state;
  onnx_build_init(&build, 13);
  onnx_build_input(&build, "x", DIMS(-1, 3));
  onnx_build_weight(&build, "w", DIMS(3));
  node = onnx_build_node(&build, "Constant", "two", "", "c2");
  onnx_build_float(&build, node, "value_float", 2);
  onnx_build_node(&build, "Mul", "four", "c2,c2", "c4");
  onnx_build_node(&build, "Mul", "scaled", "w,c4", "w4");
  onnx_build_node(&build, "Add", "sum", "x,w4", "y");
  onnx_build_output(&build, "y");
  graph = read_graph(&build);
  assert_int_equal(graph_bind_batch(graph, 2, &err), 0);
  assert_int_equal(graph_infer(graph, &err), 0);
  assert_int_equal(graph->n_nodes, 2);
  assert_string_equal(graph->nodes[0]->name, "scaled");
  assert_int_equal(graph->values[graph_find(graph, "c4")].kind, VALUE_CONSTANT);
  assert_true(*(const float *)graph->values[graph_find(graph, "c4")].data == 4);
  assert_int_equal(graph->values[graph_find(graph, "y")].producer, 1);
  graph_free(graph);
  onnx_build_fini(&build);
}

static int add_input(struct graph *graph, const char *name, int64_t n) {
  struct shape shape = {.rank = 1, .dim = {n}};
  return graph_add_input(graph, name, DTYPE_F32, &shape);
}

static int add_node(struct graph *graph, const char *op, int a, int b) {
  return graph_add_node(graph, op, (struct value_list){(int[]){a, b}, b < 0 ? 1 : 2}, 1, ATTRS_NONE)
      ->outputs[0];
}

static void pruning_keeps_what_the_roots_need(void **state) {
  struct graph *graph = graph_new();
  int unused = add_input(graph, "unused", 2), x = add_input(graph, "x", 2), a, dead, y, *map;
  (void)state;
  a = add_node(graph, "Relu", x, -1);
  dead = add_node(graph, "Add", a, unused);
  y = add_node(graph, "Mul", a, a);
  map = graph_prune(graph, &y, 1);
  assert_int_equal(map[unused], -1);
  assert_int_equal(map[dead], -1);
  assert_int_equal(map[x], 0);
  assert_int_equal(graph->n_inputs, 1);
  assert_int_equal(graph->inputs[0], 0);
  assert_int_equal(graph->n_values, 3);
  assert_int_equal(graph->n_nodes, 2);
  assert_int_equal(graph->nodes[1]->inputs[0], map[a]);
  assert_int_equal(graph->values[map[y]].producer, 1);
  assert_int_equal(graph->nodes[1]->index, 1);
  free(map);
  graph_free(graph);
}

static void a_clone_changes_by_itself(void **state) {
  struct graph *graph = graph_new(), *copy;
  int x = add_input(graph, "x", 2), y = add_node(graph, "Relu", x, -1);
  (void)state;
  copy = graph_clone(graph);
  add_node(copy, "Relu", y, -1);
  copy->nodes[0]->inputs[0] = y;
  add_input(copy, "more", 1);
  assert_int_equal(graph->n_nodes, 1);
  assert_int_equal(graph->n_inputs, 1);
  assert_int_equal(graph->nodes[0]->inputs[0], x);
  assert_int_equal(graph_find(graph, "more"), -1);
  graph_free(copy);
  graph_free(graph);
}

/* f = sum of ((w * w) + w) * x: df/dw = (2 w + 1) x. */
static void gradients_of_a_shared_value_are_added(void **state) {
  struct graph *graph = graph_new();
  struct arena arena = {0};
  struct err err = ERR_NONE;
  int w = add_input(graph, "w", 2), x = add_input(graph, "x", 2), f, seed, grads[64];
  float w_data[] = {3, -2}, x_data[] = {10, 100}, ones[] = {1, 1};
  void *data[64] = {NULL};
  bool wanted[64] = {false};
  (void)state;
  f = add_node(graph, "Mul", add_node(graph, "Add", add_node(graph, "Mul", w, w), w), x);
  seed = add_input(graph, "seed", 2);
  wanted[w] = true;
  assert_int_equal(
      autodiff_run(graph, &(struct derivative){.roots = &f, .seeds = &seed, .n_roots = 1, .wanted = wanted},
                   grads, &err),
      0);
  assert_int_equal(grads[x], -1);
  assert_true(grads[w] >= 0);
  data[w] = w_data;
  data[x] = x_data;
  data[seed] = ones;
  assert_true(graph->n_values <= 64);
  assert_int_equal(graph_run(graph, data, &arena, &err), 0);
  assert_true(((float *)data[grads[w]])[0] == 70);
  assert_true(((float *)data[grads[w]])[1] == -300);
  arena_fini(&arena);
  graph_free(graph);
}

static void backward_nodes_follow_in_backward_order(void **state) {
  struct graph *graph = graph_new();
  struct err err = ERR_NONE;
  int x = add_input(graph, "x", 2), w = add_input(graph, "w", 2), hidden, f, seed, grads[64], last;
  bool wanted[64] = {false};
  (void)state;
  hidden = add_node(graph, "Tanh", add_node(graph, "Relu", x, -1), -1);
  f = add_node(graph, "Relu", add_node(graph, "Mul", hidden, w), -1);
  seed = add_input(graph, "seed", 2);
  wanted[w] = true;
  assert_int_equal(graph->n_nodes, 4);
  assert_int_equal(
      autodiff_run(graph, &(struct derivative){.roots = &f, .seeds = &seed, .n_roots = 1, .wanted = wanted},
                   grads, &err),
      0);
  assert_true(graph->n_nodes > 4);
  last = 4;
  for (int n = 4; n < graph->n_nodes; n++) {
    assert_true(graph->nodes[n]->forward <= last);
    last = graph->nodes[n]->forward;
    assert_true(last >= 2); /* nothing wanted lies behind Mul: no gradient of Tanh or Relu */
  }
  graph_free(graph);
}

static void all_nodes_without_a_gradient_are_named(void **state) {
  struct graph *graph = graph_new();
  struct err err = ERR_NONE;
  int w = add_input(graph, "w", 2), f, seed, grads[64];
  bool wanted[64] = {false};
  (void)state;
  f = add_node(graph, "ReluGrad", add_node(graph, "Relu", add_node(graph, "ReluGrad", w, w), -1), w);
  seed = add_input(graph, "seed", 2);
  wanted[w] = true;
  assert_int_equal(
      autodiff_run(graph, &(struct derivative){.roots = &f, .seeds = &seed, .n_roots = 1, .wanted = wanted},
                   grads, &err),
      ERR_UNSUPPORTED);
  assert_non_null(strstr(err.text, "2 nodes"));
  assert_non_null(strstr(err.text, "'ReluGrad_0' (ReluGrad)"));
  assert_non_null(strstr(err.text, "'ReluGrad_2' (ReluGrad)"));
  graph_free(graph);
}

/* n random spans over `steps` steps are planned; those that live together must not overlap. */
static void check_plan(uint64_t round, int n, int steps) {
  struct memory_span *spans = mem_new((size_t)n * sizeof *spans);
  size_t size, sum = 0;
  for (int i = 0; i < n; i++) {
    spans[i].size_bytes = random_bits(round, (uint64_t)(4 * i + 1)) % 1000;
    spans[i].first = (int)(random_bits(round, (uint64_t)(4 * i + 2)) % (unsigned)steps);
    spans[i].last = spans[i].first + (int)(random_bits(round, (uint64_t)(4 * i + 3)) % 6);
    sum += (spans[i].size_bytes + 63) / 64 * 64;
  }
  size = memory_plan(spans, n);
  assert_true(size <= sum);
  for (int i = 0; i < n; i++) {
    assert_int_equal(spans[i].offset % 64, 0);
    assert_true(spans[i].offset + spans[i].size_bytes <= size);
    for (int j = 0; j < i; j++)
      if (spans[i].first <= spans[j].last && spans[j].first <= spans[i].last)
        assert_true(spans[i].offset + spans[i].size_bytes <= spans[j].offset ||
                    spans[j].offset + spans[j].size_bytes <= spans[i].offset || spans[i].size_bytes == 0 ||
                    spans[j].size_bytes == 0);
  }
  free(spans);
}

static void memory_of_tensors_that_live_together_never_overlaps(void **state) {
  (void)state;
  for (uint64_t round = 0; round < 200; round++)
    check_plan(round, 1 + (int)(random_bits(round, 0) % 60), 20);
  for (uint64_t round = 0; round < 5; round++) /* planned in another way */
    check_plan(round, 3000, 400);
}

static void a_plan_of_many_tensors_is_made_fast_and_reuses_memory(void **state) {
  enum { N = 100000 };
  struct memory_span *spans = mem_new(N * sizeof *spans);
  (void)state;
  for (int i = 0; i < N; i++) /* as of a chain, forward and backward */
    spans[i] = (struct memory_span){.size_bytes = 64, .first = i, .last = i < N / 2 ? N - 1 - i : i + 1};
  assert_true(memory_plan(spans, N) <= (N / 2 + 2) * 64);
  free(spans);
}

static void memory_is_reused_after_a_tensor_died(void **state) {
  struct memory_span spans[] = {{1000, 0, 1, 0}, {1000, 1, 2, 0}, {900, 2, 3, 0}, {10, 0, 3, 0}};
  (void)state;
  assert_int_equal(memory_plan(spans, 4), 2 * 1024 + 64);
  assert_int_equal(spans[0].offset, 0);
  assert_int_equal(spans[1].offset, 1024);
  assert_int_equal(spans[2].offset, 0);
  assert_int_equal(memory_plan(NULL, 0), 0);
}

static void a_long_listing_ends_with_a_count(void **state) {
  struct listing listing = {0};
  (void)state;
  for (int i = 0; i < 500; i++)
    listing_add(&listing, "'node_%d' (If)", i);
  assert_int_equal(listing.count, 500);
  assert_true(strlen(listing_text(&listing)) < sizeof listing.text);
  assert_non_null(strstr(listing.text, "'node_0' (If), 'node_1' (If), "));
  assert_non_null(strstr(listing.text, " more"));
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(known_data_is_folded_and_weights_are_not),
      cmocka_unit_test(pruning_keeps_what_the_roots_need),
      cmocka_unit_test(a_clone_changes_by_itself),
      cmocka_unit_test(gradients_of_a_shared_value_are_added),
      cmocka_unit_test(backward_nodes_follow_in_backward_order),
      cmocka_unit_test(all_nodes_without_a_gradient_are_named),
      cmocka_unit_test(memory_of_tensors_that_live_together_never_overlaps),
      cmocka_unit_test(a_plan_of_many_tensors_is_made_fast_and_reuses_memory),
      cmocka_unit_test(memory_is_reused_after_a_tensor_died),
      cmocka_unit_test(a_long_listing_ends_with_a_count),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
