/* Devices in quarantine: what their workers are given, what is stored of it, and how it ends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/log.h"
#include "common/base/message.h"
#include "server/coordinator/messages/info.h"
#include "tests/support/coordinator/core_reissue.h"

enum { S1 = 1, S2, W1, W2, W3, W4, AGAIN, TWIN };
static const char RUN[] = "mlp-aaaaaa", OTHER[] = "mlp-bbbbbb";

static void start(struct core_fixture *f) {
  for (uint64_t key = S1; key <= S2; key++)
    server_joins(f, key);
  worker_joins_on(f, W1, "a", "cpu");
  worker_joins_on(f, W2, "b", "cpu");
  user_submits(f, RUN, 2, 2);
  for (uint64_t key = W1; key <= W2; key++)
    worker_loads(f, key, RUN);
  for (uint64_t key = S1; key <= S2; key++)
    server_loads(f, key, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
}

/* W1 of host a is found to have computed wrongly. */
static void convict(struct core_fixture *f) {
  server_judges(
      f, &(struct finding){.block = 1, .changed = {{W1, 0, 1}}, .n_changed = 1, .by = UINT64_C(1) << W2});
  assert_string_equal(worker_row(f, W1).state, "quarantined");
}

/* The run has rolled back, and its servers have loaded it. */
static void begin_again(struct core_fixture *f, const char *run) {
  assert_state(f, run, WEIR__RUN_STATE__LOADING);
  for (uint64_t key = S1; key <= S2; key++)
    server_loads(f, key, run);
  assert_state(f, run, WEIR__RUN_STATE__RUNNING);
}

static void readmit(struct core_fixture *f, const char *name) {
  core_step(
      f, &(struct coordinator_event){.kind = EVENT_WORKER_READMITTED, .readmitted = {name, &viewer_of_all}});
}

/* The newest record of members that the core wants saved; message_free. */
static Weir__Members *members_of(struct core_fixture *f) {
  Weir__Members *members = NULL;
  for (int i = 0; i < f->actions.count; i++)
    if (f->actions.items[i].kind == ACTION_MEMBERS)
      members = message_copy(f->actions.items[i].members);
  assert_non_null(members);
  return members;
}

static void succeed(struct core_fixture *f, const Weir__Members *members) {
  struct coordinator_options options = {
      .term = TERM, .missing_after_ms = MISSING_MS, .server_grace_ms = GRACE_MS};
  coordinator_free(f->coordinator);
  f->coordinator = coordinator_new(&options);
  for (int i = 0; i < MEMBERS; i++)
    f->told[i].is_closed = true;
  core_step(f, &(struct coordinator_event){.kind = EVENT_MEMBERS_RESTORED, .members = members});
}

static void all_workers_of_the_device_lose_their_work_at_once(void **state) {
  struct core_fixture *f = *state;
  start(f);
  worker_joins_on(f, TWIN, "a", "cpu");
  worker_joins_on(f, W3, "a", "cuda:0");
  user_submits(f, OTHER, 2, 0);
  worker_loads(f, TWIN, OTHER);
  worker_loads(f, W3, OTHER);
  server_loads(f, S1, OTHER);
  server_loads(f, S2, OTHER);
  assert_state(f, OTHER, WEIR__RUN_STATE__RUNNING);
  convict(f);
  assert_string_equal(worker_row(f, TWIN).state, "quarantined");
  assert_string_equal(f->told[TWIN].unload, OTHER);
  f->incarnation = 1;
  begin_again(f, RUN);
  begin_again(f, OTHER);
  assert_int_equal(f->told[W3].end - f->told[W3].begin, MICROBATCHES);
  assert_string_equal(worker_row(f, W3).state, "ready");
  assert_int_equal(f->told[W2].end - f->told[W2].begin, MICROBATCHES);
}

static void those_that_join_later_are_given_none(void **state) {
  struct core_fixture *f = *state;
  start(f);
  convict(f);
  worker_joins_on(f, TWIN, "a", "cpu");
  assert_string_equal(worker_row(f, TWIN).state, "quarantined");
  assert_string_equal(f->told[TWIN].load, "");
  worker_joins_again(f, W1, AGAIN, RUN); /* host "host": another device */
  assert_string_not_equal(worker_row(f, AGAIN).state, "quarantined");
  member_leaves(f, TWIN);
  worker_joins_on(f, TWIN, "a", "cpu");
  assert_string_equal(worker_row(f, TWIN).state, "quarantined");
}

static void one_that_comes_back_with_its_run_has_to_let_go_of_it(void **state) {
  struct core_fixture *f = *state;
  Weir__Hello hello = WEIR__HELLO__INIT;
  Weir__HostedRun hosted = WEIR__HOSTED_RUN__INIT, *list = &hosted;
  start(f);
  member_leaves(f, W1);
  convict(f);
  hosted.run = (char *)RUN;
  hello.role = WEIR__ROLE__WORKER;
  hello.host = hello.shm_host = "a";
  hello.device = "cpu";
  hello.id = f->told[W1].id;
  hello.term = TERM;
  hello.runs = &list;
  hello.n_runs = 1;
  says_hello(f, AGAIN, &hello);
  assert_string_equal(worker_row(f, AGAIN).state, "quarantined");
  assert_string_equal(f->told[AGAIN].unload, RUN);
  assert_string_equal(f->told[AGAIN].load, "");
  member_drains(f, AGAIN);
  assert_string_equal(worker_row(f, AGAIN).state, "draining");
}

static void a_run_that_waits_for_workers_says_who_is_in_quarantine(void **state) {
  struct core_fixture *f = *state;
  start(f);
  convict(f);
  member_leaves(f, W2);
  user_submits(f, OTHER, 1, 0);
  assert_non_null(strstr(info_of_run(f, RUN).message, "worker-1 (a, cpu) is in quarantine"));
  assert_non_null(strstr(info_of_run(f, OTHER).message, "waiting for workers: 0 of 1"));
  assert_non_null(strstr(info_of_run(f, OTHER).message, "worker-1 (a, cpu) is in quarantine"));
}

static void who_is_readmitted_computes_again(void **state) {
  static const char *const names[] = {"worker-1", "a/cpu"};
  struct core_fixture *f = *state;
  start(f);
  for (int i = 0; i < 2; i++) {
    convict(f);
    readmit(f, "worker-9");
    readmit(f, "a/cuda");
    readmit(f, "a");
    readmit(f, "");
    assert_string_equal(worker_row(f, W1).state, "quarantined");
    readmit(f, names[i]);
    assert_string_equal(worker_row(f, W1).state, "loading");
    assert_string_equal(worker_row(f, W1).message, "");
    assert_string_equal(f->told[W1].load, RUN);
    f->incarnation++;
    worker_loads(f, W1, RUN);
    begin_again(f, RUN);
    assert_string_equal(info_of_run(f, RUN).message, "");
  }
}

static void a_device_is_listed_and_readmitted_when_no_worker_is_there(void **state) {
  struct core_fixture *f = *state;
  struct device_name device;
  Weir__ListWorkersReply reply;
  struct arena arena;
  struct err err;
  start(f);
  convict(f);
  member_leaves(f, W1);
  arena_init(&arena);
  coordinator_list_workers(f->coordinator, &viewer_of_all, f->now_ms, &arena, &reply);
  assert_int_equal(reply.n_workers, 2);
  assert_string_equal(reply.workers[1]->id, "worker-1");
  assert_string_equal(reply.workers[1]->host, "a");
  assert_string_equal(reply.workers[1]->device, "cpu");
  assert_string_equal(reply.workers[1]->state, "quarantined");
  assert_non_null(strstr(reply.workers[1]->message, "not connected; in quarantine: run mlp-aaaaaa, step 5"));
  assert_int_equal(coordinator_find_quarantine(f->coordinator, &viewer_of_all, "worker-2", &device, &err),
                   ERR_NOT_FOUND);
  assert_non_null(strstr(err.text, "'worker-2'"));
  assert_int_equal(coordinator_find_quarantine(f->coordinator, &viewer_of_all, "worker-1", &device, &err), 0);
  assert_string_equal(device.host, "a");
  coordinator_list_device(f->coordinator, &viewer_of_all, &device, &arena, &reply);
  assert_int_equal(reply.n_workers, 1);
  assert_string_equal(reply.workers[0]->device, "cpu");
  readmit(f, "worker-1");
  coordinator_list_workers(f->coordinator, &viewer_of_all, f->now_ms, &arena, &reply);
  assert_int_equal(reply.n_workers, 1);
  arena_fini(&arena);
}

static void what_it_has_pushed_since_the_newest_checkpoint_is_computed_anew(void **state) {
  struct core_fixture *f = *state;
  weir__checkpoint_spec__init(&f->every);
  f->every.has_every_steps = true;
  f->every.every_steps = 4;
  f->checkpoint = &f->every;
  start(f);
  reports_steps(f, S1, RUN, 0, 5);
  for (uint64_t key = S1; key <= S2; key++)
    member_writes(f, key, RUN);
  convict(f);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING); /* that checkpoint is about to be the newest */
  store_commits(f, RUN, NULL);
  assert_non_null(
      strstr(info_of_run(f, RUN).message, "rolled back to step 4: worker-1 (a, cpu) is in quarantine"));
  assert_int_equal(info_of_run(f, RUN).incarnation, 1);
  assert_int_equal(f->told[S1].load_step, 4);
  f->incarnation = 1;
  begin_again(f, RUN);
  assert_int_equal(f->told[W2].end - f->told[W2].begin, MICROBATCHES);
}

static void who_only_may_be_wrong_has_pushed_nothing_in_vain(void **state) {
  struct core_fixture *f = *state;
  start(f);
  server_judges(
      f, &(struct finding){.block = 1, .changed = {{W1, 0, 1}}, .n_changed = 1, .by = UINT64_C(1) << W1});
  assert_string_equal(worker_row(f, W1).state, "ready");
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
  assert_int_equal(info_of_run(f, RUN).incarnation, 0);
}

static void a_successor_knows_of_it(void **state) {
  struct core_fixture *f = *state;
  Weir__Members *members;
  start(f);
  f->is_store_away = true; /* what is to be stored can be seen */
  convict(f);
  members = members_of(f);
  assert_int_equal(members->n_quarantines, 1);
  assert_string_equal(members->quarantines[0]->host, "a");
  assert_string_equal(members->quarantines[0]->device, "cpu");
  assert_string_equal(members->quarantines[0]->worker, "worker-1");
  assert_string_equal(members->quarantines[0]->run, RUN);
  succeed(f, members);
  message_free(members);
  worker_joins_on(f, W3, "a", "cpu");
  assert_string_equal(f->told[W3].id, "worker-3"); /* no id is used twice */
  assert_string_equal(worker_row(f, W3).state, "quarantined");
  readmit(f, "worker-1"); /* as it was named then */
  assert_string_equal(worker_row(f, W3).state, "idle");
  members = members_of(f);
  assert_int_equal(members->n_quarantines, 0);
  message_free(members);
}

static void a_store_that_lost_it_is_told_again(void **state) {
  struct core_fixture *f = *state;
  Weir__Members *members;
  start(f);
  convict(f);
  core_step(f, &(struct coordinator_event){.kind = EVENT_STORE_EMPTIED});
  members = members_of(f);
  assert_int_equal(members->n_quarantines, 1);
  message_free(members);
}

static void a_damaged_record_harms_nothing(void **state) {
  enum { MANY = 1200 };
  struct core_fixture *f = *state;
  Weir__Members members = WEIR__MEMBERS__INIT;
  static Weir__Quarantine quarantines[MANY], *list[MANY];
  static char hosts[MANY][16];
  Weir__ListWorkersReply reply;
  struct arena arena;
  for (int i = 0; i < MANY; i++) {
    list[i] = &quarantines[i];
    weir__quarantine__init(list[i]);
    snprintf(hosts[i], sizeof hosts[i], "host\n%d\xff", i / 2); /* each twice */
    list[i]->host = hosts[i];
  }
  members.quarantines = list;
  members.n_quarantines = MANY;
  members.workers_seen = UINT32_MAX;
  succeed(f, &members);
  worker_joins_on(f, W1, "a", "cpu");
  assert_string_equal(worker_row(f, W1).state, "idle");
  assert_string_equal(f->told[W1].id, "worker-1");
  arena_init(&arena);
  coordinator_list_workers(f->coordinator, &viewer_of_all, f->now_ms, &arena, &reply);
  assert_int_equal(reply.n_workers, 1 + MANY / 2);
  assert_string_equal(reply.workers[1]->host, "host?0?");
  arena_fini(&arena);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, core_setup, core_teardown)
  const struct CMUnitTest tests[] = {
      TEST(all_workers_of_the_device_lose_their_work_at_once),
      TEST(those_that_join_later_are_given_none),
      TEST(one_that_comes_back_with_its_run_has_to_let_go_of_it),
      TEST(a_run_that_waits_for_workers_says_who_is_in_quarantine),
      TEST(what_it_has_pushed_since_the_newest_checkpoint_is_computed_anew),
      TEST(who_only_may_be_wrong_has_pushed_nothing_in_vain),
      TEST(who_is_readmitted_computes_again),
      TEST(a_device_is_listed_and_readmitted_when_no_worker_is_there),
      TEST(a_successor_knows_of_it),
      TEST(a_store_that_lost_it_is_told_again),
      TEST(a_damaged_record_harms_nothing),
  };
#undef TEST
  log_set_level(LOG_ERROR);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
