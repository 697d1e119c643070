/* Many runs wait for a fleet that others have: what an event has the core do is bounded, and all of it is
 * done. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/log.h"
#include "server/coordinator/core/settle.h"
#include "server/coordinator/messages/info.h"
#include "tests/support/coordinator/core_fleet.h"

enum { WORKERS = 20, WAITING = 5 * EXPLAINED_MAX, TURNS = 40 };

/* One run has all workers, and the others wait for more than there are. */
static void fleet_fill(struct fleet *fleet) {
  fleet_init(fleet);
  fleet_server_joins(fleet);
  for (int i = 0; i < WORKERS; i++)
    fleet_worker_joins(fleet, NULL);
  fleet_submits(fleet, "");
  for (int i = 0; i < WAITING; i++)
    fleet_submits(fleet, "workers: {min: 100}\n");
  for (int i = 0; i <= WAITING / EXPLAINED_MAX; i++)
    fleet_ticks(fleet, 1);
  assert_int_equal(fleet_count_runs(fleet, WEIR__RUN_STATE__RUNNING), 1);
  assert_int_equal(fleet_count_runs(fleet, WEIR__RUN_STATE__QUEUED), WAITING);
}

static int count_saying(struct fleet *fleet, const char *words) {
  int count = 0;
  for (int i = 1; i <= WAITING; i++) {
    Weir__RunInfo info;
    char id[64];
    assert_true(coordinator_run_info(fleet->core, fleet_run(i, id), fleet->now_ms, &info));
    count += strstr(info.message, words) != NULL;
  }
  return count;
}

static int count_published(const struct fleet *fleet) {
  int count = 0;
  for (int i = 0; i < fleet->actions.count; i++)
    count += fleet->actions.items[i].kind == ACTION_PUBLISH;
  return count;
}

static void runs_that_wait_are_told_why_some_at_a_time(void **state) {
  struct fleet fleet;
  (void)state;
  fleet_fill(&fleet);
  assert_int_equal(count_saying(&fleet, "waiting for workers: 19 of 100; mlp-000000 has 20"), WAITING);
  fleet_leaves(&fleet, 1 + WORKERS);
  for (int told = EXPLAINED_MAX; told <= WAITING; told += EXPLAINED_MAX) {
    assert_int_equal(count_saying(&fleet, "mlp-000000 has 19"), told);
    assert_true(count_published(&fleet) <= EXPLAINED_MAX + 1);
    fleet_ticks(&fleet, 1);
  }
  fleet_ticks(&fleet, 1);
  assert_int_equal(fleet.actions.count, 0); /* there is nothing more to say */
  fleet_fini(&fleet);
}

/* A worker leaves, and 40 runs take turns on 39 workers. */
static void runs_that_take_turns_are_told_so_some_at_a_time(void **state) {
  struct fleet fleet;
  int told = 0;
  (void)state;
  fleet_init(&fleet);
  fleet_server_joins(&fleet);
  for (int i = 0; i < TURNS; i++)
    fleet_worker_joins(&fleet, NULL);
  for (int i = 0; i < TURNS; i++)
    fleet_submits(&fleet, "workers: {max: 1}\n");
  assert_int_equal(fleet_count_runs(&fleet, WEIR__RUN_STATE__RUNNING), TURNS);
  fleet_leaves(&fleet, 1 + TURNS);
  for (int events = 0; told < TURNS; events++) {
    int before = told;
    assert_true(events <= TURNS / EXPLAINED_MAX + 2);
    told = 0;
    for (int run = 0; run < TURNS; run++) {
      Weir__RunInfo info;
      char id[64];
      assert_true(coordinator_run_info(fleet.core, fleet_run(run, id), fleet.now_ms, &info));
      told += strcmp(info.message, "takes turns with 39 other runs") == 0;
    }
    assert_in_range(told - before, 1, EXPLAINED_MAX);
    fleet_ticks(&fleet, 1);
  }
  assert_int_equal(told, TURNS);
  fleet_fini(&fleet);
}

static void a_step_report_makes_the_core_publish_the_step_alone(void **state) {
  struct fleet fleet;
  (void)state;
  fleet_fill(&fleet);
  fleet_reports_step(&fleet, 0);
  assert_int_equal(fleet.actions.count, 1);
  assert_int_equal(fleet.actions.items[0].kind, ACTION_PUBLISH);
  fleet_fini(&fleet);
}

static void runs_that_are_gone_are_not_spoken_of(void **state) {
  struct fleet fleet;
  (void)state;
  fleet_fill(&fleet);
  fleet_cancels(&fleet, 0);
  for (int i = 0; i <= WAITING / EXPLAINED_MAX; i++)
    fleet_ticks(&fleet, 1);
  assert_int_equal(count_saying(&fleet, "mlp-000000"), 0);
  assert_int_equal(count_saying(&fleet, "waiting for workers: 20 of 100"), WAITING);
  fleet_fini(&fleet);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(runs_that_wait_are_told_why_some_at_a_time),
      cmocka_unit_test(runs_that_take_turns_are_told_so_some_at_a_time),
      cmocka_unit_test(a_step_report_makes_the_core_publish_the_step_alone),
      cmocka_unit_test(runs_that_are_gone_are_not_spoken_of),
  };
  log_set_level(LOG_ERROR);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
