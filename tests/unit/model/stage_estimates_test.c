/* Where models can be cut into stages by name, and what the stages are estimated to compute, hold and send.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "model/stages/estimates.h"
#include "tests/support/model/onnx_build.h"

enum { SAMPLES = 4, STAGES_MAX = 8 };

static struct model *open_build(struct onnx_build *build) {
  struct err err = ERR_NONE;
  struct model *model;
  size_t size;
  const void *bytes = onnx_build_pack(build, &size);
  if (model_open(&(struct model_source){.onnx = bytes, .size_bytes = size, .samples = SAMPLES}, &model, &err))
    fail_msg("%s", err.text);
  onnx_build_fini(build);
  return model;
}

/* A stack of layers f32[N,8], each NAME a Gemm with weight NAME.weight. nodes: of names; NULL: as PyTorch's
   newer exporter, without paths. */
static struct model *open_stack(const char *const *names, const char *const *nodes, int n) {
  struct onnx_build build;
  char value[32], input[160] = "x";
  onnx_build_init(&build, 17);
  onnx_build_input(&build, "x", DIMS(-1, 8));
  for (int i = 0; i < n; i++) {
    char weight[64], inputs[256], node[64];
    snprintf(weight, sizeof weight, "%s.weight", names[i]);
    snprintf(inputs, sizeof inputs, "%s,%s", input, weight);
    snprintf(node, sizeof node, "node_linear_%d", i);
    snprintf(value, sizeof value, "v%d", i);
    onnx_build_weight(&build, weight, DIMS(8, 8));
    onnx_build_node(&build, "MatMul", nodes ? nodes[i] : node, inputs, value);
    snprintf(input, sizeof input, "%s", value);
  }
  onnx_build_output(&build, value);
  return open_build(&build);
}

static void paths_are_those_of_modules(void **state) {
  static const char *const paths[][2] = {
      {"/layer3/layer3.0/conv1/Conv", "layer3.0.conv1.Conv"},
      {"/transformer/h.0/attn/c_attn/MatMul", "transformer.h.0.attn.c_attn.MatMul"},
      {"/transformer/h/h.10/ln_1/Add_1", "transformer.h.10.ln_1.Add_1"},
      {"/layer1.0.conv1.out", "layer1.0.conv1.out"},
      {"/layer1/layer10/Relu", "layer1.layer10.Relu"},
      {"model/block1/conv/Conv2D", "model.block1.conv.Conv2D"},
      {"layer4.1", "layer4.1"},
      {"//a//b/", "a.b"},
      {"node_conv2d_5", "node_conv2d_5"},
      {"", ""},
  };
  struct arena arena = {0};
  (void)state;
  for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++)
    assert_string_equal(module_path(paths[i][0], &arena), paths[i][1]);
  arena_fini(&arena);
}

static void assert_places(const struct model *model, const char *const *expected, int n) {
  struct model_places places;
  model_places_find(model, &places);
  assert_int_equal(places.n, n);
  for (int p = 0; p < n; p++)
    assert_string_equal(places.list[p].name, expected[p]);
  model_places_fini(&places);
}

static const char *const layers[] = {"stem", "blocks.0.fc1", "blocks.0.fc2", "blocks.1.fc1", "head"};
static const char *const layer_nodes[] = {"/stem/MatMul", "/blocks/blocks.0/fc1/MatMul",
                                          "/blocks/blocks.0/fc2/MatMul", "/blocks/blocks.1/fc1/MatMul",
                                          "/head/MatMul"};

static void places_have_the_shortest_names_that_lead_there(void **state) {
  static const char *const expected[] = {"blocks", "blocks.0.fc2", "blocks.1", "head"};
  struct model *model = open_stack(layers, layer_nodes, 5);
  (void)state;
  assert_places(model, expected, 4);
  model_close(model);
}

static void names_of_weights_lead_to_nodes_whose_names_have_no_path(void **state) {
  static const char *const expected[] = {"blocks", "blocks.0.fc2", "blocks.1", "head"};
  struct model *model = open_stack(layers, NULL, 5);
  (void)state;
  assert_places(model, expected, 4);
  model_close(model);
}

/* The place of one name; -1 with the error. */
static int place_named(const struct model_places *places, const char *name, struct err *err) {
  int place = -1;
  *err = ERR_NONE;
  return model_places_named(places, &(struct place_names){&name, 1}, &place, err) ? -1 : place;
}

static void cuts_are_named_by_modules_paths_and_nodes(void **state) {
  struct model *model = open_stack(layers, layer_nodes, 5);
  struct model_places places;
  struct err err = ERR_NONE;
  int both[2];
  (void)state;
  model_places_find(model, &places);
  assert_int_equal(place_named(&places, "blocks", &err), 0);
  assert_int_equal(place_named(&places, "blocks.0", &err), 0);
  assert_int_equal(place_named(&places, "blocks.0.fc1", &err), 0);
  assert_int_equal(place_named(&places, "/blocks/blocks.1", &err), 2);
  assert_int_equal(place_named(&places, "/head/MatMul", &err), 3);
  assert_int_equal(places.list[3].train, 4);
  assert_int_equal(places.list[3].eval, 4);
  assert_int_equal(model_places_named(&places,
                                      &(struct place_names){(const char *const[]){"head", "blocks.1"}, 2},
                                      both, &err),
                   ERR_OK);
  assert_true(both[0] == 2 && both[1] == 3);
  model_places_fini(&places);
  model_close(model);
}

static void names_that_lead_nowhere_are_refused(void **state) {
  struct model *model = open_stack(layers, layer_nodes, 5);
  struct model_places places;
  struct err err = ERR_NONE;
  int both[2];
  (void)state;
  model_places_find(model, &places);
  assert_int_equal(place_named(&places, "blocks.2", &err), -1);
  assert_int_equal(err.code, ERR_INVALID);
  assert_string_equal(err.text,
                      "there is no module or node 'blocks.2' to cut before: did you mean 'blocks.0'?");
  assert_int_equal(place_named(&places, "encoder", &err), -1);
  assert_string_equal(err.text, "there is no module or node 'encoder' to cut before; there are 'blocks', "
                                "'blocks.0.fc2', 'blocks.1', 'head'");
  assert_int_equal(place_named(&places, "stem", &err), -1);
  assert_string_equal(err.text, "the model begins with 'stem': there is nothing to cut off before it");
  err = ERR_NONE;
  assert_int_equal(model_places_named(&places,
                                      &(struct place_names){(const char *const[]){"blocks", "blocks.0"}, 2},
                                      both, &err),
                   ERR_INVALID);
  assert_string_equal(err.text, "'blocks' and 'blocks.0' are one place to cut");
  model_places_fini(&places);
  model_close(model);
}

/* A branch that evaluations lack, and dropout, which they pass by. */
static void cuts_are_before_nodes_that_training_and_evaluation_have(void **state) {
  struct onnx_build build;
  struct model_places places;
  (void)state;
  onnx_build_init(&build, 17);
  onnx_build_input(&build, "x", DIMS(-1, 8));
  onnx_build_weight(&build, "a.weight", DIMS(8, 8));
  onnx_build_weight(&build, "b.weight", DIMS(8, 8));
  onnx_build_node(&build, "MatMul", "/a/MatMul", "x,a.weight", "h");
  onnx_build_node(&build, "RandomUniformLike", "/noise/RandomUniformLike", "h", "u");
  onnx_build_node(&build, "Mul", "/noise/Mul", "h,u", "m");
  onnx_build_node(&build, "MatMul", "/b/MatMul", "m,b.weight", "y");
  onnx_build_output(&build, "y");
  struct model *model = open_build(&build);
  model_places_find(model, &places);
  for (int p = 0; p < places.n; p++) {
    const struct model_place *place = &places.list[p];
    assert_string_equal(model->train->nodes[place->train]->name, model->eval->nodes[place->eval]->name);
    assert_true(p == 0 || (place->train > place[-1].train && place->eval > place[-1].eval));
  }
  assert_string_equal(places.list[places.n - 1].name, "b"); /* the loss is behind it */
  model_places_fini(&places);
  model_close(model);
}

/* A model that is cut, which cut_close() closes. */
struct cut {
  struct model *model;
  struct model_places places;
  struct model_stages stages;
};

static struct cut cut_at(struct model *model, const char *const *names, int n) {
  struct cut cut = {.model = model};
  struct err err = ERR_NONE;
  int cuts[STAGES_MAX];
  model_places_find(model, &cut.places);
  assert_int_equal(model_places_named(&cut.places, &(struct place_names){names, n}, cuts, &err), ERR_OK);
  const struct stages_wanted wanted = {.places = &cut.places, .cuts = cuts, .n_stages = n + 1};
  assert_int_equal(model_stages_find(model, &wanted, &cut.stages, &err), ERR_OK);
  return cut;
}

static void cut_close(struct cut *cut) {
  free(cut->stages.list);
  model_places_fini(&cut->places);
  model_close(cut->model);
}

/* x f32[4,3] -> fc1 f32[4,5] -> relu -> fc2 f32[4,2], whose rectified input goes up, and its gradient down.
 */
static void stages_of_a_small_model_are_as_counted_by_hand(void **state) {
  struct onnx_build build;
  (void)state;
  onnx_build_mlp(&build, 3, 5, 2);
  struct model *model = open_build(&build);
  struct cut cut = cut_at(model, (const char *const[]){"fc2"}, 1);
  assert_int_equal(cut.stages.n, 2);
  assert_int_equal(cut.stages.list[0].n_nodes, 2);
  assert_true(cut.stages.list[0].multiply_adds == SAMPLES * 3 * 5 &&
              cut.stages.list[1].multiply_adds == SAMPLES * 5 * 2);
  assert_int_equal(cut.stages.list[0].weights_bytes, 4 * (3 * 5 + 5));
  assert_int_equal(cut.stages.list[1].weights_bytes, 4 * (5 * 2 + 2));
  assert_int_equal(cut.stages.list[0].up_bytes, 4 * SAMPLES * 5);
  assert_int_equal(cut.stages.list[0].down_bytes, 4 * SAMPLES * 5);
  assert_true(cut.stages.list[1].up_bytes == 0 && cut.stages.list[1].down_bytes == 0);
  assert_int_equal(cut.stages.list[0].saved_bytes, 4 * SAMPLES * 5); /* for the gradient of the rectifier */
  assert_true(cut.stages.list[0].in_flight == 2 && cut.stages.list[1].in_flight == 1);
  assert_int_equal(cut.stages.list[0].memory_bytes, 2 * cut.stages.list[0].weights_bytes +
                                                        cut.stages.list[0].activations_bytes +
                                                        cut.stages.list[0].saved_bytes);
  assert_null(cut.stages.list[0].from);
  assert_string_equal(cut.stages.list[1].from, "fc2");
  cut_close(&cut);
}

/* The gradient of weights that two stages read is complete in the lower one. */
static void gradients_of_tied_weights_go_down(void **state) {
  struct onnx_build build;
  (void)state;
  onnx_build_mlp(&build, 5, 5, 5);
  build.graph.node[2]->input[1] = (char *)"w1";
  struct model *model = open_build(&build);
  struct cut cut = cut_at(model, (const char *const[]){"fc2"}, 1);
  assert_int_equal(cut.stages.list[0].up_bytes, 4 * SAMPLES * 5);
  assert_int_equal(cut.stages.list[0].down_bytes, 4 * (SAMPLES * 5 + 5 * 5));
  assert_int_equal(cut.stages.list[1].weights_bytes, 4 * (5 * 5 + 5)); /* held by both */
  cut_close(&cut);
}

/* What skips a stage goes up across both of its edges. */
static void what_skips_a_stage_crosses_both_of_its_edges(void **state) {
  static const char *const names[] = {"b", "c"};
  struct onnx_build build;
  (void)state;
  onnx_build_init(&build, 17);
  onnx_build_input(&build, "x", DIMS(-1, 8));
  for (int i = 0; i < 3; i++)
    onnx_build_weight(&build, (const char *const[]){"a.weight", "b.weight", "c.weight"}[i], DIMS(8, 8));
  onnx_build_node(&build, "MatMul", "/a/MatMul", "x,a.weight", "h");
  onnx_build_node(&build, "MatMul", "/b/MatMul", "h,b.weight", "i");
  onnx_build_node(&build, "MatMul", "/c/MatMul", "i,c.weight", "j");
  onnx_build_node(&build, "Add", "/c/Add", "h,j", "y");
  onnx_build_output(&build, "y");
  struct model *model = open_build(&build);
  struct cut cut = cut_at(model, names, 2);
  assert_int_equal(cut.stages.list[0].up_bytes, 4 * SAMPLES * 8);
  assert_int_equal(cut.stages.list[1].up_bytes, 2 * 4 * SAMPLES * 8);
  assert_int_equal(cut.stages.list[1].down_bytes, 2 * 4 * SAMPLES * 8);
  cut_close(&cut);
}

static void bytes_under_two_shapes_cross_once(void **state) {
  struct onnx_build build;
  (void)state;
  onnx_build_init(&build, 17);
  onnx_build_input(&build, "x", DIMS(-1, 8));
  onnx_build_weight(&build, "a.weight", DIMS(8, 8));
  onnx_build_weight(&build, "b.weight", DIMS(8, 8));
  onnx_build_node(&build, "MatMul", "/a/MatMul", "x,a.weight", "h");
  onnx_build_node(&build, "Identity", "/a/Identity", "h", "i");
  onnx_build_node(&build, "MatMul", "/b/MatMul", "i,b.weight", "j");
  onnx_build_node(&build, "Add", "/b/Add", "h,j", "y");
  onnx_build_output(&build, "y");
  struct model *model = open_build(&build);
  struct cut cut = cut_at(model, (const char *const[]){"b"}, 1);
  assert_int_equal(cut.stages.list[0].up_bytes, 4 * SAMPLES * 8);
  cut_close(&cut);
}

/* Three that are read above only, by what trains: no gradient comes down. */
static void what_goes_up_is_held_until_the_forward_part_ends(void **state) {
  struct onnx_build build;
  (void)state;
  onnx_build_init(&build, 17);
  onnx_build_input(&build, "x", DIMS(-1, 8));
  onnx_build_weight(&build, "b.weight", DIMS(24, 8));
  onnx_build_node(&build, "Mul", "/a/Mul", "x,x", "u");
  onnx_build_node(&build, "Exp", "/a/Exp", "x", "v");
  onnx_build_node(&build, "Sin", "/a/Sin", "x", "w");
  onnx_build_int(&build, onnx_build_node(&build, "Concat", "/b/Concat", "u,v,w", "c"), "axis", 1);
  onnx_build_node(&build, "MatMul", "/b/MatMul", "c,b.weight", "y");
  onnx_build_output(&build, "y");
  struct model *model = open_build(&build);
  struct cut cut = cut_at(model, (const char *const[]){"b"}, 1);
  assert_int_equal(cut.stages.list[0].up_bytes, 3 * 4 * SAMPLES * 8);
  assert_int_equal(cut.stages.list[0].activations_bytes, 3 * 4 * SAMPLES * 8);
  assert_true(cut.stages.list[0].down_bytes == 0 && cut.stages.list[0].saved_bytes == 0);
  cut_close(&cut);
}

static void one_stage_is_the_whole_model(void **state) {
  struct model *model = open_stack(layers, layer_nodes, 5);
  struct cut cut = cut_at(model, NULL, 0);
  struct model_memory memory;
  (void)state;
  model_memory(model, &memory);
  assert_int_equal(cut.stages.n, 1);
  assert_int_equal(cut.stages.list[0].activations_bytes, memory.train_bytes);
  assert_int_equal(cut.stages.list[0].weights_bytes, memory.weights_bytes);
  assert_true(cut.stages.list[0].multiply_adds == 5 * SAMPLES * 8 * 8);
  assert_true(cut.stages.list[0].time_share == 1);
  cut_close(&cut);
}

static void equal_layers_are_cut_evenly(void **state) {
  static const char *const names[] = {"a", "b", "c", "d", "e", "f"};
  struct model *model = open_stack(names, NULL, 6);
  struct model_places places;
  struct model_stages stages;
  struct err err = ERR_NONE;
  double share = 0;
  (void)state;
  model_places_find(model, &places);
  struct stages_wanted wanted = {.places = &places, .n_stages = 3, .most_in_flight = 2};
  assert_int_equal(model_stages_find(model, &wanted, &stages, &err), ERR_OK);
  assert_string_equal(stages.list[1].from, "c");
  assert_string_equal(stages.list[2].from, "e");
  assert_true(stages.list[0].in_flight == 2 && stages.list[1].in_flight == 2 &&
              stages.list[2].in_flight == 1);
  for (int s = 0; s < stages.n; s++)
    share += stages.list[s].time_share;
  assert_true(share > 0.999 && share < 1.001);
  free(stages.list);
  wanted.n_stages = 7;
  assert_int_equal(model_stages_find(model, &wanted, &stages, &err), ERR_INVALID);
  assert_null(stages.list);
  assert_string_equal(err.text, "7 stages need 6 cuts, and there are 5 places to cut: there can be 6 stages");
  model_places_fini(&places);
  model_close(model);
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(paths_are_those_of_modules),
      cmocka_unit_test(places_have_the_shortest_names_that_lead_there),
      cmocka_unit_test(names_of_weights_lead_to_nodes_whose_names_have_no_path),
      cmocka_unit_test(cuts_are_named_by_modules_paths_and_nodes),
      cmocka_unit_test(names_that_lead_nowhere_are_refused),
      cmocka_unit_test(cuts_are_before_nodes_that_training_and_evaluation_have),
      cmocka_unit_test(stages_of_a_small_model_are_as_counted_by_hand),
      cmocka_unit_test(gradients_of_tied_weights_go_down),
      cmocka_unit_test(what_skips_a_stage_crosses_both_of_its_edges),
      cmocka_unit_test(bytes_under_two_shapes_cross_once),
      cmocka_unit_test(what_goes_up_is_held_until_the_forward_part_ends),
      cmocka_unit_test(one_stage_is_the_whole_model),
      cmocka_unit_test(equal_layers_are_cut_evenly),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
