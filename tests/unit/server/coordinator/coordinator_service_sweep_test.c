/* Sweeps over real RPC, with no member: their trials stay queued. */
#include <stdlib.h>
#include <string.h>

#include "common/agree/float_setting.h"
#include "common/agree/random.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/memory.h"
#include "common/base/message.h"
#include "storage/checkpoint/checkpoint.h"
#include "store.pb-c.h"
#include "tests/support/common/sweep_specs.h"
#include "tests/support/coordinator/service_members.h"
#include "tests/support/storage/checkpoint_fixture.h"
#include "tests/support/storage/flaky_store.h"

enum { GARBAGE = 300, MANY = 200, LETTERS = 3000, REPLY_BYTES_MAX = 1 << 20 };

static void trials_are_runs_once_the_log_is_stored_and_a_successor_has_them(void **state) {
  struct service_fixture *f = *state;
  Weir__RunInfo *info;
  struct err err;
  char *id, *run;
  sweeps_prepare(f);
  id = sweep_search(f, sweep_tries_text, NULL, 0);
  run = mem_printf("%s-0002", id);
  AWAIT(run_state(f, run) == WEIR__RUN_STATE__QUEUED);
  assert_int_equal(sweeps_count_records(f), 2 + 3); /* the head, the kind, and a suggestion for each */
  assert_int_equal(ask_run(f, RPC_GET_RUN, run, &info, &err), 0);
  assert_string_equal(info->sweep, id);
  assert_int_equal(info->trial, 2);
  message_free(info);
  seat_restart(f, true);
  AWAIT(run_state(f, run) == WEIR__RUN_STATE__QUEUED);
  assert_int_equal(sweep_count_begun(f, id), 3);
  assert_int_equal(sweeps_count_records(f), 2 + 3);
  free(run);
  free(id);
}

static void a_sweep_whose_client_was_refused_leaves_nothing(void **state) {
  struct service_fixture *f = *state;
  struct err err;
  Weir__SweepSpec *sweep = sweep_spec_of(sweep_tries_text, NULL, 0, &err);
  char *id;
  sweeps_prepare(f);
  flaky_lose_answers(f->seat.store, "/sweep");
  id = sweep_try(f, sweep, &err);
  assert_null(id);
  assert_int_equal(err.code, ERR_UNAVAILABLE);
  assert_int_equal(sweeps_count(f), 0);
  flaky_lose_answers(f->seat.store, NULL);
  AWAIT(sweeps_count_records(f) == 0);
  seat_restart(f, false);
  assert_int_equal(sweeps_count(f), 0);
  message_free(sweep);
}

/* No trial is over, as there is no worker. */
static void a_sweep_that_learns_nothing_of_another_leaves_nothing(void **state) {
  static const char *const settings[][2] = {{"search={name: tpe}", "from=[search]"},
                                            {"search={name: tpe}", "from=[nobody]"}};
  static const char *const expected[] = {"has no trial that is over", "from: no sweep 'nobody'"};
  struct service_fixture *f = *state;
  char *id;
  sweeps_prepare(f);
  id = sweep_search(f, sweep_tries_text, NULL, 0);
  AWAIT(sweeps_count_records(f) == 2 + 3);
  for (int i = 0; i < 2; i++) {
    struct err err;
    Weir__SweepSpec *sweep = sweep_spec_of(sweep_tries_text, settings[i], 2, &err);
    assert_null(sweep_try(f, sweep, &err));
    assert_int_equal(err.code, ERR_INVALID);
    assert_non_null(strstr(err.text, expected[i]));
    message_free(sweep);
  }
  assert_int_equal(sweeps_count(f), 1);
  assert_int_equal(sweeps_count_records(f), 2 + 3);
  free(id);
}

/* 200 trials of three values of thousands of letters each. */
static void a_long_sweep_is_told_in_pages(void **state) {
  static const char *const paths[] = {"data.root", "data.train.images", "data.train.labels"};
  struct service_fixture *f = *state;
  char letters[LETTERS + 1] = "", *settings[1 + 3], *id;
  uint32_t trial = 0;
  uint64_t record = 0;
  int n_pages = 0;
  memset(letters, 'x', LETTERS);
  settings[0] = mem_printf("concurrency=%d", MANY);
  settings[1] = mem_strdup("budget.trials=200");
  settings[2] = mem_printf("search={name: sobol, seed: 1}");
  settings[3] = mem_printf("space={%s: [%sa, %sb], %s: [%sa, %sb], %s: [%sa, %sb]}", paths[0], letters,
                           letters, paths[1], letters, letters, paths[2], letters, letters);
  sweeps_prepare(f);
  id = sweep_search(f, sweep_tries_text, (const char *const *)settings, 4);
  AWAIT(sweep_count_log(f, id) == MANY);
  while (trial < MANY || record < MANY) {
    Weir__SweepInfo *info = sweep_page(f, id, trial, record);
    assert_true(weir__sweep_info__get_packed_size(info) < REPLY_BYTES_MAX);
    assert_true(info->n_trials > 0 || info->n_records > 0);
    assert_int_equal(info->spec != NULL, trial == 0);
    for (size_t i = 0; i < info->n_trials; i++)
      assert_int_equal(info->trials[i]->number, trial++);
    for (size_t i = 0; i < info->n_records; i++)
      assert_int_equal(info->records[i]->suggestion->trial, record++);
    n_pages++;
    message_free(info);
  }
  assert_true(n_pages > 2);
  for (int i = 0; i < 4; i++)
    free(settings[i]);
  free(id);
}

static void garbage_is_refused_and_leaves_no_sweep(void **state) {
  struct service_fixture *f = *state;
  struct err err;
  Weir__SweepSpec *sweep = sweep_spec_of(sweep_tries_text, NULL, 0, &err);
  size_t size = weir__sweep_spec__get_packed_size(sweep), n_taken = 0;
  uint8_t *packed = mem_new(size), *bytes = mem_new(size);
  weir__sweep_spec__pack(sweep, packed);
  message_free(sweep);
  sweeps_prepare(f);
  for (uint64_t i = 0; i < GARBAGE; i++) {
    char *id;
    memcpy(bytes, packed, size);
    for (uint64_t change = 0; change <= i % 3; change++)
      bytes[random_bits(51 + change, i) % size] = (uint8_t)random_bits(61 + change, i);
    if (!(sweep = weir__sweep_spec__unpack(NULL, size, bytes)))
      continue;
    id = sweep_try(f, sweep, &err);
    assert_true(id || err.code == ERR_INVALID || err.code == ERR_BUSY);
    n_taken += id != NULL;
    free(id);
    message_free(sweep);
  }
  assert_int_equal(sweeps_count(f), n_taken);
  sweep = sweep_spec_of(sweep_tries_text, NULL, 0, &err);
  f->spec->train->has_hold = true;
  f->spec->train->hold = 1;
  assert_null(sweep_try(f, sweep, &err));
  assert_non_null(strstr(err.text, "train.hold"));
  message_free(sweep);
  free(packed);
  free(bytes);
}

static Weir__SweepInfo *ask_changes(struct service_fixture *f, const char *sweep, uint32_t first,
                                    uint64_t from) {
  Weir__GetSweepRequest request = WEIR__GET_SWEEP_REQUEST__INIT;
  const struct rpc_question question = {RPC_GET_SWEEP, &request, patience_ms()};
  Weir__SweepInfo *info = NULL;
  struct err err = ERR_NONE;
  request.sweep = (char *)sweep;
  request.first_trial = first;
  request.only_changes = true;
  request.changed_from = from;
  if (rpc_unary(f->channel, &question, false, (void **)&info, &err))
    fail_msg("%s", err.text);
  assert_true(info->only_changes);
  return info;
}

static void a_watcher_is_told_only_the_trials_that_have_changed(void **state) {
  static const char *const settings[] = {"concurrency=200"};
  struct service_fixture *f = *state;
  Weir__RunInfo *ended;
  Weir__SweepInfo *info;
  struct err err = ERR_NONE;
  uint64_t before;
  char *id, *run;
  sweeps_prepare(f);
  id = sweep_search(f, sweep_tries_text, settings, 1);
  run = mem_printf("%s-0000", id); /* in virtual time the first to end */
  AWAIT(sweep_count_log(f, id) == MANY && run_state(f, run) == WEIR__RUN_STATE__QUEUED);
  before = sweep_count_log(f, id);
  info = ask_changes(f, id, 0, 0);
  assert_int_equal(info->n_trials, MANY);
  message_free(info);
  info = ask_changes(f, id, 0, before);
  assert_int_equal(info->n_trials, 0);
  assert_int_equal(info->next_trial, 0);
  message_free(info);
  assert_int_equal(ask_run(f, RPC_CANCEL, run, &ended, &err), 0);
  message_free(ended);
  AWAIT(sweep_count_log(f, id) == before + 2); /* it has failed, and another one began */
  info = ask_changes(f, id, 0, before);
  assert_int_equal(info->n_trials, 2);
  assert_int_equal(info->trials[0]->number, 0);
  assert_string_equal(info->trials[0]->state, "failed");
  assert_int_equal(info->trials[1]->number, MANY);
  message_free(info);
  info = ask_changes(f, id, UINT32_MAX, UINT64_MAX);
  assert_int_equal(info->n_trials, 0);
  message_free(info);
  free(run);
  free(id);
}

static Weir__SweepKind *read_kind(struct service_fixture *f, const char *sweep) {
  char *name = mem_printf("sweeps/%s/kind", sweep);
  Weir__SweepKind *kind = NULL;
  struct err err = ERR_NONE;
  assert_int_equal(
      checkpoint_read_record(f->store, name, &weir__sweep_kind__descriptor, (void **)&kind, &err), 0);
  free(name);
  return kind;
}

static bool is_kind_stored(struct service_fixture *f, const char *sweep) {
  Weir__SweepKind *kind = read_kind(f, sweep);
  bool is_stored = *kind->libm && *kind->fingerprint && *kind->server_fingerprint;
  message_free(kind);
  return is_stored;
}

static void the_store_keeps_the_kind_of_what_computes_a_sweep(void **state) {
  struct service_fixture *f = *state;
  struct rpc_reader *server, *worker;
  Weir__RunLoaded loaded = WEIR__RUN_LOADED__INIT;
  Weir__Order *order;
  Weir__SweepInfo *info;
  char *id, *run;
  sweeps_prepare(f);
  id = sweep_search(f, sweep_tries_text, (const char *const[]){"concurrency=1"}, 1);
  run = mem_printf("%s-0000", id);
  AWAIT(run_state(f, run) == WEIR__RUN_STATE__QUEUED);
  assert_false(is_kind_stored(f, id));
  server = member_join(f, WEIR__ROLE__SERVER);
  worker = member_join(f, WEIR__ROLE__WORKER);
  order = expect_order(worker, WEIR__ORDER__BODY_LOAD);
  loaded.run = run;
  loaded.incarnation = order->load->incarnation;
  loaded.train_samples = loaded.eval_samples = TINY_SAMPLES;
  member_tell(worker, WEIR__MEMBER_MESSAGE__BODY_LOADED, &loaded);
  message_free(order);
  message_free(expect_order(server, WEIR__ORDER__BODY_LOAD));
  AWAIT(is_kind_stored(f, id));
  rpc_reader_close(worker);
  rpc_reader_close(server);
  seat_restart(f, true);
  info = sweep_page(f, id, UINT32_MAX, UINT64_MAX);
  assert_string_equal(info->worker_fingerprint, "build-1");
  assert_string_equal(info->server_fingerprint, "build-1");
  message_free(info);
  free(run);
  free(id);
}

static void set_libm(struct service_fixture *f, const char *sweep, const char *libm) {
  Weir__SweepKind *kind = read_kind(f, sweep), changed = *kind;
  char *name = mem_printf("sweeps/%s/kind", sweep);
  struct err err = ERR_NONE;
  changed.libm = (char *)libm;
  assert_int_equal(checkpoint_write_record(f->store, name, &changed, NULL, &err), 0);
  free(name);
  message_free(kind);
}

/* Then a coordinator that comes next knows it. */
static bool is_run_stored(struct service_fixture *f, const char *run) {
  char *name = mem_printf("runs/%s/run", run);
  void *data = NULL;
  size_t size;
  struct err err = ERR_NONE;
  bool is_stored = store_get_record(f->store, name, &data, &size, &err) == 0;
  free(data);
  free(name);
  return is_stored;
}

static void a_coordinator_whose_libm_computes_otherwise_suggests_nothing(void **state) {
  struct service_fixture *f = *state;
  Weir__SweepRequest stop = WEIR__SWEEP_REQUEST__INIT;
  Weir__ExtendSweepRequest extend = WEIR__EXTEND_SWEEP_REQUEST__INIT;
  Weir__SweepBudget budget = WEIR__SWEEP_BUDGET__INIT;
  Weir__RunInfo *ended;
  Weir__SweepInfo *info;
  struct err err = ERR_NONE;
  char *id, *run;
  sweeps_prepare(f);
  stop.sweep = extend.sweep = id = sweep_search(f, sweep_tries_text, NULL, 0);
  run = mem_printf("%s-0000", id);
  AWAIT(sweep_count_log(f, id) == 3 && is_run_stored(f, run));
  set_libm(f, id, "0123456789abcdef");
  seat_restart(f, true);
  assert_int_equal(ask_run(f, RPC_CANCEL, run, &ended, &err), 0);
  message_free(ended);
  info = sweep_page(f, id, 0, 0);
  assert_non_null(strstr(info->message, "'0123456789abcdef'"));
  message_free(info);
  info = sweep_change(f, RPC_STOP_SWEEP, &stop);
  assert_int_equal(info->log_records, 3 + 1); /* not even the result of the one that was cancelled */
  message_free(info);
  extend.budget = &budget;
  budget.has_trials = true;
  budget.trials = 501;
  info = sweep_change(f, RPC_EXTEND_SWEEP, &extend);
  assert_string_equal(info->message, ""); /* it goes on with what is there */
  message_free(info);
  free(run);
  free(id);
}

/* Since when the sweep's seconds count then. */
static int64_t extend_seconds(struct service_fixture *f, char *id, double seconds) {
  Weir__ExtendSweepRequest extend = WEIR__EXTEND_SWEEP_REQUEST__INIT;
  Weir__SweepBudget budget = WEIR__SWEEP_BUDGET__INIT;
  Weir__SweepInfo *info;
  int64_t from_unix_ms = 0;
  budget.has_seconds = true;
  budget.seconds = seconds;
  extend.sweep = id;
  extend.budget = &budget;
  extend.counts_used = true;
  message_free(sweep_change(f, RPC_EXTEND_SWEEP, &extend));
  info = sweep_page(f, id, UINT32_MAX, 0);
  for (size_t i = 0; i < info->n_records; i++)
    if (info->records[i]->extension)
      from_unix_ms = info->records[i]->extension->from_unix_ms;
  message_free(info);
  return from_unix_ms;
}

static bool is_over(struct service_fixture *f, const char *id) {
  Weir__SweepInfo *info = sweep_page(f, id, UINT32_MAX, UINT64_MAX);
  bool is_over = *info->end != '\0';
  message_free(info);
  return is_over;
}

static void seconds_that_a_sweep_has_used_count_where_it_is_told_so(void **state) {
  static const char *const long_time = "budget={trials: 500, seconds: 3600}",
                           *const short_time = "budget={trials: 500, seconds: 0.05}";
  struct service_fixture *f = *state;
  Weir__SweepInfo *info;
  int64_t ended_unix_ms, from_unix_ms;
  char *id;
  sweeps_prepare(f);
  id = sweep_search(f, sweep_tries_text, &long_time, 1);
  info = sweep_page(f, id, UINT32_MAX, UINT64_MAX);
  assert_int_equal(extend_seconds(f, id, 7200), info->submitted_unix_ms);
  assert_int_equal(extend_seconds(f, id, 9000), info->submitted_unix_ms);
  message_free(info);
  free(id);
  id = sweep_search(f, sweep_tries_text, &short_time, 1);
  AWAIT(is_over(f, id));
  ended_unix_ms = clock_unix_ms();
  from_unix_ms = extend_seconds(f, id, 3600);
  assert_in_range(from_unix_ms, ended_unix_ms - 50, clock_unix_ms() - 50); /* not the time since its end */
  free(id);
}

static void a_trial_has_a_run_for_each_repeat_and_lets_all_go_when_one_fails(void **state) {
  static const char *const settings[] = {"repeats=3", "concurrency=1"};
  struct service_fixture *f = *state;
  struct err err = ERR_NONE;
  Weir__RunInfo *info;
  char *runs[3], *next, *id;
  sweeps_prepare(f);
  id = sweep_search(f, sweep_tries_text, settings, 2);
  for (int r = 0; r < 3; r++)
    runs[r] = r ? mem_printf("%s-0000-%d", id, r) : mem_printf("%s-0000", id);
  next = mem_printf("%s-0001-2", id);
  for (int r = 0; r < 3; r++)
    AWAIT(run_state(f, runs[r]) == WEIR__RUN_STATE__QUEUED);
  seat_restart(f, true);
  for (int r = 0; r < 3; r++)
    AWAIT(run_state(f, runs[r]) == WEIR__RUN_STATE__QUEUED);
  assert_int_equal(ask_run(f, RPC_CANCEL, runs[0], &info, &err), 0);
  assert_int_equal(info->trial, 0);
  message_free(info);
  for (int r = 0; r < 3; r++)
    AWAIT(run_state(f, runs[r]) == WEIR__RUN_STATE__CANCELLED);
  AWAIT(run_state(f, next) == WEIR__RUN_STATE__QUEUED);
  for (int r = 0; r < 3; r++)
    free(runs[r]);
  free(next);
  free(id);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, service_setup, service_teardown)

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      TEST(trials_are_runs_once_the_log_is_stored_and_a_successor_has_them),
      TEST(a_sweep_whose_client_was_refused_leaves_nothing),
      TEST(a_sweep_that_learns_nothing_of_another_leaves_nothing),
      TEST(a_long_sweep_is_told_in_pages),
      TEST(a_watcher_is_told_only_the_trials_that_have_changed),
      TEST(the_store_keeps_the_kind_of_what_computes_a_sweep),
      TEST(a_coordinator_whose_libm_computes_otherwise_suggests_nothing),
      TEST(seconds_that_a_sweep_has_used_count_where_it_is_told_so),
      TEST(a_trial_has_a_run_for_each_repeat_and_lets_all_go_when_one_fails),
      TEST(garbage_is_refused_and_leaves_no_sweep),
  };
  log_set_level(LOG_ERROR + 1);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
