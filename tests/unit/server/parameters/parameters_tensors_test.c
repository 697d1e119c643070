/* Tensors that lie across blocks, and blocks of several tensors, follow PyTorch's float64 for 20 steps where
   an update needs whole tensors or all of them (tests/parity/tensors.json, which tensors.py beside it makes).
   On one server and on three. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "common/agree/float_setting.h"
#include "common/agree/spec.h"
#include "tests/support/parameters/parameters_calls.h"

enum { TRAINED_STEPS = 20, PARAM_BLOCKS = 3, TENSORS = 6, ELEMS = 300 * 300 + 1803 };

static const double tolerance = 1e-5;
static const char *const ids[SERVERS_MAX] = {"server-1", "server-2", "server-3"};

static float first_weight(uint32_t k) {
  return (float)(((int64_t)k * 7919 % 1009 - 504) / 8072.0);
}

static float gradient(uint64_t step, uint32_t k) {
  int64_t drawn = ((int64_t)k * 6007 + (int64_t)step * 7877 + k / 300) % 2003 - 1001;
  return (float)((double)drawn / (2003 * (1 + k % 5)));
}

static uint32_t block_begin(uint32_t block) {
  return (block > 0 ? block_elems[0] : 0) + (block > 1 ? block_elems[1] : 0);
}

/* train of the order: one microbatch, the case's optimizer and clipping. */
static void settle_train(json_t *json, Weir__TrainSpec *train, Weir__RunSpec **read) {
  char *optimizer = json_dumps(json_object_get(json, "optimizer"), JSON_REAL_PRECISION(15));
  char *text = mem_printf("train: {optimizer: %s}", optimizer);
  struct err err = ERR_NONE;
  if (spec_read("tensors.json", text, strlen(text), read, &err))
    fail_msg("%s", err.text);
  train->optimizer = (*read)->train->optimizer;
  train->microbatches = 1;
  train->steps = TRAINED_STEPS;
  train->has_clip_norm = json_object_get(json, "clip_norm") != NULL;
  train->clip_norm = json_real_value(json_object_get(json, "clip_norm"));
  train->has_clip_value = json_object_get(json, "clip_value") != NULL;
  train->clip_value = json_real_value(json_object_get(json, "clip_value"));
  free(text);
  free(optimizer);
}

/* A run whose blocks begin with weights of ours, without anything in their slots. */
static void load_weights(struct parameters_fixture *f, const Weir__LoadRun *order, const char *own_id) {
  static float content[4 * 65536];
  struct err err = ERR_NONE;
  struct hosted_run *run;
  if (make_run(f, order, own_id, &run, &err))
    fail_msg("%s", err.text);
  for (uint32_t b = 0; b < run->n_own; b++) {
    struct hosted_block *block = &run->blocks[b];
    if (block->kind != BLOCK_PARAMETERS)
      continue;
    memset(content, 0, sizeof content);
    for (uint32_t i = 0; i < block->elems; i++)
      content[i] = first_weight(block_begin(block->index) + i);
    assert_int_equal(
        hosted_block_restore(
            block,
            &(struct block_image){.data = content,
                                  .size_bytes = (block->elems + block->slot_elems) * sizeof(float)},
            &err),
        0);
  }
  assert_int_equal(run_table_add(&f->runs, run, &err), 0);
}

static struct parameters_fixture *owner_of(struct parameters_fixture *servers, int n, uint32_t block) {
  struct parameters_fixture *owner = NULL;
  struct err err;
  for (int s = 0; s < n; s++) {
    struct hosted_run *run = run_table_find(&servers[s].runs, "unit-1", 1, &err);
    owner = run->own[block] >= 0 ? &servers[s] : owner;
    hosted_run_put(run);
  }
  return owner;
}

/* Waits for the version; its weights f32[ELEMS]. */
static void pull_version(struct parameters_fixture *servers, int n, uint64_t version, float *weights) {
  for (uint32_t block = 0; block < BLOCKS; block++) {
    struct attempt attempt;
    start_pull(owner_of(servers, n, block), &attempt, block, version);
    attempt_finish(&attempt);
    if (block < PARAM_BLOCKS)
      memcpy(weights + block_begin(block), attempt.data, attempt.size_bytes);
    finish_with_version(&attempt, version);
  }
}

/* Pushes the gradients of all blocks, and a row of zeros, once a version is there; weights f32[ELEMS] after
   the last. */
static void push_steps(struct parameters_fixture *servers, int n, float *weights) {
  for (uint64_t step = 0; step < TRAINED_STEPS; step++) {
    pull_version(servers, n, step, weights);
    for (uint32_t block = 0; block < BLOCKS; block++) {
      Weir__PushRequest push = push_request(block, step, 0, 0);
      struct parameters_fixture *owner = owner_of(servers, n, block);
      struct attempt attempt;
      for (uint32_t i = 0; i < block_elems[block]; i++)
        owner->values[i] = block < PARAM_BLOCKS ? gradient(step, block_begin(block) + i) : 0;
      start_push(owner, &attempt, &push, owner->values, block_elems[block] * sizeof(float));
      attempt_finish(&attempt);
      assert_int_equal(attempt.err.code, 0);
      free(attempt.data);
    }
  }
  pull_version(servers, n, TRAINED_STEPS, weights);
}

static void train(json_t *json, int n, float *weights) {
  struct parameters_fixture servers[SERVERS_MAX];
  Weir__RunSpec *read;
  for (int s = 0; s < n; s++)
    parameters_fixture_open(&servers[s]);
  for (int s = 0; s < n; s++) {
    const Weir__LoadRun *order = make_order(1, (size_t)n);
    settle_train(json, order->spec->train, &read);
    order->plan->steps = TRAINED_STEPS;
    order->plan->eval_samples = 0;
    order->servers[0]->address = servers[0].target;
    load_weights(&servers[s], order, ids[s]);
    spec_free(read);
  }
  push_steps(servers, n, weights);
  for (int s = 0; s < n; s++)
    parameters_fixture_fini(&servers[s]);
}

static void assert_tensor(json_t *json, const char *name, const float *weights) {
  json_t *expected = json_object_get(json, "weights"), *value;
  size_t elems = (size_t)json_integer_value(json_object_get(json, "elems"));
  size_t begin = (size_t)json_integer_value(json_object_get(json, "begin")), at;
  size_t stride = elems / 40 ? elems / 40 : 1;
  double rms = json_real_value(json_object_get(json, "rms")), squares = 0;
  for (size_t i = 0; i < elems; i++)
    squares += (double)weights[begin + i] * weights[begin + i];
  if (fabs(sqrt(squares / (double)elems) - rms) > tolerance * rms)
    fail_msg("%s: tensor at %zu: root mean square %.9g, expected %.9g", name, begin,
             sqrt(squares / (double)elems), rms);
  json_array_foreach(expected, at, value) {
    double found = weights[begin + at * stride], wanted = json_real_value(value);
    if (fabs(found - wanted) > tolerance * fmax(fabs(wanted), 0.1 * rms)) /* f32 beside larger steps */
      fail_msg("%s: element %zu of the tensor at %zu: %.9g, expected %.9g", name, at * stride, begin, found,
               wanted);
  }
}

static void updates_of_whole_tensors_follow_pytorch_for_20_steps(void **state) {
  static float one[ELEMS], three[ELEMS];
  json_t *root = json_load_file("tests/parity/tensors.json", 0, NULL), *json, *tensor;
  size_t at, t;
  (void)state;
  assert_true(json_array_size(json_object_get(root, "cases")) >= 8);
  json_array_foreach(json_object_get(root, "cases"), at, json) {
    const char *name = json_string_value(json_object_get(json_object_get(json, "optimizer"), "name"));
    train(json, 1, one);
    train(json, SERVERS_MAX, three);
    assert_memory_equal(one, three, sizeof one);
    assert_int_equal(json_array_size(json_object_get(json, "tensors")), TENSORS);
    json_array_foreach(json_object_get(json, "tensors"), t, tensor) assert_tensor(tensor, name, one);
  }
  json_decref(root);
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(updates_of_whole_tensors_follow_pytorch_for_20_steps),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
