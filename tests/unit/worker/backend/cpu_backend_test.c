/* The cpu backend on whole graphs: it agrees with ref, repeats itself to the bit, and reads weights when they
   change. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "tests/support/worker/network.h"

static int add_resize(struct network *f, int x, const char *mode, const char *coordinates, int64_t size) {
  struct shape shape = f->graph->values[x].shape;
  int sizes = graph_add_constant_i64(f->graph, (int64_t[]){shape.dim[0], shape.dim[1], size, size}, 4);
  struct attr attrs[] = {
      {.name = "mode", .type = ATTR_STRING, .s = mode},
      {.name = "coordinate_transformation_mode", .type = ATTR_STRING, .s = coordinates},
      {.name = "nearest_mode", .type = ATTR_STRING, .s = "floor"},
  };
  return add_node(f, "Resize", VALUES(x, -1, -1, sizes), (struct attr_list){attrs, 3});
}

/* Activations whose channels fill blocks, joined, resized, split and joined again between convolutions. */
static void fixture_init_joined(struct network *f) {
  struct shape image = {4, {BATCH, 1, 8, 8}};
  struct attr axis = {.name = "axis", .type = ATTR_INT, .i = 1};
  struct attr split[] = {axis, {.name = "split", .type = ATTR_INTS, .n = 2, .ints = (int64_t[]){16, 32}}};
  *f = (struct network){.graph = graph_new()};
  f->graph->opset = 17;
  f->graph->is_training = true;
  int x = graph_add_input(f->graph, "images", DTYPE_F32, &image);
  int parts[] = {add_conv(f, x, 1, 16, 1), add_conv(f, x, 1, 32, 1)};
  x = add_resize(f, add_node(f, "Concat", (struct value_list){parts, 2}, ATTR_LIST(axis)), "linear",
                 "half_pixel", 16);
  const int *halves = graph_add_node(f->graph, "Split", VALUES(x), 2, (struct attr_list){split, 2})->outputs;
  int small = add_max_pool(f, halves[1]);
  int again[] = {halves[0], add_resize(f, small, "nearest", "asymmetric", 16)};
  x = add_conv(f, add_node(f, "Concat", (struct value_list){again, 2}, ATTR_LIST(axis)), 48, CLASSES, 1);
  x = add_node(f, "Relu", VALUES(x), ATTRS_NONE);
  add_backward(f, add_mean(f, x));
  network_feed(f, &image);
}

/* Between two convolutions an op, which is then scaled by channel, by position and by constants. 0 in place
   of what is added or divided by would make infinities. */
static void fixture_init_elementwise(struct network *f, const char *op, int64_t channels) {
  struct shape image = {4, {BATCH, 1, 12, 12}};
  int x, one, half, scale, shift, square;
  *f = (struct network){.graph = graph_new()};
  f->graph->opset = 17;
  f->graph->is_training = true;
  x = graph_add_input(f->graph, "images", DTYPE_F32, &image);
  one = graph_add_constant_f32(f->graph, 1);
  half = graph_add_constant_f32(f->graph, 0.5f);
  x = add_conv(f, x, 1, channels, 1);
  x = add_node(f, op, VALUES(x), ATTRS_NONE);
  scale = add_node(f, "GlobalAveragePool", VALUES(x), ATTRS_NONE);
  scale = add_node(f, "Sigmoid", VALUES(scale), ATTRS_NONE);
  x = add_node(f, "Div", VALUES(x, scale), ATTRS_NONE);
  scale = add_conv(f, x, channels, 1, 1);
  scale = add_node(f, "Sigmoid", VALUES(scale), ATTRS_NONE);
  x = add_node(f, "Mul", VALUES(x, scale), ATTRS_NONE);
  x = add_node(f, "Sub", VALUES(one, x), ATTRS_NONE);
  x = add_node(f, "Add", VALUES(x, half), ATTRS_NONE);
  shift = add_weight(f, (struct shape){4, {1, channels, 1, 1}}, 1);
  x = add_node(f, "Sub", VALUES(x, shift), ATTRS_NONE);
  square = add_node(f, "Mul", VALUES(x, x), ATTRS_NONE);
  square = add_node(f, "Add", VALUES(square, one), ATTRS_NONE);
  square = add_node(f, "Reciprocal", VALUES(square), ATTRS_NONE);
  x = add_node(f, "Mul", VALUES(x, square), ATTRS_NONE);
  x = add_max_pool(f, add_conv(f, x, channels, channels, 1));
  x = add_node(f, "Flatten", VALUES(x), ATTRS_NONE);
  add_backward(f, add_gemm(f, x, 36 * channels, CLASSES));
  network_feed(f, &image);
}

static void check_against_ref(const struct network *f) {
  struct answer cpu, ref;
  network_run_once("cpu", f, &cpu);
  network_run_once("ref", f, &ref);
  answer_check_near(&cpu, &ref, 1e-4);
  answer_fini(&cpu);
  answer_fini(&ref);
}

static void loss_and_gradients_agree_with_ref(void **state) {
  struct network f;
  (void)state;
  network_init(&f);
  check_against_ref(&f);
  network_fini(&f);
}

static void joined_split_and_resized_activations_agree_with_ref(void **state) {
  struct network f;
  (void)state;
  fixture_init_joined(&f);
  check_against_ref(&f);
  network_fini(&f);
}

/* Blocks of 8 or 16 channels, whole and padded; ops that keep the padding's zeros, and that do not. */
static void elementwise_ops_between_convolutions_agree_with_ref(void **state) {
  static const char *const ops[] = {"Abs",  "Cos",     "Elu",      "Erf",  "Exp",
                                    "Gelu", "Sigmoid", "Softplus", "Tanh", "HardSwish"};
  static const int64_t channels[] = {16, 20, 24, 3};
  (void)state;
  for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++)
    for (size_t c = 0; c < sizeof channels / sizeof channels[0]; c++) {
      struct network f;
      fixture_init_elementwise(&f, ops[i], channels[c]);
      check_against_ref(&f);
      network_fini(&f);
    }
}

static void every_watched_value_is_delivered_once_in_node_order(void **state) {
  struct network f;
  struct answer a;
  int before = -1;
  (void)state;
  network_init(&f);
  network_run_once("cpu", &f, &a);
  assert_int_equal(a.n, f.n_watched);
  for (int i = 0; i < a.n; i++) {
    int producer = f.graph->values[f.watched[a.order[i]]].producer;
    assert_true(producer >= before);
    before = producer;
  }
  answer_fini(&a);
  network_fini(&f);
}

static void a_second_run_gives_the_same_bits(void **state) {
  struct network f;
  struct answer first, second;
  (void)state;
  network_init(&f);
  struct backend_program *program = network_prepare("cpu", &f);
  answer_init(&first, &f);
  answer_init(&second, &f);
  network_run("cpu", program, NULL, 0, &first);
  network_run("cpu", program, NULL, 0, &second);
  assert_true(answer_is_same(&first, &second));
  f.images[5] += 0.5f;
  network_run("cpu", program, NULL, 0, &second);
  assert_false(answer_is_same(&first, &second));
  backend_find("cpu")->release(program);
  answer_fini(&first);
  answer_fini(&second);
  network_fini(&f);
}

struct executor {
  const struct network *network;
  struct answer answer;
  pthread_t thread;
};

static void *execute(void *argument) {
  struct executor *executor = argument;
  network_run_once("cpu", executor->network, &executor->answer);
  return NULL;
}

static void two_threads_with_programs_of_their_own_give_the_same_bits(void **state) {
  struct network f;
  struct answer alone;
  struct executor executors[2];
  (void)state;
  network_init(&f);
  for (int e = 0; e < 2; e++) {
    executors[e].network = &f;
    assert_int_equal(pthread_create(&executors[e].thread, NULL, execute, &executors[e]), 0);
  }
  network_run_once("cpu", &f, &alone);
  for (int e = 0; e < 2; e++) {
    pthread_join(executors[e].thread, NULL);
    assert_true(answer_is_same(&executors[e].answer, &alone));
    answer_fini(&executors[e].answer);
  }
  answer_fini(&alone);
  network_fini(&f);
}

static void weights_are_read_again_only_with_a_new_version(void **state) {
  struct network f;
  struct answer first, second;
  (void)state;
  network_init(&f);
  const float **weights = mem_new((size_t)f.graph->n_values * sizeof *weights);
  int conv = f.weights[0];
  size_t elems = (size_t)shape_elems(&f.graph->values[conv].shape);
  float *changing = mem_new(elems * sizeof *changing);
  memcpy(changing, f.graph->values[conv].data, elems * sizeof *changing);
  weights[conv] = changing;
  struct backend_program *program = network_prepare("cpu", &f);
  answer_init(&first, &f);
  answer_init(&second, &f);
  network_run("cpu", program, weights, 3, &first);
  changing[0] += 1;
  network_run("cpu", program, weights, 3, &second);
  assert_true(answer_is_same(&first, &second));
  network_run("cpu", program, weights, 4, &second);
  assert_false(answer_is_same(&first, &second));
  changing[0] -= 1;
  network_run("cpu", program, weights, 0, &second);
  assert_true(answer_is_same(&first, &second));
  changing[0] += 1;
  network_run("cpu", program, weights, 0, &second);
  assert_false(answer_is_same(&first, &second));
  network_run("cpu", program, NULL, 4, &second);
  changing[0] -= 1;
  assert_true(answer_is_same(&first, &second));
  backend_find("cpu")->release(program);
  answer_fini(&first);
  answer_fini(&second);
  free(changing);
  free(weights);
  network_fini(&f);
}

static bool cancel_now(void *user) {
  return ++*(int *)user > 4;
}

static void a_cancelled_run_ends_early_and_the_next_is_whole(void **state) {
  struct network f;
  struct answer whole, after;
  struct err err = ERR_NONE;
  int asked = 0;
  (void)state;
  network_init(&f);
  struct backend_program *program = network_prepare("cpu", &f);
  struct backend_run execution = {.inputs = f.inputs, .is_cancelled = cancel_now, .user = &asked};
  assert_int_equal(backend_find("cpu")->run(program, &execution, &err), ERR_CANCELLED);
  assert_int_equal(asked, 5);
  answer_init(&after, &f);
  network_run("cpu", program, NULL, 0, &after);
  network_run_once("cpu", &f, &whole);
  assert_true(answer_is_same(&whole, &after));
  backend_find("cpu")->release(program);
  answer_fini(&whole);
  answer_fini(&after);
  network_fini(&f);
}

/* Whatever mode; true where something ran again. */
static bool check_replayed(const struct network *f, const struct backend_options *options) {
  const struct backend_def *cpu = backend_find("cpu");
  struct backend_program *program = network_prepare_with("cpu", f, options);
  struct backend_replayed replayed;
  struct answer whole, again;
  network_run_once("cpu", f, &whole);
  answer_init(&again, f);
  for (int i = 0; i < 2; i++) {
    network_run("cpu", program, NULL, 0, &again);
    assert_true(answer_is_same(&whole, &again));
    assert_memory_equal(whole.order, again.order, (size_t)whole.n * sizeof whole.order[0]);
  }
  cpu->replayed(program, &replayed);
  if (options->replay != REPLAY_ALWAYS)
    assert_true(cpu->memory_bytes(program) <= replayed.unreplayed_bytes);
  if (options->replay == REPLAY_AUTO)
    assert_true(cpu->memory_bytes(program) <= options->most_bytes);
  cpu->release(program);
  answer_fini(&whole);
  answer_fini(&again);
  return replayed.n_replays > 0;
}

static void steps_that_run_again_give_the_same_bits(void **state) {
  static const struct backend_options always = {.replay = REPLAY_ALWAYS}, full = {.replay = REPLAY_FULL};
  struct network f;
  (void)state;
  network_init(&f);
  assert_true(check_replayed(&f, &always));
  check_replayed(&f, &full);
  network_fini(&f);
  fixture_init_joined(&f);
  assert_true(check_replayed(&f, &always));
  check_replayed(&f, &full);
  network_fini(&f);
  fixture_init_elementwise(&f, "Gelu", 20);
  assert_true(check_replayed(&f, &always));
  assert_true(check_replayed(&f, &full));
  network_fini(&f);
}

static size_t bytes_of(const struct network *f, enum replay_mode mode) {
  struct backend_program *program = network_prepare_with("cpu", f, &(struct backend_options){.replay = mode});
  size_t bytes = backend_find("cpu")->memory_bytes(program);
  backend_find("cpu")->release(program);
  return bytes;
}

static void activations_are_computed_again_as_far_as_memory_wants(void **state) {
  struct backend_program *program;
  struct err err = ERR_NONE;
  struct network f;
  (void)state;
  fixture_init_elementwise(&f, "Gelu", 20);
  size_t none = bytes_of(&f, REPLAY_NONE), full = bytes_of(&f, REPLAY_FULL);
  assert_true(full < none);
  struct backend_options options = {.replay = REPLAY_AUTO, .most_bytes = none};
  assert_false(check_replayed(&f, &options));
  options.most_bytes = (none + full) / 2;
  assert_true(check_replayed(&f, &options));
  options.most_bytes = full / 2;
  assert_int_equal(backend_find("cpu")->prepare(&(struct backend_request){.graph = f.graph,
                                                                          .watched = f.watched,
                                                                          .n_watched = f.n_watched,
                                                                          .options = options},
                                                &program, &err),
                   ERR_NO_MEMORY);
  assert_null(program);
  network_fini(&f);
}

static void activations_share_their_bytes(void **state) {
  struct network f;
  size_t total = 0;
  (void)state;
  network_init(&f);
  struct backend_program *program = network_prepare("cpu", &f);
  for (int v = 0; v < f.graph->n_values; v++)
    if (f.graph->values[v].kind == VALUE_RESULT)
      total += (size_t)shape_elems(&f.graph->values[v].shape) * sizeof(float);
  assert_true(backend_find("cpu")->memory_bytes(program) < total);
  backend_find("cpu")->release(program);
  network_fini(&f);
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(loss_and_gradients_agree_with_ref),
      cmocka_unit_test(joined_split_and_resized_activations_agree_with_ref),
      cmocka_unit_test(elementwise_ops_between_convolutions_agree_with_ref),
      cmocka_unit_test(every_watched_value_is_delivered_once_in_node_order),
      cmocka_unit_test(a_second_run_gives_the_same_bits),
      cmocka_unit_test(two_threads_with_programs_of_their_own_give_the_same_bits),
      cmocka_unit_test(weights_are_read_again_only_with_a_new_version),
      cmocka_unit_test(a_cancelled_run_ends_early_and_the_next_is_whole),
      cmocka_unit_test(steps_that_run_again_give_the_same_bits),
      cmocka_unit_test(activations_are_computed_again_as_far_as_memory_wants),
      cmocka_unit_test(activations_share_their_bytes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
