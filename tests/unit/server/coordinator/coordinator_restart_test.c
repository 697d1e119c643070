/* Coordinators that come and go on one store: what is kept, who leads, what is refused. */

#include <stdlib.h>
#include <string.h>

#include "common/agree/float_setting.h"
#include "common/base/log.h"
#include "common/base/message.h"
#include "server/coordinator/shell/reading/stored_runs.h"
#include "storage/checkpoint/checkpoint.h"
#include "tests/support/coordinator/service_members.h"
#include "tests/support/storage/checkpoint_fixture.h"
#include "tests/support/storage/flaky_store.h"

/* The store has this state of the run. */
static bool is_kept(struct service_fixture *f, const char *run, Weir__RunState run_state) {
  struct err err = ERR_NONE;
  char *name = checkpoint_run_name(run, "run");
  Weir__RunRecord *record = NULL;
  bool is_so =
      checkpoint_read_record(f->store, name, &weir__run_record__descriptor, (void **)&record, &err) == 0 &&
      record->state == run_state;
  message_free(record);
  free(name);
  return is_so;
}

/* The store has as many events of the run. */
static bool are_events_kept(struct service_fixture *f, const char *run, uint64_t events) {
  struct stored_runs runs;
  struct err err = ERR_NONE;
  bool is_so = false;
  assert_int_equal(stored_runs_read(f->store, NULL, &runs, &err), 0);
  for (int i = 0; i < runs.count; i++)
    is_so |= strcmp(runs.items[i].record->run, run) == 0 && runs.items[i].n_events == events;
  stored_runs_fini(&runs);
  return is_so;
}

/* How often the coordinator that leads has renewed its lease. */
static uint64_t count_renewals(struct service_fixture *f) {
  struct err err = ERR_NONE;
  Weir__Lease *lease;
  uint64_t beat;
  assert_int_equal(
      checkpoint_read_record(f->store, "coordinator/lease", &weir__lease__descriptor, (void **)&lease, &err),
      0);
  beat = lease->beat;
  message_free(lease);
  return beat;
}

static void runs_are_as_they_were(struct service_fixture *f, bool is_killed) {
  struct rpc_reader *server = member_join(f, WEIR__ROLE__SERVER),
                    *worker = member_join(f, WEIR__ROLE__WORKER);
  char *done = submit_run(f), *queued, *cancelled, got[TINY_PARAMS * sizeof(float)];
  Weir__RunInfo *info;
  Weir__RunEvent *last;
  struct err err;
  uint64_t events, number;
  train_run(f, done, server, worker);
  write_blocks(f, server, done, STEPS);
  events = watch_all(f, done, 0, &last);
  number = last->number;
  message_free(last);
  members_leave(f, server, worker);
  queued = submit_run(f);
  cancelled = submit_run(f);
  assert_int_equal(ask_run(f, RPC_CANCEL, cancelled, &info, &err), 0);
  message_free(info);
  if (is_killed) { /* what is written beside the work comes, and is there then */
    AWAIT(are_events_kept(f, done, events));
    AWAIT(is_kept(f, queued, WEIR__RUN_STATE__QUEUED) && is_kept(f, cancelled, WEIR__RUN_STATE__CANCELLED));
  }
  seat_restart(f, is_killed);
  assert_int_equal(run_state(f, done), WEIR__RUN_STATE__DONE);
  assert_int_equal(run_state(f, queued), WEIR__RUN_STATE__QUEUED);
  assert_int_equal(run_state(f, cancelled), WEIR__RUN_STATE__CANCELLED);
  assert_int_equal(watch_all(f, done, 0, &last), events);
  assert_int_equal(last->event_case, WEIR__RUN_EVENT__EVENT_DONE);
  assert_int_equal(last->number, number);
  message_free(last);
  assert_int_equal(download_run(f, RPC_GET_WEIGHTS, done, (struct iovec){got, sizeof got}, &err), sizeof got);
  server = member_join(f, WEIR__ROLE__SERVER);
  worker = member_join(f, WEIR__ROLE__WORKER);
  train_run(f, queued, server, worker); /* and it goes on */
  write_blocks(f, server, queued, STEPS);
  AWAIT(run_state(f, queued) == WEIR__RUN_STATE__DONE);
  watch_all(f, queued, 0, &last);
  assert_int_equal(last->number >> 32, 2);
  message_free(last);
  rpc_reader_close(server);
  rpc_reader_close(worker);
  free(done);
  free(queued);
  free(cancelled);
}

static void a_stopped_coordinators_successor_finds_its_runs_as_they_were(void **state) {
  runs_are_as_they_were(*state, false);
}

static void a_killed_coordinators_successor_finds_its_runs_as_they_were(void **state) {
  runs_are_as_they_were(*state, true);
}

static void a_server_that_comes_back_keeps_its_part_of_a_run(void **state) {
  struct service_fixture *f = *state;
  struct rpc_reader *server = member_join(f, WEIR__ROLE__SERVER),
                    *worker = member_join(f, WEIR__ROLE__WORKER);
  char *id = train_with_checkpoints(f, server, worker, 4, 3);
  Weir__Order *order;
  Weir__RunInfo *info;
  struct err err;
  rpc_reader_close(server);
  rpc_reader_close(worker);
  seat_restart(f, true);
  assert_int_equal(run_state(f, id), WEIR__RUN_STATE__RUNNING);
  expect_checkpoints(f, id, 2, 2);
  server = member_join_again(f, WEIR__ROLE__SERVER, "server-1", id, 5);
  order = expect_order(server, WEIR__ORDER__BODY_KEEP);
  assert_int_equal(order->term, 2);
  assert_int_equal(order->keep->incarnation, 0);
  message_free(order);
  tell_step(f, server, id, 4);
  tell_step(f, server, id, 5);
  AWAIT(ask_run(f, RPC_GET_RUN, id, &info, &err) == 0 && (info->step == 6 || (message_free(info), false)));
  message_free(info);
  rpc_reader_close(server);
  free(id);
}

static void a_run_whose_servers_are_gone_goes_on_from_its_checkpoint(void **state) {
  struct service_fixture *f = *state;
  struct rpc_reader *server = member_join(f, WEIR__ROLE__SERVER),
                    *worker = member_join(f, WEIR__ROLE__WORKER);
  char *id = train_with_checkpoints(f, server, worker, 4, 3), *name = checkpoint_name(id, 4), *record;
  Weir__Order *order;
  struct err err = ERR_NONE;
  size_t size;
  rpc_reader_close(server);
  rpc_reader_close(worker);
  f->server_grace_ms = 200;
  seat_restart(f, true);
  server = member_join(f, WEIR__ROLE__SERVER);
  order = expect_order(server, WEIR__ORDER__BODY_LOAD);
  assert_int_equal(order->load->step, 4);
  assert_int_equal(order->load->incarnation, 1);
  assert_string_equal(order->load->manifest, name);
  message_free(order);
  free(name);
  name = checkpoint_run_name(id, "incarnation"); /* was written before the server was told */
  assert_int_equal(store_get_record(f->store, name, (void **)&record, &size, &err), 0);
  assert_int_equal(size, 1);
  assert_int_equal(record[0], '1');
  free(record);
  free(name);
  rpc_reader_close(server);
  free(id);
}

static void only_one_coordinator_of_a_store_leads(void **state) {
  struct service_fixture *f = *state;
  char *id = submit_run(f);
  struct seat second;
  Weir__RunInfo *info;
  struct err err;
  bool is_serving = true;
  seat_start(f, &second, "second:1");
  f->channel = second.channel;
  assert_int_equal(ask_run(f, RPC_GET_RUN, id, &info, &err), ERR_UNAVAILABLE);
  assert_non_null(strstr(err.text, "this coordinator is a standby of first:1"));
  assert_null(try_to_submit(f, &err));
  assert_int_equal(err.code, ERR_UNAVAILABLE);
  err = ERR_NONE;
  assert_int_equal(rpc_health_probe(second.channel, patience_ms(), &is_serving, &err), 0);
  assert_false(is_serving);
  assert_int_equal(rpc_health_probe(f->seat.channel, patience_ms(), &is_serving, &err), 0);
  assert_true(is_serving);

  flaky_set_away(f->seat.store, true); /* the first is cut off from the store, and goes on */
  AWAIT(ask_run(f, RPC_GET_RUN, id, &info, &err) == 0);
  message_free(info);
  assert_int_equal(rpc_health_probe(second.channel, patience_ms(), &is_serving, &err), 0);
  assert_true(is_serving);
  f->channel = f->seat.channel;
  assert_int_equal(ask_run(f, RPC_CANCEL, id, &info, &err), 0);
  message_free(info);
  flaky_set_away(f->seat.store, false);
  AWAIT(__atomic_load_n(&f->seat.is_deposed, __ATOMIC_ACQUIRE));
  assert_int_equal(ask_run(f, RPC_GET_RUN, id, &info, &err), ERR_UNAVAILABLE);
  assert_non_null(strstr(err.text, "another coordinator leads"));
  seat_restart(f, false); /* and what it decided meanwhile is not in the store */
  f->channel = second.channel;
  assert_int_equal(run_state(f, id), WEIR__RUN_STATE__QUEUED);
  seat_stop(&second);
  f->channel = f->seat.channel;
  AWAIT(run_state(f, id) == WEIR__RUN_STATE__QUEUED);
  free(id);
}

static void a_member_that_obeys_a_higher_term_deposes_the_coordinator(void **state) {
  struct service_fixture *f = *state;
  struct rpc_reader *member = rpc_reader_open(f->channel, RPC_JOIN, patience_ms());
  Weir__Hello hello = WEIR__HELLO__INIT;
  hello.role = WEIR__ROLE__WORKER;
  hello.term = 9;
  member_tell(member, WEIR__MEMBER_MESSAGE__BODY_HELLO, &hello);
  AWAIT(__atomic_load_n(&f->seat.is_deposed, __ATOMIC_ACQUIRE));
  rpc_reader_close(member);
}

/* Anybody can say so: the store knows better. */
static void a_member_that_claims_a_higher_term_disturbs_no_run(void **state) {
  struct service_fixture *f = *state;
  Weir__Hello hello = WEIR__HELLO__INIT;
  struct rpc_reader *member;
  char *id = submit_run(f);
  Weir__Order *order = NULL;
  struct err err = ERR_NONE;
  uint64_t renewals;
  hello.role = WEIR__ROLE__WORKER;
  hello.term = 9;
  member = rpc_reader_open(f->channel, RPC_JOIN, patience_ms());
  member_tell(member, WEIR__MEMBER_MESSAGE__BODY_HELLO, &hello);
  assert_int_equal(rpc_reader_next(member, (void **)&order, &err), ERR_STALE);
  rpc_reader_close(member);
  renewals = count_renewals(f);
  AWAIT(count_renewals(f) >= renewals + 2); /* it asks the store when it renews its lease */
  assert_int_equal(run_state(f, id), WEIR__RUN_STATE__QUEUED);
  assert_false(__atomic_load_n(&f->seat.is_deposed, __ATOMIC_ACQUIRE));
  free(id);
}

static void a_coordinator_whose_term_is_over_writes_nothing(void **state) {
  struct service_fixture *f = *state;
  struct store_names names = {0};
  struct err err = ERR_NONE;
  assert_int_equal(
      store_put_record(f->store, &(struct store_record){"coordinator/epoch", "9", 1, NULL}, &err), 0);
  assert_null(try_to_submit(f, &err)); /* before or after it has noticed */
  assert_int_equal(err.code, ERR_UNAVAILABLE);
  err = ERR_NONE;
  assert_int_equal(store_list_records(f->store, "runs/", &names, &err), 0);
  assert_int_equal(names.count, 0);
  store_names_fini(&names);
  AWAIT(__atomic_load_n(&f->seat.is_deposed, __ATOMIC_ACQUIRE));
}

static void a_submission_that_the_store_cannot_keep_is_refused_and_forgotten(void **state) {
  struct service_fixture *f = *state;
  Weir__ListRunsRequest request = WEIR__LIST_RUNS_REQUEST__INIT;
  Weir__ListRunsReply *reply = NULL;
  struct err err;
  flaky_set_away(f->seat.store, true);
  assert_null(try_to_submit(f, &err));
  assert_int_equal(err.code, ERR_UNAVAILABLE);
  assert_non_null(strstr(err.text, "nobody answers"));
  flaky_set_away(f->seat.store, false);
  err = ERR_NONE;
  assert_int_equal(rpc_unary(f->channel, &(struct rpc_question){RPC_LIST_RUNS, &request, patience_ms()},
                             false, (void **)&reply, &err),
                   0);
  assert_int_equal(reply->n_runs, 0);
  message_free(reply);
  free(submit_run(f));
}

/* Asked for while the store is away; a killed coordinator's successor knows what clients were told. */
static void stop_while_the_store_is_away(struct service_fixture *f, enum rpc_method_id method,
                                         Weir__RunState stopped) {
  char *id = submit_run(f);
  int refused = flaky_count_refused(f->seat.store);
  Weir__RunInfo *info;
  struct err err;
  flaky_set_away(f->seat.store, true);
  assert_int_equal(ask_run(f, method, id, &info, &err), 0);
  assert_int_equal(info->state, WEIR__RUN_STATE__QUEUED); /* which a successor would find */
  message_free(info);
  AWAIT(flaky_count_refused(f->seat.store) > refused); /* it was tried in vain */
  flaky_set_away(f->seat.store, false);
  AWAIT(run_state(f, id) == stopped);
  assert_true(is_kept(f, id, stopped));
  seat_restart(f, true);
  assert_int_equal(run_state(f, id), stopped);
  free(id);
}

static void a_state_that_the_store_missed_is_written_when_it_is_back(void **state) {
  stop_while_the_store_is_away(*state, RPC_CANCEL, WEIR__RUN_STATE__CANCELLED);
  stop_while_the_store_is_away(*state, RPC_PAUSE, WEIR__RUN_STATE__PAUSED);
}

/* Sets the priority. Returns the error. */
static int set_priority(struct service_fixture *f, const char *run, char *setting, struct err *err) {
  Weir__SetRequest request = WEIR__SET_REQUEST__INIT;
  Weir__RunInfo *info = NULL;
  *err = ERR_NONE;
  request.run = (char *)run;
  request.settings = &setting;
  request.n_settings = 1;
  rpc_unary(f->channel, &(struct rpc_question){RPC_SET_RUN, &request, patience_ms()}, false, (void **)&info,
            err);
  message_free(info);
  return err->code;
}

/* As the store has it. */
static int64_t kept_priority(struct service_fixture *f, const char *run) {
  struct err err = ERR_NONE;
  char *name = checkpoint_run_name(run, "run");
  Weir__RunRecord *record = NULL;
  int64_t priority;
  assert_int_equal(
      checkpoint_read_record(f->store, name, &weir__run_record__descriptor, (void **)&record, &err), 0);
  priority = record->spec->priority;
  message_free(record);
  free(name);
  return priority;
}

static void what_is_set_is_told_once_the_store_has_it(void **state) {
  struct service_fixture *f = *state;
  char *id = submit_run(f), *record = checkpoint_run_name(id, "run");
  struct err err;
  assert_int_equal(set_priority(f, id, "priority=5", &err), 0);
  assert_int_equal(kept_priority(f, id), 5);
  flaky_refuse_record(f->seat.store, record);
  assert_int_equal(set_priority(f, id, "priority=6", &err), ERR_UNAVAILABLE);
  assert_non_null(strstr(err.text, "the store cannot keep that now: "));
  assert_non_null(strstr(err.text, ": try again"));
  assert_int_equal(kept_priority(f, id), 5);
  flaky_refuse_record(f->seat.store, NULL);
  assert_int_equal(set_priority(f, id, "priority=7", &err), 0);
  assert_int_equal(kept_priority(f, id), 7);
  seat_restart(f, true);
  assert_int_equal(kept_priority(f, id), 7);
  free(record);
  free(id);
}

static void a_wish_to_stop_is_told_once_the_store_has_it(void **state) {
  static const enum rpc_method_id methods[] = {RPC_PAUSE, RPC_STOP};
  struct service_fixture *f = *state;
  struct rpc_reader *server = member_join(f, WEIR__ROLE__SERVER),
                    *worker = member_join(f, WEIR__ROLE__WORKER);
  char *id = train_with_checkpoints(f, server, worker, 4, 3), *record = checkpoint_run_name(id, "run");
  for (int i = 0; i < 2; i++) {
    Weir__RunRecord *kept = NULL;
    Weir__RunInfo *info;
    struct err err = ERR_NONE;
    flaky_refuse_record(f->seat.store, record);
    assert_int_equal(ask_run(f, methods[i], id, &info, &err), ERR_UNAVAILABLE);
    assert_non_null(strstr(err.text, "the store cannot keep that now: "));
    flaky_refuse_record(f->seat.store, NULL);
    AWAIT(ask_run(f, methods[i], id, &info, &err) == 0);
    assert_int_equal(info->state, WEIR__RUN_STATE__RUNNING);
    message_free(info);
    err = ERR_NONE;
    assert_int_equal(
        checkpoint_read_record(f->store, record, &weir__run_record__descriptor, (void **)&kept, &err), 0);
    assert_int_equal(kept->ending, i ? WEIR__ENDING__STOPPING : WEIR__ENDING__PAUSING);
    message_free(kept);
  }
  rpc_reader_close(server);
  rpc_reader_close(worker);
  free(record);
  free(id);
}

static void a_runs_end_is_told_once_a_successor_would_know_it(void **state) {
  struct service_fixture *f = *state;
  struct rpc_reader *server = member_join(f, WEIR__ROLE__SERVER),
                    *worker = member_join(f, WEIR__ROLE__WORKER);
  char *id = submit_run(f), *record = checkpoint_run_name(id, "run"), *other;
  Weir__RunEvent *last;
  train_run(f, id, server, worker);
  flaky_refuse_record(f->seat.store, record);
  write_blocks(f, server, id, STEPS);
  message_free(expect_order(server, WEIR__ORDER__BODY_UNLOAD)); /* it is over */
  message_free(expect_order(worker, WEIR__ORDER__BODY_UNLOAD));
  assert_int_equal(run_state(f, id), WEIR__RUN_STATE__FINISHING);
  other = submit_run(f); /* which does not wait for the store to take that record */
  train_run(f, other, server, worker);
  write_blocks(f, server, other, STEPS);
  AWAIT(run_state(f, other) == WEIR__RUN_STATE__DONE);
  assert_int_equal(run_state(f, id), WEIR__RUN_STATE__FINISHING);
  flaky_refuse_record(f->seat.store, NULL);
  AWAIT(run_state(f, id) == WEIR__RUN_STATE__DONE);
  assert_true(is_kept(f, id, WEIR__RUN_STATE__DONE));
  seat_restart(f, true);
  assert_int_equal(run_state(f, id), WEIR__RUN_STATE__DONE);
  watch_all(f, id, 0, &last);
  assert_int_equal(last->event_case, WEIR__RUN_EVENT__EVENT_DONE);
  message_free(last);
  rpc_reader_close(server);
  rpc_reader_close(worker);
  free(record);
  free(other);
  free(id);
}

int main(void) {
  float_setting_apply();
#define TEST(name) cmocka_unit_test_setup_teardown(name, service_setup, service_teardown)
  const struct CMUnitTest tests[] = {
      TEST(a_stopped_coordinators_successor_finds_its_runs_as_they_were),
      TEST(a_killed_coordinators_successor_finds_its_runs_as_they_were),
      TEST(a_server_that_comes_back_keeps_its_part_of_a_run),
      TEST(a_run_whose_servers_are_gone_goes_on_from_its_checkpoint),
      TEST(only_one_coordinator_of_a_store_leads),
      TEST(a_member_that_obeys_a_higher_term_deposes_the_coordinator),
      TEST(a_member_that_claims_a_higher_term_disturbs_no_run),
      TEST(a_coordinator_whose_term_is_over_writes_nothing),
      TEST(a_submission_that_the_store_cannot_keep_is_refused_and_forgotten),
      TEST(a_state_that_the_store_missed_is_written_when_it_is_back),
      TEST(what_is_set_is_told_once_the_store_has_it),
      TEST(a_wish_to_stop_is_told_once_the_store_has_it),
      TEST(a_runs_end_is_told_once_a_successor_would_know_it),
  };
#undef TEST
  log_set_level(LOG_ERROR + 1);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
