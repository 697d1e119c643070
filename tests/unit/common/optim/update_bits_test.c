/* An update's vector code gives the bits of plain code: many elements at a time those of each by itself, for
   every optimizer with the options of tests/parity/optimizers.json, wherever in memory, of any number. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "common/agree/float_setting.h"
#include "common/agree/random.h"
#include "common/agree/spec.h"
#include "common/base/memory.h"
#include "common/optim/optimizer.h"

enum { SLOTS_MAX = 4, ELEMS_MAX = 5000, MARGIN = 32, ARRAY = (SLOTS_MAX * ELEMS_MAX) + 2 * MARGIN };

/* The arrays of an update, each at a place of its own behind a margin that the update leaves alone. */
struct arrays {
  float weights[ARRAY], grad[ARRAY], out[ARRAY], slots[ARRAY], next_slots[ARRAY];
};

static struct arrays given, found;

/* What is on the borders of f32 among numbers of all sizes; every fourth is about 1. */
static float drawn(uint64_t key, uint64_t i) {
  static const uint32_t borders[] = {0,          0x80000000, 1,          0x807fffff, 0x00800000, 0x7f7fffff,
                                     0xff7fffff, 0x7f800000, 0xff800000, 0x7fc00000, 0x3f800000, 0xbf800000};
  uint64_t bits = random_bits(key, i);
  uint32_t word = (uint32_t)(bits >> 32);
  float value;
  if (bits % 16 == 0)
    word = borders[bits / 16 % (sizeof borders / sizeof *borders)];
  else if (bits % 4 == 0)
    word = (word & 0x80ffffff) | 0x3f000000;
  memcpy(&value, &word, sizeof value);
  return value;
}

static void draw(float *values, uint64_t seed) {
  uint64_t key = random_key(seed, 0, 0, 0);
  for (int i = 0; i < ARRAY; i++)
    values[i] = drawn(key, (uint64_t)i);
}

static bool is_same(float a, float b) {
  return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b));
}

/* Where an update's arrays begin: each somewhere else between two lines of the cache. */
static float *place_in(float *array, int seed, int which) {
  return array + MARGIN / 2 + (seed * (2 * which + 1) + which) % (MARGIN / 2);
}

static struct optimizer_update update_at(struct arrays *arrays, int seed, uint32_t elems, bool is_in_place) {
  float *slots = place_in(arrays->slots, seed, 3);
  return (struct optimizer_update){.step = seed % 2 ? 0 : (uint64_t)seed,
                                   .lr = 0.01,
                                   .elems = elems,
                                   .weights = place_in(arrays->weights, seed, 0),
                                   .grad = place_in(arrays->grad, seed, 1),
                                   .out = place_in(arrays->out, seed, 2),
                                   .slots = slots,
                                   .next_slots = is_in_place ? slots : place_in(arrays->next_slots, seed, 4)};
}

/* One element, alone; what it becomes is compared. */
static void assert_element(const struct optimizer_def *optimizer, const Weir__OptimizerSpec *spec,
                           const struct optimizer_update *before, const struct optimizer_update *after,
                           uint32_t i) {
  uint32_t n_slots = optimizer->slots(spec), elems = before->elems;
  float out = before->out[i], slots[SLOTS_MAX], next[SLOTS_MAX];
  struct optimizer_update alone = *before;
  for (uint32_t s = 0; s < n_slots; s++)
    slots[s] = before->slots[(size_t)s * elems + i];
  alone.elems = 1;
  alone.weights = before->weights + i;
  alone.grad = before->grad + i;
  alone.out = &out;
  alone.slots = slots;
  alone.next_slots = next;
  optimizer->update(spec, &alone);
  if (!is_same(out, after->out[i]))
    fail_msg("%s: element %u of %u is %a, not %a", spec->name, i, elems, (double)after->out[i], (double)out);
  for (uint32_t s = 0; s < n_slots; s++)
    if (!is_same(next[s], after->next_slots[(size_t)s * elems + i]))
      fail_msg("%s: slot %u of element %u of %u is %a, not %a", spec->name, s, i, elems,
               (double)after->next_slots[(size_t)s * elems + i], (double)next[s]);
}

/* Nothing but the n values from `begin` on has changed. */
static void assert_rest_is_kept(const float *before, const float *after, const float *begin, size_t n) {
  size_t at = (size_t)(begin - after);
  assert_memory_equal(before, after, at * sizeof *before);
  assert_memory_equal(before + at + n, after + at + n, (ARRAY - at - n) * sizeof *before);
}

static void try_update(const struct optimizer_def *optimizer, const Weir__OptimizerSpec *spec, int seed,
                       uint32_t elems) {
  bool is_in_place = seed % 3 != 0;
  double totals[2] = {2.25, 3.5};
  struct optimizer_update before = update_at(&given, seed, elems, is_in_place), after;
  size_t n_slots = (size_t)optimizer->slots(spec) * elems;
  found = given;
  after = update_at(&found, seed, elems, is_in_place);
  before.totals[0] = after.totals[0] = totals;
  optimizer->update(spec, &after);
  for (uint32_t i = 0; i < elems; i++)
    assert_element(optimizer, spec, &before, &after, i);
  assert_rest_is_kept(given.weights, found.weights, found.weights, 0);
  assert_rest_is_kept(given.grad, found.grad, found.grad, 0);
  assert_rest_is_kept(given.out, found.out, after.out, elems);
  assert_rest_is_kept(given.slots, found.slots, after.slots, is_in_place ? n_slots : 0);
  if (!is_in_place)
    assert_rest_is_kept(given.next_slots, found.next_slots, after.next_slots, n_slots);
}

static void try_options(const char *options) {
  static const uint32_t sizes[] = {1, 2, 15, 16, 17, 31, 33, 64, 100, 255, 1023, 1024, 1025, 4097, ELEMS_MAX};
  char *text = mem_printf("train: {optimizer: %s}", options);
  const struct optimizer_def *optimizer;
  struct err err = ERR_NONE;
  Weir__RunSpec *spec;
  if (spec_read("options", text, strlen(text), &spec, &err) || optimizer_settle(spec->train->optimizer, &err))
    fail_msg("%s: %s", options, err.text);
  optimizer = optimizer_find(spec->train->optimizer->name);
  if (!optimizer->state) /* else an element's update is not its own */
    for (int i = 0; i < (int)(sizeof sizes / sizeof *sizes); i++)
      try_update(optimizer, spec->train->optimizer, i, sizes[i]);
  spec_free(spec);
  free(text);
}

static void many_elements_at_a_time_have_the_bits_of_each_by_itself(void **state) {
  json_t *root = json_load_file("tests/parity/optimizers.json", 0, NULL), *json;
  size_t at;
  (void)state;
  draw(given.weights, 1);
  draw(given.grad, 2);
  draw(given.out, 3);
  draw(given.slots, 4);
  draw(given.next_slots, 5);
  assert_true(json_array_size(json_object_get(root, "cases")) > 0);
  json_array_foreach(json_object_get(root, "cases"), at, json) {
    char *options = json_dumps(json_object_get(json, "options"), JSON_REAL_PRECISION(15));
    try_options(options);
    free(options);
  }
  json_decref(root);
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(many_elements_at_a_time_have_the_bits_of_each_by_itself),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
