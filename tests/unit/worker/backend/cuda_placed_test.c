/* Values of the cuda backend that go straight to where its caller wants them, on a simulated device. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "common/agree/sum.h"
#include "tests/support/worker/find_simulation.h"
#include "tests/support/worker/network.h"

static const char device[] = "cuda";

/* Every other value is placed, in two pieces that do not touch. */
struct placing {
  struct answer answer;
  float *odd[WATCHED_MAX];
  int n_placed, n_not_finite;
};

static bool is_placed(int watch) {
  return watch % 2 == 1;
}

static int place_odd(void *user, int watch, struct backend_piece *pieces, int max) {
  struct placing *placing = user;
  size_t elems = watched_bytes(placing->answer.network, watch) / sizeof(float), half = elems / 2;
  if (!is_placed(watch))
    return 0;
  assert_true(max >= 2);
  pieces[0] = (struct backend_piece){placing->odd[watch], 0, half};
  pieces[1] = (struct backend_piece){placing->odd[watch] + half + 1, half, elems - half};
  return 2;
}

static void take_odd(void *user, int watch, const float *data) {
  struct placing *placing = user;
  const struct network *f = placing->answer.network;
  assert_false(is_placed(watch));
  memcpy(placing->answer.values[watch], data, watched_bytes(f, watch));
}

static void placed_odd(void *user, int watch, bool is_finite) {
  struct placing *placing = user;
  const struct network *f = placing->answer.network;
  size_t elems = watched_bytes(f, watch) / sizeof(float), half = elems / 2;
  float *value = placing->answer.values[watch];
  assert_true(is_placed(watch));
  memcpy(value, placing->odd[watch], half * sizeof *value);
  memcpy(value + half, placing->odd[watch] + half + 1, (elems - half) * sizeof *value);
  memset(placing->odd[watch], 0, (elems + 1) * sizeof *value);
  assert_int_equal(is_finite, sum_is_finite(value, elems));
  placing->n_not_finite += !is_finite;
  placing->n_placed++;
}

static void placing_init(struct placing *placing, const struct network *f) {
  *placing = (struct placing){.n_placed = 0};
  answer_init(&placing->answer, f);
  for (int w = 0; w < f->n_watched; w++)
    placing->odd[w] = mem_new(watched_bytes(f, w) + sizeof(float));
}

static void placing_fini(struct placing *placing) {
  for (int w = 0; w < placing->answer.network->n_watched; w++)
    free(placing->odd[w]);
  answer_fini(&placing->answer);
}

static void placing_run(struct placing *placing, struct backend_program *program) {
  struct backend_run execution = {.inputs = placing->answer.network->inputs,
                                  .on_value = take_odd,
                                  .place = place_odd,
                                  .placed = placed_odd,
                                  .user = placing};
  struct err err = ERR_NONE;
  assert_int_equal(backend_of(device)->run(program, &execution, &err), ERR_OK);
}

static void values_are_copied_to_where_they_are_wanted(void **state) {
  struct network f;
  struct answer expected;
  struct placing placing;
  (void)state;
  network_init_wide(&f);
  network_run_once(device, &f, &expected);
  placing_init(&placing, &f);
  struct backend_program *program = network_prepare(device, &f);
  for (int i = 0; i < 3; i++) {
    placing_run(&placing, program);
    assert_true(answer_is_same(&expected, &placing.answer));
  }
  assert_int_equal(placing.n_placed, 3 * (f.n_watched / 2));
  backend_of(device)->release(program);
  placing_fini(&placing);
  answer_fini(&expected);
  network_fini(&f);
}

/* placed_odd holds what it is told against the bytes. */
static void of_values_that_are_placed_it_is_told_whether_they_are_finite(void **state) {
  struct network f;
  struct placing placing;
  int n_not_finite;
  (void)state;
  network_init_wide(&f);
  float image = f.images[0];
  placing_init(&placing, &f);
  struct backend_program *program = network_prepare(device, &f);
  placing_run(&placing, program);
  assert_int_equal(placing.n_not_finite, 0);
  f.images[0] = NAN;
  placing_run(&placing, program);
  n_not_finite = placing.n_not_finite;
  assert_true(n_not_finite > 0);
  f.images[0] = image;
  placing_run(&placing, program);
  assert_int_equal(placing.n_not_finite, n_not_finite);
  backend_of(device)->release(program);
  placing_fini(&placing);
  network_fini(&f);
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(values_are_copied_to_where_they_are_wanted),
      cmocka_unit_test(of_values_that_are_placed_it_is_told_whether_they_are_finite),
  };
  if (!find_simulation("2"))
    return 0;
  return cmocka_run_group_tests(tests, NULL, NULL);
}
