/* Holds by epochs: versions, once a worker has told how many samples there are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/log.h"
#include "common/base/message.h"
#include "server/coordinator/messages/info.h"
#include "tests/support/coordinator/core_run.h"
#include "tests/support/coordinator/core_succession.h"

enum { HOLD = 4 };

static void a_hold_by_epochs_is_a_version_once_the_data_is_known(void **state) {
  struct core_fixture *f = *state;
  const Weir__TrainSpec *train;
  f->hold_epochs = (HOLD + 0.5) * BATCH / SAMPLES;
  core_run_begin(f, 1);
  train = coordinator_run_spec(f->coordinator, RUN)->train;
  assert_true(train->has_hold && !train->has_hold_epochs);
  assert_int_equal(f->told[S1].hold, HOLD);
  assert_int_equal(f->told[W1].hold, HOLD);
  assert_int_equal(info_of_run(f, RUN).hold, HOLD);
  assert_int_equal(info_of_run(f, RUN).train_samples, SAMPLES);
  reports_steps(f, S1, RUN, 0, HOLD);
  reports_held(f, S1, RUN, HOLD);
  reports_held(f, S2, RUN, HOLD);
  assert_state(f, RUN, WEIR__RUN_STATE__HELD);
  user_raises(f, RUN, HOLD + 2);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
}

static void epochs_of_too_few_samples_are_bad_input(void **state) {
  struct core_fixture *f = *state;
  f->hold_epochs = 0.9 * BATCH / SAMPLES;
  server_joins(f, S1);
  worker_joins(f, W1, 1);
  user_submits(f, RUN, 1, 0);
  worker_loads(f, W1, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__FAILED);
  assert_true(info_of_run(f, RUN).bad_input);
  assert_non_null(strstr(info_of_run(f, RUN).message, "train.hold_epochs: 0.1152 epochs of 1000 samples"));
}

/* Also one whose record still says it by epochs. */
static void a_successor_has_the_hold_of_the_data(void **state) {
  struct core_fixture *f = *state;
  Weir__RunRecord *record;
  f->hold_epochs = (HOLD + 0.5) * BATCH / SAMPLES;
  core_run_begin(f, 1);
  record = record_of(f);
  record->spec->train->has_hold = false;
  record->spec->train->has_hold_epochs = true;
  record->spec->train->hold_epochs = f->hold_epochs;
  coordinator_is_succeeded(f, RUN, record);
  assert_int_equal(info_of_run(f, RUN).hold, HOLD);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, core_setup, core_teardown)
  const struct CMUnitTest tests[] = {
      TEST(a_hold_by_epochs_is_a_version_once_the_data_is_known),
      TEST(epochs_of_too_few_samples_are_bad_input),
      TEST(a_successor_has_the_hold_of_the_data),
  };
#undef TEST
  log_set_level(LOG_ERROR + 1);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
