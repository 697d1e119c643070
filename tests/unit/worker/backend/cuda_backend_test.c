/* The cuda backend on whole graphs, on simulated devices (tests/simulation/cuda): it agrees with ref, repeats
   itself to the bit, takes weights as they come, puts values where they are wanted, and outlives errors. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "tests/support/worker/network.h"
#include "tests/support/worker/find_simulation.h"
#include "worker/backend/plugin.h"

static const char device[] = "cuda";

static void check_against_ref(const struct network *f, const struct backend_options *options,
                              double tolerance) {
  struct backend_program *program = network_prepare_with(device, f, options);
  struct answer cuda, again, ref;
  network_run_once("ref", f, &ref);
  answer_init(&cuda, f);
  answer_init(&again, f);
  network_run(device, program, NULL, 0, &cuda);
  answer_check_near(&cuda, &ref, tolerance);
  for (int i = 0; i < 3; i++) { /* captured, then replayed */
    network_run(device, program, NULL, 0, &again);
    assert_true(answer_is_same(&cuda, &again));
  }
  backend_of(device)->release(program);
  answer_fini(&cuda);
  answer_fini(&again);
  answer_fini(&ref);
}

static void loss_and_gradients_agree_with_ref(void **state) {
  struct network f;
  (void)state;
  network_init(&f);
  check_against_ref(&f, NULL, 1e-4);
  check_against_ref(&f, &(struct backend_options){.precision = PRECISION_TF32}, 0.03);
  network_fini(&f);
}

static void a_program_in_several_segments_agrees_with_ref_in_each_precision(void **state) {
  struct network f;
  (void)state;
  network_init_wide(&f);
  check_against_ref(&f, NULL, 1e-4);
  check_against_ref(&f, &(struct backend_options){.precision = PRECISION_TF32}, 0.01);
  check_against_ref(&f, &(struct backend_options){.precision = PRECISION_BF16}, 0.05);
  network_fini(&f);
}

/* An op that no kernel takes stands between others. */
static void a_node_without_a_kernel_runs_on_the_host(void **state) {
  struct shape image = {4, {BATCH, 1, 12, 12}};
  struct network f = {.graph = graph_new()};
  (void)state;
  f.graph->opset = 17;
  f.graph->is_training = true;
  int x = graph_add_input(f.graph, "images", DTYPE_F32, &image);
  int length = graph_add_constant_i64(f.graph, (int64_t[]){1}, 1);
  struct attr hann = {.name = "periodic", .type = ATTR_INT, .i = 1};
  x = add_conv(&f, x, 1, 4, 1);
  int window = add_node(&f, "HannWindow", VALUES(length), ATTR_LIST(hann));
  window = add_node(&f, "Cos", VALUES(window), ATTRS_NONE);
  x = add_node(&f, "Mul", VALUES(x, window), ATTRS_NONE);
  x = add_node(&f, "Flatten", VALUES(x), ATTRS_NONE);
  add_backward(&f, add_gemm(&f, x, 576, CLASSES));
  network_feed(&f, &image);
  check_against_ref(&f, NULL, 1e-4);
  network_fini(&f);
}

/* Bytes of each weight that are right only once they were asked for. */
struct late {
  struct answer answer; /* first: keep_value gets it */
  struct network *network;
  float *bytes[WEIGHTS_MAX];
  int asked[WEIGHTS_MAX];
};

static size_t weight_bytes(const struct network *f, int w) {
  return (size_t)shape_elems(&f->graph->values[f->weights[w]].shape) * sizeof(float);
}

static void fill_weight(void *user, int value) {
  struct late *late = user;
  for (int w = 0; w < late->network->n_weights; w++)
    if (late->network->weights[w] == value) {
      memcpy(late->bytes[w], late->network->graph->values[value].data, weight_bytes(late->network, w));
      late->asked[w]++;
    }
}

static void weights_may_come_layer_by_layer(void **state) {
  struct network f;
  struct answer expected;
  struct late late = {.network = &f};
  struct err err = ERR_NONE;
  (void)state;
  network_init_wide(&f);
  network_run_once(device, &f, &expected);
  answer_init(&late.answer, &f);
  const float **weights = mem_new((size_t)f.graph->n_values * sizeof *weights);
  struct backend_program *program = network_prepare(device, &f);
  struct backend_run execution = {.inputs = f.inputs,
                                  .weights = weights,
                                  .on_value = keep_value,
                                  .before_weight = fill_weight,
                                  .user = &late};
  for (int w = 0; w < f.n_weights; w++)
    weights[f.weights[w]] = late.bytes[w] = mem_new(weight_bytes(&f, w));
  for (int i = 1; i <= 3; i++) {
    for (int w = 0; w < f.n_weights; w++)
      memset(late.bytes[w], 0xff, weight_bytes(&f, w));
    execution.weights_version = (uint64_t)i;
    late.answer.n = 0;
    assert_int_equal(backend_of(device)->run(program, &execution, &err), ERR_OK);
    assert_true(answer_is_same(&expected, &late.answer));
    for (int w = 0; w < f.n_weights; w++)
      assert_int_equal(late.asked[w], i);
  }
  backend_of(device)->release(program);
  for (int w = 0; w < f.n_weights; w++)
    free(late.bytes[w]);
  free(weights);
  answer_fini(&late.answer);
  answer_fini(&expected);
  network_fini(&f);
}

static void weights_are_read_again_only_with_a_new_version(void **state) {
  const struct backend_options half = {.precision = PRECISION_BF16}; /* conversions of them are kept */
  struct network f;
  struct answer first, second;
  (void)state;
  network_init(&f);
  const float **weights = mem_new((size_t)f.graph->n_values * sizeof *weights);
  float *changing = mem_new(weight_bytes(&f, 0));
  memcpy(changing, f.graph->values[f.weights[0]].data, weight_bytes(&f, 0));
  weights[f.weights[0]] = changing;
  struct backend_program *program = network_prepare_with(device, &f, &half);
  answer_init(&first, &f);
  answer_init(&second, &f);
  network_run(device, program, weights, 3, &first);
  changing[0] += 1;
  network_run(device, program, weights, 3, &second);
  assert_true(answer_is_same(&first, &second));
  network_run(device, program, weights, 4, &second);
  assert_false(answer_is_same(&first, &second));
  changing[0] -= 1;
  network_run(device, program, weights, 0, &second);
  assert_true(answer_is_same(&first, &second));
  changing[0] += 1;
  network_run(device, program, weights, 0, &second);
  assert_false(answer_is_same(&first, &second));
  network_run(device, program, NULL, 4, &second);
  assert_true(answer_is_same(&first, &second));
  backend_of(device)->release(program);
  answer_fini(&first);
  answer_fini(&second);
  free(changing);
  free(weights);
  network_fini(&f);
}

static void every_watched_value_is_delivered_once_in_node_order(void **state) {
  struct network f;
  struct answer a;
  int before = -1;
  (void)state;
  network_init_wide(&f);
  network_run_once(device, &f, &a);
  assert_int_equal(a.n, f.n_watched);
  for (int i = 0; i < a.n; i++) {
    int producer = f.graph->values[f.watched[a.order[i]]].producer;
    assert_true(producer >= before);
    before = producer;
  }
  answer_fini(&a);
  network_fini(&f);
}

static bool cancel_at_third(void *user) {
  return ++*(int *)user >= 3;
}

static void a_cancelled_run_ends_early_and_the_next_is_whole(void **state) {
  struct network f;
  struct answer whole, after;
  struct err err = ERR_NONE;
  int asked = 0;
  (void)state;
  network_init_wide(&f);
  struct backend_program *program = network_prepare(device, &f);
  struct backend_run execution = {.inputs = f.inputs, .is_cancelled = cancel_at_third, .user = &asked};
  assert_int_equal(backend_of(device)->run(program, &execution, &err), ERR_CANCELLED);
  assert_int_equal(asked, 3);
  answer_init(&after, &f);
  network_run(device, program, NULL, 0, &after);
  network_run_once(device, &f, &whole);
  assert_true(answer_is_same(&whole, &after));
  backend_of(device)->release(program);
  answer_fini(&whole);
  answer_fini(&after);
  network_fini(&f);
}

static void count_value(void *user, int watch, const float *data) {
  (void)watch;
  (void)data;
  ++*(int *)user;
}

/* And what is computed from it is not handed over. */
static void a_label_out_of_range_is_refused_as_ref_does(void **state) {
  static const char *const names[] = {"ref", device};
  struct network f;
  struct answer before, after;
  struct err errs[2];
  int delivered = 0;
  (void)state;
  network_init(&f);
  struct backend_program *program = network_prepare(device, &f), *ref = network_prepare("ref", &f);
  answer_init(&before, &f);
  answer_init(&after, &f);
  network_run(device, program, NULL, 0, &before);
  f.labels[4] = 17;
  for (int b = 0; b < 2; b++) {
    struct backend_run execution = {.inputs = f.inputs, .on_value = count_value, .user = &delivered};
    errs[b] = ERR_NONE;
    assert_int_equal(backend_of(names[b])->run(b ? program : ref, &execution, &errs[b]), ERR_INVALID);
  }
  assert_string_equal(errs[1].text, errs[0].text);
  assert_int_equal(delivered, 0);
  f.labels[4] = 4 * 7 % CLASSES;
  network_run(device, program, NULL, 0, &after);
  assert_true(answer_is_same(&before, &after));
  backend_of("ref")->release(ref);
  backend_of(device)->release(program);
  answer_fini(&before);
  answer_fini(&after);
  network_fini(&f);
}

struct executor {
  const struct network *network;
  int device;
  struct answer answer;
  pthread_t thread;
};

static void *execute(void *argument) {
  struct executor *executor = argument;
  struct backend_program *program =
      network_prepare_with(device, executor->network, &(struct backend_options){.device = executor->device});
  answer_init(&executor->answer, executor->network);
  for (int i = 0; i < 3; i++)
    network_run(device, program, NULL, 0, &executor->answer);
  backend_of(device)->release(program);
  return NULL;
}

static void programs_on_two_devices_run_side_by_side(void **state) {
  struct network f;
  struct answer alone;
  struct executor executors[2];
  (void)state;
  network_init(&f);
  for (int e = 0; e < 2; e++) {
    executors[e] = (struct executor){.network = &f, .device = e};
    assert_int_equal(pthread_create(&executors[e].thread, NULL, execute, &executors[e]), 0);
  }
  network_run_once(device, &f, &alone);
  for (int e = 0; e < 2; e++) {
    pthread_join(executors[e].thread, NULL);
    assert_true(answer_is_same(&executors[e].answer, &alone));
    answer_fini(&executors[e].answer);
  }
  answer_fini(&alone);
  network_fini(&f);
}

static void activations_share_their_bytes(void **state) {
  struct network f;
  size_t total = 0;
  (void)state;
  network_init(&f);
  struct backend_program *program = network_prepare(device, &f);
  for (int v = 0; v < f.graph->n_values; v++)
    if (f.graph->values[v].kind == VALUE_RESULT)
      total += (size_t)shape_elems(&f.graph->values[v].shape) * sizeof(float);
  assert_true(backend_of(device)->memory_bytes(program) < total);
  backend_of(device)->release(program);
  network_fini(&f);
}

/* One program, prepared and run three times: the error that it ends with. */
static void run_thrice(struct err *err) {
  struct network f;
  struct answer a;
  struct backend_program *program = NULL;
  struct backend_request request;
  const struct backend_def *backend;
  network_init_wide(&f);
  request = (struct backend_request){.graph = f.graph, .watched = f.watched, .n_watched = f.n_watched};
  answer_init(&a, &f);
  backend = plugin_backend(device, err);
  if (backend && !backend->prepare(&request, &program, err))
    for (int i = 0; i < 3 && !err->code; i++) {
      a.n = 0;
      backend->run(program, &(struct backend_run){.inputs = f.inputs, .on_value = keep_value, .user = &a},
                   err);
    }
  if (backend)
    backend->release(program);
  answer_fini(&a);
  network_fini(&f);
}

/* The same in a process whose device is as the setting says: it is the process's for good. */
static void run_thrice_where(const char *name, const char *setting, struct err *err) {
  int ends[2], status;
  pid_t child;
  assert_int_equal(pipe(ends), 0);
  child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    setenv(name, setting, 1);
    *err = ERR_NONE;
    run_thrice(err);
    _exit(write(ends[1], err, sizeof *err) != (ssize_t)sizeof *err);
  }
  close(ends[1]);
  assert_int_equal(read(ends[0], err, sizeof *err), (ssize_t)sizeof *err);
  close(ends[0]);
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
}

static void a_device_that_is_too_small_says_what_is_needed_and_what_is_free(void **state) {
  struct err err;
  (void)state;
  run_thrice_where("WEIR_SIMULATED_MEMORY", "4000000", &err);
  assert_int_equal(err.code, ERR_NO_MEMORY);
  assert_non_null(strstr(err.text, "one execution needs "));
  assert_non_null(strstr(err.text, " are free on cuda:0"));
}

/* At any of its kernels or copies. */
static void a_device_that_fails_is_told_as_lost(void **state) {
  static const char *const moments[] = {"3", "20", "60", "90"};
  struct err err;
  (void)state;
  for (size_t i = 0; i < sizeof moments / sizeof *moments; i++) {
    run_thrice_where("WEIR_SIMULATED_FAIL", moments[i], &err);
    assert_int_equal(err.code, ERR_LOST_DEVICE);
  }
}

/* Processes of their own come first: this one has loaded nothing yet. */
int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_device_that_is_too_small_says_what_is_needed_and_what_is_free),
      cmocka_unit_test(a_device_that_fails_is_told_as_lost),
      cmocka_unit_test(loss_and_gradients_agree_with_ref),
      cmocka_unit_test(a_program_in_several_segments_agrees_with_ref_in_each_precision),
      cmocka_unit_test(a_node_without_a_kernel_runs_on_the_host),
      cmocka_unit_test(weights_may_come_layer_by_layer),
      cmocka_unit_test(weights_are_read_again_only_with_a_new_version),
      cmocka_unit_test(every_watched_value_is_delivered_once_in_node_order),
      cmocka_unit_test(a_cancelled_run_ends_early_and_the_next_is_whole),
      cmocka_unit_test(a_label_out_of_range_is_refused_as_ref_does),
      cmocka_unit_test(programs_on_two_devices_run_side_by_side),
      cmocka_unit_test(activations_share_their_bytes),
  };
  if (!find_simulation("2"))
    return 0;
  return cmocka_run_group_tests(tests, NULL, NULL);
}
