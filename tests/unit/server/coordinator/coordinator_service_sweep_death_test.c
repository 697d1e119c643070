/* What a coordinator leaves of sweeps when it dies, and what the next one makes of it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/agree/float_setting.h"
#include "common/base/log.h"
#include "common/base/memory.h"
#include "common/base/message.h"
#include "server/coordinator/state/options.h"
#include "storage/checkpoint/checkpoint.h"
#include "store.pb-c.h"
#include "tests/support/common/sweep_specs.h"
#include "tests/support/coordinator/service_members.h"
#include "tests/support/storage/checkpoint_fixture.h"
#include "tests/support/storage/flaky_store.h"

enum { OLD = 1000 /* ms since 1970 */ };

/* Its first trial has failed, of which others learn. */
static char *search_that_teaches(struct service_fixture *f) {
  char *id = sweep_search(f, sweep_tries_text, (const char *const[]){"concurrency=1"}, 1);
  char *run = mem_printf("%s-0000", id);
  Weir__RunInfo *info;
  struct err err = ERR_NONE;
  AWAIT(run_state(f, run) == WEIR__RUN_STATE__QUEUED);
  assert_int_equal(ask_run(f, RPC_CANCEL, run, &info, &err), 0);
  message_free(info);
  AWAIT(sweep_count_log(f, id) == 3); /* it has begun and failed, and another one begins */
  free(run);
  return id;
}

static void what_a_sweep_learned_is_deleted_where_a_coordinator_died_before_the_head(void **state) {
  static const char *const settings[] = {"search={name: tpe}", "from=[search]"};
  struct service_fixture *f = *state;
  struct err err;
  Weir__SweepSpec *sweep = sweep_spec_of(sweep_tries_text, settings, 2, &err);
  char *id;
  sweeps_prepare(f);
  id = search_that_teaches(f);
  assert_int_equal(sweeps_count_records(f), 2 + 3);
  flaky_leave_at(f->seat.store, "/sweep");
  assert_null(sweep_try(f, sweep, &err));
  assert_int_equal(sweeps_count_records(f), 2 + 3 + 1); /* what it learned */
  seat_restart(f, true);
  assert_int_equal(sweeps_count_records(f), 2 + 3);
  assert_int_equal(sweeps_count(f), 1);
  assert_int_equal(sweep_count_begun(f, id), 2);
  message_free(sweep);
  free(id);
}

static void a_sweep_is_gone_where_a_coordinator_died_while_it_was_deleted(void **state) {
  struct service_fixture *f = *state;
  Weir__SweepRequest request = WEIR__SWEEP_REQUEST__INIT;
  struct rpc_question question = {RPC_DELETE_SWEEP, &request, patience_ms()};
  Weir__CollectGarbageReply *reply = NULL;
  struct err err = ERR_NONE;
  sweeps_prepare(f);
  request.sweep = sweep_search(f, sweep_tries_text, NULL, 0);
  AWAIT(sweep_count_log(f, request.sweep) == 3);
  message_free(sweep_change(f, RPC_STOP_SWEEP, &request));
  flaky_leave_at(f->seat.store, "/log/00000000000000000001");
  do {
    err = ERR_NONE;
    rpc_unary(f->channel, &question, false, (void **)&reply, &err);
  } while (err.code == ERR_BUSY); /* until its runs are over */
  assert_int_equal(err.code, ERR_UNAVAILABLE);
  assert_int_not_equal(sweeps_count_records(f), 0);
  seat_restart(f, true);
  assert_int_equal(sweeps_count_records(f), 0);
  assert_int_equal(sweeps_count(f), 0);
  free(request.sweep);
}

static Weir__RunRecord *read_record(struct service_fixture *f, const char *run) {
  char *name = checkpoint_run_name(run, "run");
  Weir__RunRecord *record = NULL;
  struct err err = ERR_NONE;
  assert_int_equal(
      checkpoint_read_record(f->store, name, &weir__run_record__descriptor, (void **)&record, &err), 0);
  free(name);
  return record;
}

static Weir__RunState stored_state(struct service_fixture *f, const char *run) {
  Weir__RunRecord *record = read_record(f, run);
  Weir__RunState state = record->state;
  message_free(record);
  return state;
}

static void put_record(struct service_fixture *f, Weir__RunRecord *record, char *run) {
  char *name = checkpoint_run_name(run, "run"), *own = record->run;
  struct err err = ERR_NONE;
  record->run = run;
  assert_int_equal(checkpoint_write_record(f->store, name, record, NULL, &err), 0);
  record->run = own;
  free(name);
}

/* Those of another sweep that came to their end, as many as a coordinator knows. The run's own record gets a
   sign by which it is known. */
static void crowd_out(struct service_fixture *f, char *run) {
  Weir__RunRecord *record = read_record(f, run);
  char id[32], other[] = "other-aaaaaa", *own = record->sweep;
  record->submitted_unix_ms = OLD;
  put_record(f, record, run);
  record->sweep = other;
  record->state = WEIR__RUN_STATE__DONE;
  for (int i = 0; i < TRIALS_KEPT; i++) {
    snprintf(id, sizeof id, "%s-%04d", other, i);
    record->submitted_unix_ms++;
    put_record(f, record, id);
  }
  record->sweep = own;
  message_free(record);
}

static void a_trial_that_goes_on_is_the_run_of_before_though_a_coordinator_has_forgotten_it(void **state) {
  struct service_fixture *f = *state;
  Weir__SweepRequest stop = WEIR__SWEEP_REQUEST__INIT;
  Weir__ExtendSweepRequest extend = WEIR__EXTEND_SWEEP_REQUEST__INIT;
  Weir__SweepBudget budget = WEIR__SWEEP_BUDGET__INIT;
  Weir__RunInfo *info;
  struct err err = ERR_NONE;
  char *run;
  sweeps_prepare(f);
  stop.sweep = extend.sweep = sweep_search(f, sweep_tries_text, (const char *const[]){"concurrency=1"}, 1);
  run = mem_printf("%s-0000", stop.sweep);
  AWAIT(run_state(f, run) == WEIR__RUN_STATE__QUEUED);
  message_free(sweep_change(f, RPC_STOP_SWEEP, &stop));
  AWAIT(run_state(f, run) == WEIR__RUN_STATE__CANCELLED &&
        stored_state(f, run) == WEIR__RUN_STATE__CANCELLED);
  seat_stop(&f->seat);
  crowd_out(f, run); /* nobody else writes meanwhile */
  seat_start(f, &f->seat, "first:1");
  f->channel = f->seat.channel;
  assert_int_equal(ask_run(f, RPC_GET_RUN, run, &info, &err), ERR_NOT_FOUND);
  extend.budget = &budget;
  budget.has_trials = true;
  budget.trials = 501;
  message_free(sweep_change(f, RPC_EXTEND_SWEEP, &extend));
  AWAIT(run_state(f, run) == WEIR__RUN_STATE__QUEUED);
  err = ERR_NONE;
  assert_int_equal(ask_run(f, RPC_GET_RUN, run, &info, &err), 0);
  assert_int_equal(info->submitted_unix_ms, OLD);
  message_free(info);
  free(run);
  free(stop.sweep);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, service_setup, service_teardown)

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      TEST(what_a_sweep_learned_is_deleted_where_a_coordinator_died_before_the_head),
      TEST(a_trial_that_goes_on_is_the_run_of_before_though_a_coordinator_has_forgotten_it),
      TEST(a_sweep_is_gone_where_a_coordinator_died_while_it_was_deleted),
  };
  log_set_level(LOG_ERROR + 1);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
