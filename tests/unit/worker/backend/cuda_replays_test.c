/* Steps of the cuda backend that run again (worker/backend/cuda/engine/replay.c), on simulated devices: what
   they share with their first run, what runs once only, and how much a device with little memory has run
   again. That the bits are the same is tests/conformance/recompute_test.c's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "tests/support/worker/find_simulation.h"
#include "tests/support/worker/network.h"
#include "worker/backend/plugin.h"

static const char device[] = "cuda";
static const struct backend_options always = {.replay = REPLAY_ALWAYS};

enum { LAYERS = 6, CHANNELS = 8, SIDE = 24 };

/* Convolutions and Tanh in turn, whose gradients read what they made. has_host_node: one node has no kernel.
 */
static void network_init_deep(struct network *f, bool has_host_node) {
  struct shape image = {4, {BATCH, CHANNELS, SIDE, SIDE}};
  *f = (struct network){.graph = graph_new()};
  f->graph->opset = 17;
  f->graph->is_training = true;
  int x = graph_add_input(f->graph, "images", DTYPE_F32, &image);
  for (int layer = 0; layer < LAYERS; layer++) {
    x = add_conv(f, x, CHANNELS, CHANNELS, 1);
    x = add_node(f, "Tanh", VALUES(x), ATTRS_NONE);
  }
  if (has_host_node) {
    int length = graph_add_constant_i64(f->graph, (int64_t[]){1}, 1);
    x = add_node(f, "Mul", VALUES(x, add_node(f, "HannWindow", VALUES(length), ATTRS_NONE)), ATTRS_NONE);
  }
  add_backward(f, add_gemm(f, add_mean(f, x), CHANNELS, CLASSES));
  network_feed(f, &image);
}

static struct backend_replayed replayed_of(const struct backend_program *program) {
  struct backend_replayed replayed;
  backend_of(device)->replayed(program, &replayed);
  return replayed;
}

static int count_host_nodes(const struct backend_program *program) {
  int n = 0;
  while (backend_of(device)->host_node(program, n))
    n++;
  return n;
}

static void nodes_on_the_host_run_once(void **state) {
  struct network f;
  struct answer first, again;
  (void)state;
  network_init_deep(&f, true);
  network_run_once(device, &f, &first);
  answer_init(&again, &f);
  struct backend_program *program = network_prepare_with(device, &f, &always);
  assert_true(replayed_of(program).n_replays >= LAYERS);
  assert_int_equal(count_host_nodes(program), 1);
  network_run(device, program, NULL, 0, &again);
  assert_true(answer_is_same(&first, &again));
  backend_of(device)->release(program);
  answer_fini(&first);
  answer_fini(&again);
  network_fini(&f);
}

/* How often each weight was asked for, and in what order. */
struct asked {
  struct answer answer; /* first: keep_value gets it */
  int values[4 * WEIGHTS_MAX], n;
};

static void note_weight(void *user, int value) {
  struct asked *asked = user;
  asked->values[asked->n++] = value;
}

static void weights_ask(const struct network *f, const struct backend_options *options, struct asked *asked) {
  const float **weights = mem_new((size_t)f->graph->n_values * sizeof *weights);
  struct backend_program *program = network_prepare_with(device, f, options);
  struct err err = ERR_NONE;
  *asked = (struct asked){.n = 0};
  answer_init(&asked->answer, f);
  for (int w = 0; w < f->n_weights; w++)
    weights[f->weights[w]] = f->graph->values[f->weights[w]].data;
  struct backend_run execution = {.inputs = f->inputs,
                                  .weights = weights,
                                  .weights_version = 1,
                                  .on_value = keep_value,
                                  .before_weight = note_weight,
                                  .user = asked};
  assert_int_equal(backend_of(device)->run(program, &execution, &err), ERR_OK);
  backend_of(device)->release(program);
  free(weights);
}

static void weights_are_asked_for_once_and_in_the_same_order(void **state) {
  struct network f;
  struct asked first, again;
  (void)state;
  network_init_deep(&f, false);
  weights_ask(&f, NULL, &first);
  weights_ask(&f, &always, &again);
  assert_int_equal(first.n, f.n_weights);
  assert_int_equal(again.n, first.n);
  assert_memory_equal(again.values, first.values, (size_t)first.n * sizeof *first.values);
  assert_true(answer_is_same(&first.answer, &again.answer));
  answer_fini(&first.answer);
  answer_fini(&again.answer);
  network_fini(&f);
}

/* The step that finds the fault runs again in the same execution, and finds it again. */
static void a_fault_is_told_in_the_words_of_ref(void **state) {
  struct network f = {.graph = graph_new()};
  struct err errs[2];
  (void)state;
  f.graph->opset = 17;
  f.graph->is_training = true;
  struct shape image = {4, {BATCH, 1, 4, 4}};
  int x = graph_add_input(f.graph, "images", DTYPE_F32, &image);
  x = add_gemm(&f, add_node(&f, "Flatten", VALUES(x), ATTRS_NONE), 16, 8);
  int rows = graph_add_input(f.graph, "rows", DTYPE_I64, &(struct shape){1, {BATCH}});
  x = add_node(&f, "Gather", VALUES(x, rows), ATTRS_NONE);
  x = add_node(&f, "Tanh", VALUES(x), ATTRS_NONE);
  add_backward(&f, add_gemm(&f, x, 8, CLASSES));
  network_feed(&f, &image);
  const int64_t outside[BATCH] = {0, 1, BATCH, 2, 1, 0};
  const void *inputs[] = {f.inputs[0], outside, f.inputs[1]};
  struct backend_program *ref = network_prepare("ref", &f),
                         *program = network_prepare_with(device, &f, &always);
  assert_true(replayed_of(program).n_replays > 0);
  for (int run = 0; run < 3; run++)
    for (int b = 0; b < 2; b++) {
      errs[b] = ERR_NONE;
      assert_int_equal(backend_of(b ? device : "ref")
                           ->run(b ? program : ref, &(struct backend_run){.inputs = inputs}, &errs[b]),
                       ERR_INVALID);
    }
  assert_string_equal(errs[1].text, errs[0].text);
  backend_of("ref")->release(ref);
  backend_of(device)->release(program);
  network_fini(&f);
}

/* The error of preparing and running it; the answer of the caller's is made. */
static int run_with(const struct network *f, const struct backend_options *options,
                    struct backend_replayed *out, struct answer *answer, struct err *err) {
  struct backend_request request = {
      .graph = f->graph, .watched = f->watched, .n_watched = f->n_watched, .options = *options};
  struct backend_program *program = NULL;
  if (backend_of(device)->prepare(&request, &program, err))
    return err->code;
  *out = replayed_of(program);
  network_run(device, program, NULL, 0, answer);
  backend_of(device)->release(program);
  return ERR_OK;
}

/* Room for all but a third of what is saved by running all again that may be. */
static void auto_runs_again_what_a_device_has_no_room_for(void **state) {
  struct backend_options automatic = {.replay = REPLAY_AUTO}, full = {.replay = REPLAY_FULL};
  struct backend_replayed none_of, full_of, auto_of, less_of;
  struct answer first, again;
  struct err err = ERR_NONE;
  struct network f;
  char memory[32];
  (void)state;
  network_init_deep(&f, false);
  answer_init(&first, &f);
  answer_init(&again, &f);
  assert_int_equal(run_with(&f, &automatic, &none_of, &first, &err), ERR_OK);
  assert_int_equal(none_of.n_replays, 0);
  assert_int_equal(run_with(&f, &full, &full_of, &again, &err), ERR_OK);
  struct backend_program *smallest = network_prepare_with(device, &f, &full);
  size_t least = backend_of(device)->memory_bytes(smallest), most = none_of.unreplayed_bytes;
  backend_of(device)->release(smallest);
  assert_true(least < most && full_of.n_replays > 0);
  snprintf(memory, sizeof memory, "%zu", (most - (most - least) / 3) * 256 / 255);
  setenv("WEIR_SIMULATED_MEMORY", memory, 1);
  assert_int_equal(run_with(&f, &(struct backend_options){0}, &auto_of, &again, &err), ERR_NO_MEMORY);
  err = ERR_NONE;
  again.n = 0;
  assert_int_equal(run_with(&f, &automatic, &auto_of, &again, &err), ERR_OK);
  assert_true(auto_of.n_replays > 0 && answer_is_same(&first, &again));
  again.n = 0;
  automatic.spare_bytes = (most - least) / 3;
  assert_int_equal(run_with(&f, &automatic, &less_of, &again, &err), ERR_OK);
  assert_true(less_of.n_replays > auto_of.n_replays && answer_is_same(&first, &again));
  unsetenv("WEIR_SIMULATED_MEMORY");
  answer_fini(&first);
  answer_fini(&again);
  network_fini(&f);
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(nodes_on_the_host_run_once),
      cmocka_unit_test(weights_are_asked_for_once_and_in_the_same_order),
      cmocka_unit_test(a_fault_is_told_in_the_words_of_ref),
      cmocka_unit_test(auto_runs_again_what_a_device_has_no_room_for),
  };
  if (!find_simulation("1"))
    return 0;
  return cmocka_run_group_tests(tests, NULL, NULL);
}
