/* Tenants: what one sees of another's runs is nothing, and a worker that is one tenant's computes for that
   one alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/log.h"
#include "common/base/message.h"
#include "server/coordinator/messages/info.h"
#include "server/coordinator/recovery/recovery.h"
#include "server/coordinator/state/tenant.h"
#include "tests/support/coordinator/core_labels.h"
#include "tests/support/coordinator/core_reissue.h"
#include "tests/support/coordinator/core_run.h"
#include "tests/support/coordinator/core_succession.h"

enum { W3 = 5, AGAIN = 20 };
#define VISION_WORKER "spiffe://weir/worker/vision/gpu-7"

static const char VISIONS[] = "mlp-aaaaaa"; /* RUN */
static const char NLPS[] = "mlp-bbbbbb";

static struct viewer vision(void) {
  return viewer_of_tenant("vision");
}

static struct viewer nlp(void) {
  return viewer_of_tenant("nlp");
}

static void submits_for(struct core_fixture *f, const char *run, const char *tenant) {
  f->tenant = tenant;
  user_submits(f, run, 1, 0);
}

/* A worker of that certificate; NULL: of none. */
static void holder_joins(struct core_fixture *f, uint64_t key, const char *holder) {
  f->holder = holder;
  worker_joins(f, key, 1);
  f->holder = NULL;
}

static void operators_of_the_default_tenant_see_all_and_everybody_else_its_own(void **state) {
  static const struct {
    const char *uri, *tenant;
    bool sees_all;
  } rows[] = {
      {"spiffe://weir/client/vision/viewer/ann", "vision", false},
      {"spiffe://weir/client/vision/operator/ann", "vision", false},
      {"spiffe://weir/client/default/viewer/ann", "default", false},
      {"spiffe://weir/client/default/submitter/ann", "default", false},
      {"spiffe://weir/client/default/operator/ann", "default", true},
      {"spiffe://weir/all/all", "default", true},
      {"spiffe://weir/worker/gpu-7", "default", true},
      {"spiffe://weir/worker/vision/gpu-7", "vision", false},
  };
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    struct cert_holder holder;
    struct viewer viewer;
    struct err err = ERR_NONE;
    assert_int_equal(cert_holder_read(rows[i].uri, &holder, &err), 0);
    viewer = viewer_of(&holder);
    assert_string_equal(viewer.tenant, rows[i].tenant);
    assert_int_equal(viewer.sees_all, rows[i].sees_all);
    assert_true(viewer_sees(&viewer, rows[i].tenant));
    assert_int_equal(viewer_sees(&viewer, "nlp"), rows[i].sees_all);
  }
  assert_true(viewer_of(NULL).sees_all); /* without TLS */
}

/* What is found by name, and what it is told where nothing is. */
static const char *found(struct core_fixture *f, struct viewer viewer, const char *name, struct err *err) {
  const char *id = NULL;
  *err = ERR_NONE;
  return coordinator_find_run(f->coordinator, &viewer, name, &id, err) ? NULL : id;
}

static void a_run_of_another_tenant_is_not_there(void **state) {
  struct core_fixture *f = *state;
  struct err err;
  submits_for(f, VISIONS, "vision");
  submits_for(f, NLPS, "nlp");
  assert_string_equal(found(f, vision(), VISIONS, &err), VISIONS);
  assert_null(found(f, nlp(), VISIONS, &err));
  assert_int_equal(err.code, ERR_NOT_FOUND);
  assert_string_equal(err.text, "no run 'mlp-aaaaaa'");
  assert_string_equal(found(f, nlp(), "mlp", &err), NLPS);       /* not ambiguous */
  assert_string_equal(found(f, vision(), "mlp", &err), VISIONS); /* the newest that it sees of that name */
  assert_null(found(f, viewer_of_all, "mlp-", &err));
  assert_string_equal(err.text, "run 'mlp-' is ambiguous: it may be mlp-aaaaaa, mlp-bbbbbb");
  f->tenant = NULL;
  user_submits(f, "mlp-cccccc", 1, 0);
  assert_string_equal(found(f, viewer_of_tenant("default"), "mlp", &err), "mlp-cccccc");
}

static void lists_have_what_their_reader_sees(void **state) {
  struct core_fixture *f = *state;
  struct viewer viewers[] = {vision(), nlp(), viewer_of_all};
  static const size_t runs[] = {1, 0, 1};
  f->tenant = "vision";
  core_run_begin(f, 1);
  for (int i = 0; i < 3; i++) {
    Weir__ListRunsReply listed;
    Weir__ListWorkersReply workers;
    Weir__ListServersReply servers;
    struct arena arena;
    bool is_told = runs[i] > 0;
    arena_init(&arena);
    coordinator_list_runs(f->coordinator, &viewers[i], f->now_ms, &arena, &listed);
    coordinator_list_workers(f->coordinator, &viewers[i], f->now_ms, &arena, &workers);
    coordinator_list_servers(f->coordinator, &viewers[i], f->now_ms, &arena, &servers);
    assert_int_equal(listed.n_runs, runs[i]);
    assert_int_equal(workers.n_workers, 2);
    assert_string_equal(workers.workers[0]->run, is_told ? RUN : "");
    assert_string_equal(workers.workers[0]->state, is_told ? "ready" : "busy");
    assert_int_equal(workers.workers[0]->n_seats, is_told);
    assert_int_equal(servers.n_servers, 2);
    assert_int_equal(servers.servers[0]->runs, is_told);
    assert_int_equal(servers.servers[0]->bytes > 0, is_told);
    assert_int_equal(servers.servers[0]->blocks > 0, is_told);
    arena_fini(&arena);
  }
}

static void what_a_run_waits_for_names_no_run_of_another_tenant(void **state) {
  struct core_fixture *f = *state;
  server_joins(f, S1);
  worker_joins(f, W1, 1);
  submits_for(f, NLPS, "nlp");
  submits_for(f, VISIONS, "vision");
  assert_string_equal(info_of_run(f, VISIONS).message,
                      "waiting for workers: 0 of 1; another tenant's run has workers");
  submits_for(f, "mlp-cccccc", "nlp");
  assert_string_equal(info_of_run(f, "mlp-cccccc").message, "waiting for workers: 0 of 1; mlp-bbbbbb has 1");
}

static void a_worker_of_one_tenant_computes_for_that_one_alone(void **state) {
  struct core_fixture *f = *state;
  server_joins(f, S1);
  submits_for(f, NLPS, "nlp");
  holder_joins(f, W1, VISION_WORKER);
  core_ticks(f);
  assert_string_equal(f->told[W1].load, "");
  assert_string_equal(info_of_run(f, NLPS).message, "waiting for workers: 0 of 1");
  submits_for(f, VISIONS, "vision");
  assert_string_equal(f->told[W1].load, VISIONS);
  holder_joins(f, W2, "spiffe://weir/worker/gpu-8"); /* for all */
  assert_string_equal(f->told[W2].load, NLPS);
}

/* A turn, or a run that comes before, does not take it from its tenant. */
static void a_run_of_higher_priority_does_not_get_another_tenants_worker(void **state) {
  struct core_fixture *f = *state;
  server_joins(f, S1);
  holder_joins(f, W1, VISION_WORKER);
  submits_for(f, VISIONS, "vision");
  worker_loads(f, W1, VISIONS);
  server_loads(f, S1, VISIONS);
  assert_state(f, VISIONS, WEIR__RUN_STATE__RUNNING);
  f->priority = 9;
  submits_for(f, NLPS, "nlp");
  reports_steps(f, S1, VISIONS, 0, 3);
  time_passes(f, 3000);
  assert_string_equal(f->told[W1].unload, "");
  assert_state(f, NLPS, WEIR__RUN_STATE__QUEUED);
}

static void a_worker_that_comes_back_with_another_tenants_run_gives_it_up(void **state) {
  struct core_fixture *f = *state;
  server_joins(f, S1);
  worker_joins(f, W1, 1);
  submits_for(f, NLPS, "nlp");
  worker_loads(f, W1, NLPS);
  server_loads(f, S1, NLPS);
  assert_state(f, NLPS, WEIR__RUN_STATE__RUNNING);
  member_leaves(f, W1);
  f->holder = VISION_WORKER;
  worker_joins_again(f, W1, AGAIN, NLPS);
  assert_string_equal(f->told[AGAIN].unload, NLPS);
  assert_int_equal(f->told[AGAIN].loads, 0);
}

static void labels_of_another_tenants_workers_are_not_told(void **state) {
  struct core_fixture *f = *state;
  server_joins(f, S1);
  f->holder = VISION_WORKER;
  labelled_joins(f, W1, "gpu=h200,site=secret");
  f->holder = NULL;
  labelled_joins(f, W2, "gpu=a100");
  f->tenant = "nlp";
  user_submits_for(f, NLPS, "gpu=h200", 1, 0);
  assert_string_equal(
      info_of_run(f, NLPS).message,
      "waiting for workers: 0 of 1 with gpu=h200: the only worker does not have it; they have "
      "gpu=a100");
}

static void another_tenants_workers_are_not_listed_and_not_drained(void **state) {
  struct core_fixture *f = *state;
  const struct viewer viewers[] = {vision(), nlp()};
  struct err err = ERR_NONE;
  Weir__ListWorkersReply reply;
  struct arena arena;
  holder_joins(f, W1, VISION_WORKER);
  holder_joins(f, W2, NULL);
  for (size_t i = 0; i < 2; i++) {
    arena_init(&arena);
    coordinator_list_workers(f->coordinator, &viewers[i], f->now_ms, &arena, &reply);
    assert_int_equal(reply.n_workers, 2 - i);
    arena_fini(&arena);
  }
  assert_int_equal(
      coordinator_check_drain(f->coordinator, &viewers[0], WEIR__ROLE__WORKER, f->told[W1].id, &err), 0);
  assert_int_equal(
      coordinator_check_drain(f->coordinator, &viewers[0], WEIR__ROLE__WORKER, f->told[W2].id, &err),
      ERR_DENIED);
  assert_string_equal(err.text, "worker-2 is for all tenants: an operator of the tenant 'default' is needed, "
                                "not of 'vision'");
  err = ERR_NONE;
  assert_int_equal(
      coordinator_check_drain(f->coordinator, &viewers[1], WEIR__ROLE__WORKER, f->told[W1].id, &err),
      ERR_NOT_FOUND);
  err = ERR_NONE;
  assert_int_equal(
      coordinator_check_drain(f->coordinator, &viewer_of_all, WEIR__ROLE__WORKER, f->told[W1].id, &err), 0);
}

static Weir__WorkerInfo row_for(struct core_fixture *f, struct viewer viewer, uint64_t key,
                                struct arena *arena) {
  Weir__WorkerInfo row = WEIR__WORKER_INFO__INIT;
  Weir__ListWorkersReply reply;
  coordinator_list_workers(f->coordinator, &viewer, f->now_ms, arena, &reply);
  for (size_t i = 0; i < reply.n_workers; i++)
    if (strcmp(reply.workers[i]->id, f->told[key].id) == 0)
      row = *reply.workers[i];
  return row;
}

static void why_a_worker_refused_is_told_to_that_runs_tenant_alone(void **state) {
  struct core_fixture *f = *state;
  struct arena arena;
  server_joins(f, S1);
  worker_joins(f, W1, 1);
  worker_joins(f, W2, 1);
  submits_for(f, VISIONS, "vision");
  worker_loads(f, W2, VISIONS);
  member_refuses(f, W1, VISIONS, "secret/train.idx is not there", false);
  arena_init(&arena);
  assert_string_equal(row_for(f, vision(), W1, &arena).message, "secret/train.idx is not there");
  assert_string_equal(row_for(f, nlp(), W1, &arena).message, "it refused another tenant's run");
  arena_fini(&arena);
}

static void a_quarantine_does_not_name_another_tenants_run(void **state) {
  struct core_fixture *f = *state;
  struct viewer other = nlp();
  struct device_name device;
  struct err err = ERR_NONE;
  struct arena arena;
  server_joins(f, S1);
  server_joins(f, S2);
  worker_joins_on(f, W1, "a", "cpu");
  worker_joins_on(f, W2, "b", "cpu");
  f->tenant = "vision";
  user_submits(f, RUN, 2, 2);
  for (uint64_t key = W1; key <= W2; key++)
    worker_loads(f, key, RUN);
  for (uint64_t key = S1; key <= S2; key++)
    server_loads(f, key, RUN);
  server_judges(
      f, &(struct finding){.block = 1, .changed = {{W1, 0, 1}}, .n_changed = 1, .by = UINT64_C(1) << W2});
  arena_init(&arena);
  assert_non_null(strstr(row_for(f, vision(), W1, &arena).message, RUN));
  assert_string_equal(row_for(f, nlp(), W1, &arena).message,
                      "in quarantine: another tenant's run has found it out");
  member_leaves(f, W1);
  member_leaves(f, W2);
  submits_for(f, NLPS, "nlp");
  core_ticks(f);
  assert_null(strstr(info_of_run(f, NLPS).message, RUN));
  assert_non_null(strstr(info_of_run(f, NLPS).message, "another tenant's run has found it out"));
  assert_non_null(strstr(info_of_run(f, RUN).message, "run mlp-aaaaaa, step"));
  assert_int_equal(coordinator_find_quarantine(f->coordinator, &other, "worker-1", &device, &err),
                   ERR_DENIED);
  arena_fini(&arena);
}

static void what_troubles_the_store_names_no_run_once_there_are_several_tenants(void **state) {
  struct core_fixture *f = *state;
  struct coordinator_event event = {.kind = EVENT_STORE, .store_message = "runs/mlp-aaaaaa/run: disk full"};
  submits_for(f, VISIONS, "vision");
  core_step(f, &event);
  assert_string_equal(info_of_run(f, VISIONS).store_message, "runs/mlp-aaaaaa/run: disk full");
  submits_for(f, NLPS, "nlp");
  assert_string_equal(info_of_run(f, NLPS).store_message,
                      "the store is in trouble: the coordinator's log says why");
}

static void a_successor_knows_whose_a_run_is(void **state) {
  struct core_fixture *f = *state;
  struct err err;
  f->tenant = "vision";
  core_run_start(f, 1);
  coordinator_is_succeeded(f, RUN, record_of(f));
  assert_string_equal(info_of_run(f, RUN).tenant, "vision");
  assert_null(found(f, nlp(), RUN, &err));
  assert_string_equal(found(f, vision(), RUN, &err), RUN);
}

static void a_record_without_a_tenant_is_the_default_ones(void **state) {
  struct core_fixture *f = *state;
  Weir__RunRecord *record;
  struct err err;
  f->tenant = "vision";
  core_run_start(f, 1);
  record = record_of(f);
  free(record->tenant);
  record->tenant = (char *)protobuf_c_empty_string;
  coordinator_is_succeeded(f, RUN, record);
  assert_string_equal(info_of_run(f, RUN).tenant, "default");
  assert_null(found(f, vision(), RUN, &err));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, core_setup, core_teardown)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(operators_of_the_default_tenant_see_all_and_everybody_else_its_own),
      TEST(a_run_of_another_tenant_is_not_there),
      TEST(lists_have_what_their_reader_sees),
      TEST(what_a_run_waits_for_names_no_run_of_another_tenant),
      TEST(a_worker_of_one_tenant_computes_for_that_one_alone),
      TEST(a_run_of_higher_priority_does_not_get_another_tenants_worker),
      TEST(a_worker_that_comes_back_with_another_tenants_run_gives_it_up),
      TEST(labels_of_another_tenants_workers_are_not_told),
      TEST(another_tenants_workers_are_not_listed_and_not_drained),
      TEST(why_a_worker_refused_is_told_to_that_runs_tenant_alone),
      TEST(a_quarantine_does_not_name_another_tenants_run),
      TEST(what_troubles_the_store_names_no_run_once_there_are_several_tenants),
      TEST(a_successor_knows_whose_a_run_is),
      TEST(a_record_without_a_tenant_is_the_default_ones),
  };
  log_set_level(LOG_ERROR);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
