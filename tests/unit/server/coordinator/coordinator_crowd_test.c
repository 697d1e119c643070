/* What the coordinator's core says to many workers stays in proportion to their number. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/log.h"
#include "tests/support/coordinator/core_crowd.h"

enum { SERVERS = 10, VIEW_BYTES_MAX = 512 };

/* A worker leaves, and every other one gets a view: what it takes does not depend on how many others there
 * are. */
static void a_worker_is_told_no_more_where_there_are_more_workers(void **state) {
  const int workers[] = {10, 100, 1000};
  (void)state;
  for (int i = 0; i < 3; i++) {
    struct crowd crowd;
    crowd_init(&crowd, SERVERS, workers[i]);
    crowd_leaves(&crowd, (uint64_t)(SERVERS + workers[i]));
    print_message("%4d workers: %llu views, %llu bytes, %llu a view\n", workers[i] - 1,
                  (unsigned long long)crowd.views, (unsigned long long)crowd.view_bytes,
                  (unsigned long long)(crowd.view_bytes / crowd.views));
    assert_int_equal(crowd.views, workers[i] - 1);
    assert_true(crowd.view_bytes <= VIEW_BYTES_MAX * crowd.views);
    crowd_fini(&crowd);
  }
}

static void a_heartbeat_makes_the_core_say_nothing_but_its_answer(void **state) {
  struct crowd crowd;
  (void)state;
  crowd_init(&crowd, SERVERS, 100);
  for (uint64_t i = 1; i <= 1000; i++) {
    crowd.now_ms += 10;
    crowd_beats(&crowd, SERVERS + 1 + i % 100, i, (double)i);
    assert_int_equal(crowd.actions.count, 1);
    assert_int_equal(crowd.orders, 1);
  }
  crowd_fini(&crowd);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_worker_is_told_no_more_where_there_are_more_workers),
      cmocka_unit_test(a_heartbeat_makes_the_core_say_nothing_but_its_answer),
  };
  log_set_level(LOG_ERROR);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
