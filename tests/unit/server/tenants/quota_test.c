/* Quotas: how they are written, what a tenant has of each, and what is said where it is not enough. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/log.h"
#include "server/coordinator/messages/info.h"
#include "server/coordinator/shares/share.h"
#include "server/coordinator/state/event.h"
#include "server/coordinator/state/state.h"
#include "server/quota_file.h"
#include "tests/support/coordinator/core_run.h"

enum { W3 = 5 };

static const char A[] = "mlp-aaaaaa", B[] = "mlp-bbbbbb", C[] = "mlp-cccccc";

static void quotas_are_of_a_tenant_or_of_each_that_has_none(void **state) {
  static const char *const texts[] = {"vision:runs=4,executors=8,memory=8GB,store=1GiB,uploads=2,"
                                      "downloads=3,verifications=1",
                                      "*:runs=1"};
  struct quotas quotas = quotas_from(texts, 2);
  static const uint64_t limits[] = {4, 8, 8000000000, 1 << 30, 2, 3, 1};
  (void)state;
  for (int kind = 0; kind < QUOTA_KINDS; kind++) {
    assert_int_equal(quota_limit(&quotas, "vision", (enum quota_kind)kind), limits[kind]);
    assert_int_equal(quota_limit(&quotas, "nlp", (enum quota_kind)kind), kind == QUOTA_RUNS ? 1 : QUOTA_NONE);
    assert_int_equal(quota_limit(NULL, "vision", (enum quota_kind)kind), QUOTA_NONE);
  }
  quotas_fini(&quotas);
}

static void what_is_no_quota_is_refused_with_what_is_wrong(void **state) {
  static const char *const rows[][2] = {{"", "is no quota"},
                                        {"vision", "is no quota"},
                                        {"vision:", "is no quota"},
                                        {":runs=1", "is no quota"},
                                        {"vi sion:runs=1", "the tenant 'vi sion'"},
                                        {"vision:runs", "there are runs=N"},
                                        {"vision:run=1", "there are runs=N"},
                                        {"vision:runs=1,", "there are runs=N"},
                                        {"vision:runs=-1", "'-1' is not a number"},
                                        {"vision:runs=1x", "'1x' is not a number"},
                                        {"vision:runs=99999999999999999999", "is not a number"},
                                        {"vision:store=much", "'much' is not an amount"},
                                        {"vision:runs=1,runs=2", "runs is there twice"},
                                        {"vision:data_root=", "data_root: '' is no folder"},
                                        {"vision:data_root=../b", "'../b' is no folder below the workers'"},
                                        {"vision:data_root=a/../..", "is no folder below the workers'"},
                                        {"vision:data_root=a\nb", "is no folder below the workers'"},
                                        {"vision:data_root=a,data_root=b", "data_root is there twice"},
                                        {"vision:data_root=a,runs=x", "'x' is not a number"},
                                        {"nlp:runs=1", "'nlp' has quotas already"}};
  static const char *const texts[] = {"nlp:runs=2"};
  struct quotas quotas = quotas_from(texts, 1);
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    struct err err = ERR_NONE;
    if (quotas_add(&quotas, rows[i][0], &err) != ERR_INVALID || !strstr(err.text, rows[i][1]))
      fail_msg("'%s': %s", rows[i][0], err.text);
  }
  assert_int_equal(quotas.n, 1);
  quotas_fini(&quotas);
}

static void a_refusal_says_which_quota_how_much_is_used_and_what_to_do(void **state) {
  static const char *const texts[] = {"vision:runs=2,store=1000"};
  struct quotas quotas = quotas_from(texts, 1);
  struct err err = ERR_NONE;
  (void)state;
  assert_int_equal(quota_check(&quotas, "vision", QUOTA_RUNS, &(struct quota_use){1, 1}, &err), 0);
  assert_int_equal(quota_check(&quotas, "vision", QUOTA_RUNS, &(struct quota_use){2, 1}, &err), ERR_QUOTA);
  assert_string_equal(err.text, "the quota of the tenant 'vision' is runs=2: 2 used, and this takes 1: wait "
                                "until one is over, or end one with 'weir cancel'");
  assert_int_equal(quota_check(&quotas, "vision", QUOTA_STORE, &(struct quota_use){900, 101}, &err),
                   ERR_QUOTA);
  assert_string_equal(err.text,
                      "the quota of the tenant 'vision' is store=1000 bytes: 900 bytes used, and this takes "
                      "101 bytes: delete runs that are over with 'weir gc', or keep fewer checkpoints "
                      "(checkpoint.keep)");
  assert_int_equal(quota_check(&quotas, "vision", QUOTA_STORE, &(struct quota_use){900, 100}, &err), 0);
  assert_int_equal(
      quota_check(&quotas, "vision", QUOTA_STORE, &(struct quota_use){UINT64_MAX, UINT64_MAX}, &err),
      ERR_QUOTA);
  assert_int_equal(quota_check(&quotas, "nlp", QUOTA_RUNS, &(struct quota_use){99, 1}, &err), 0);
  quotas_fini(&quotas);
}

static int admit(struct core_fixture *f, const char *tenant, struct quota_demand demand) {
  struct err err = ERR_NONE;
  return quota_admit(f->coordinator, tenant, &demand, &err);
}

static void live_runs_their_memory_and_what_they_store_count_for_their_tenant(void **state) {
  static const char *const texts[] = {"*:runs=2,memory=100KB,store=3000"};
  struct quotas quotas = quotas_from(texts, 1);
  struct core_fixture *f = *state;
  uint64_t memory;
  f->coordinator->options.quotas = &quotas;
  tenant_submits(f, RUN, "vision");
  memory = quota_used(f->coordinator, "vision", QUOTA_MEMORY);
  assert_int_equal(quota_used(f->coordinator, "vision", QUOTA_RUNS), 1);
  assert_int_equal(quota_used(f->coordinator, "vision", QUOTA_STORE), 1000); /* of its model */
  assert_true(memory > 0 && memory < 100000);
  assert_int_equal(admit(f, "vision", (struct quota_demand){0}), 0);
  assert_int_equal(admit(f, "vision", (struct quota_demand){.memory_bytes = 100001 - memory}), ERR_QUOTA);
  assert_int_equal(admit(f, "vision", (struct quota_demand){.model = "beef", .model_bytes = 2001}),
                   ERR_QUOTA);
  assert_int_equal(admit(f, "vision", (struct quota_demand){.model = "feed", .model_bytes = 2001}), 0);
  assert_int_equal(admit(f, "vision", (struct quota_demand){.checkpoint_bytes = 2001}), ERR_QUOTA);
  tenant_submits(f, B, "vision");
  assert_int_equal(quota_used(f->coordinator, "vision", QUOTA_STORE), 1000); /* one file */
  assert_int_equal(admit(f, "vision", (struct quota_demand){0}), ERR_QUOTA);
  assert_int_equal(admit(f, "nlp", (struct quota_demand){0}), 0);
  user_cancels(f, B);
  assert_int_equal(admit(f, "vision", (struct quota_demand){0}), 0);
  tenant_submits(f, C, "vision");
  {
    struct err err = ERR_NONE;
    assert_int_equal(quota_admit_again(f->coordinator, B, &err), ERR_QUOTA);
    user_cancels(f, C);
    err = ERR_NONE;
    assert_int_equal(quota_admit_again(f->coordinator, B, &err), 0);
    quotas.rows[0].limits[QUOTA_MEMORY] = 2 * memory - 1;
    assert_int_equal(quota_admit_again(f->coordinator, B, &err), ERR_QUOTA);
    err = ERR_NONE;
    assert_int_equal(quota_admit_again(f->coordinator, RUN, &err), 0); /* it is not over */
  }
  quotas_fini(&quotas);
}

static uint64_t runs_that_count_when_held(struct core_fixture *f, const char *sweep) {
  f->tenant = "vision";
  f->sweep = sweep;
  f->hold = 4;
  core_run_begin(f, 1);
  assert_int_equal(quota_used(f->coordinator, "vision", QUOTA_RUNS), 1);
  reports_steps(f, S1, RUN, 0, 4);
  reports_held(f, S1, RUN, 4);
  reports_held(f, S2, RUN, 4);
  assert_state(f, RUN, WEIR__RUN_STATE__HELD);
  return quota_used(f->coordinator, "vision", QUOTA_RUNS);
}

static void a_trial_that_is_held_does_not_count(void **state) {
  assert_int_equal(runs_that_count_when_held(*state, "sweep-aaaaaa"), 0);
}

static void a_run_that_is_held_counts(void **state) {
  assert_int_equal(runs_that_count_when_held(*state, NULL), 1);
}

/* Each worker has one. */
static void executors_beyond_the_quota_are_for_others_and_the_queue_says_why(void **state) {
  static const char *const texts[] = {"vision:executors=2"};
  struct quotas quotas = quotas_from(texts, 1);
  struct core_fixture *f = *state;
  f->coordinator->options.quotas = &quotas;
  server_joins(f, S1);
  for (uint64_t key = W1; key <= W3; key++)
    worker_joins(f, key, 1);
  tenant_submits(f, A, "vision");
  tenant_submits(f, B, "vision");
  assert_string_equal(f->told[W1].load, A);
  assert_string_equal(f->told[W2].load, B);
  tenant_submits(f, C, "vision");
  assert_state(f, C, WEIR__RUN_STATE__QUEUED);
  assert_string_equal(info_of_run(f, C).message,
                      "waiting for workers: 0 of 1; the quota of the tenant 'vision' is executors=2, and its "
                      "runs have 2; mlp-aaaaaa has 1; mlp-bbbbbb has 1");
  assert_string_equal(f->told[W3].load, "");
  tenant_submits(f, "mlp-dddddd", "nlp");
  assert_string_equal(f->told[W3].load, "mlp-dddddd");
  user_cancels(f, A);
  assert_string_equal(f->told[W1].load, C);
  quotas_fini(&quotas);
}

/* As when the file of them has changed. */
static void quotas_become(struct core_fixture *f, struct quotas *quotas, const char *text) {
  struct err err = ERR_NONE;
  quotas_fini(quotas);
  assert_int_equal(quotas_add(quotas, text, &err), 0);
  core_step(f, &(struct coordinator_event){.kind = EVENT_QUOTAS});
}

static void time_goes_by(struct core_fixture *f) {
  for (int i = 0; i < 12; i++) { /* longer than the longest pause before a checkpoint is tried again */
    time_passes(f, 3000);
    for (uint64_t key = S1; key <= W2; key++)
      member_beats(f, key);
  }
}

static void a_quota_that_grows_or_shrinks_is_gone_by(void **state) {
  static const char *const texts[] = {"vision:executors=1"};
  struct quotas quotas = quotas_from(texts, 1);
  struct core_fixture *f = *state;
  f->coordinator->options.quotas = &quotas;
  server_joins(f, S1);
  worker_joins(f, W1, 4);
  tenant_submits(f, A, "vision");
  worker_loads(f, W1, A);
  server_loads(f, S1, A);
  assert_int_equal(info_of_run(f, A).executors, 1);
  tenant_submits(f, B, "vision");
  assert_state(f, B, WEIR__RUN_STATE__QUEUED);
  quotas_become(f, &quotas, "vision:executors=3");
  assert_string_equal(f->told[W1].load, B);
  worker_loads(f, W1, B);
  server_loads(f, S1, B);
  assert_int_equal(info_of_run(f, A).executors + info_of_run(f, B).executors, 3);
  quotas_become(f, &quotas, "vision:executors=2");
  time_goes_by(f);
  assert_int_equal(info_of_run(f, A).executors + info_of_run(f, B).executors, 2);
  quotas_become(f, &quotas, "vision:runs=1");
  time_goes_by(f);
  assert_int_equal(info_of_run(f, A).executors + info_of_run(f, B).executors, 4);
  assert_int_equal(admit(f, "vision", (struct quota_demand){0}), ERR_QUOTA);
  quotas_fini(&quotas);
}

/* The model has 1,000 bytes. */
static void a_checkpoint_beyond_the_quota_waits_until_there_is_room_unless_it_is_waited_for(void **state) {
  static const char *const texts[] = {"*:store=1000", "nlp:store=1"};
  struct quotas quotas = quotas_from(texts, 2);
  struct core_fixture *f = *state;
  f->coordinator->options.quotas = &quotas;
  core_run_start(f, 3);
  reports_steps(f, S1, RUN, 0, 3);
  time_goes_by(f);
  assert_int_equal(f->told[S1].writes, 0);
  assert_non_null(strstr(info_of_run(f, RUN).store_message,
                         "failed: the quota of the tenant 'default' is store=1000 bytes: 1000 bytes used"));
  quotas_become(f, &quotas, "*:store=1001");
  time_goes_by(f);
  assert_int_equal(f->told[S1].writes, 1);
  reports_steps(f, S1, RUN, 3, f->told[S1].write_step);
  quotas_become(f, &quotas, "*:store=1000");
  core_run_checkpoint(f);
  time_goes_by(f);
  assert_int_equal(f->told[S1].writes, 1);
  user_pauses(f, RUN);
  assert_int_equal(f->told[S1].writes, 2);
  quotas_fini(&quotas);
}

/* Two runs of it share a worker, since they have no more executors for that. */
static void runs_of_a_tenant_share_a_worker_within_its_quota(void **state) {
  static const char *const texts[] = {"vision:executors=2"};
  struct quotas quotas = quotas_from(texts, 1);
  struct core_fixture *f = *state;
  f->coordinator->options.quotas = &quotas;
  server_joins(f, S1);
  worker_joins(f, W1, 4);
  tenant_submits(f, A, "vision");
  tenant_submits(f, B, "vision");
  tenant_submits(f, C, "vision");
  for (int i = 0; i < 2; i++) {
    worker_loads(f, W1, i ? B : A);
    server_loads(f, S1, i ? B : A);
  }
  assert_int_equal(info_of_run(f, A).executors, 1);
  assert_int_equal(info_of_run(f, B).executors, 1);
  assert_state(f, C, WEIR__RUN_STATE__QUEUED);
  quotas_fini(&quotas);
}

static void a_worker_with_more_executors_than_the_quota_lends_some_of_them(void **state) {
  static const char *const texts[] = {"vision:executors=3"};
  struct quotas quotas = quotas_from(texts, 1);
  struct core_fixture *f = *state;
  f->coordinator->options.quotas = &quotas;
  f->tenant = "vision";
  server_joins(f, S1);
  worker_joins(f, W1, 2);
  worker_joins(f, W2, 8);
  user_submits(f, RUN, 1, 0);
  worker_loads(f, W1, RUN);
  worker_loads(f, W2, RUN);
  server_loads(f, S1, RUN);
  for (int i = 0; i < 3; i++) {
    assert_int_equal(info_of_run(f, RUN).executors, 3);
    reports_step(f, S1, RUN, (uint64_t)i);
    time_passes(f, 3000);
    member_beats(f, W1);
    member_beats(f, W2);
    member_beats(f, S1);
  }
  quotas_fini(&quotas);
}

/* Of pools with workers of 4 and of 1 executors. */
static void shares_end_where_a_budget_is_spent(void **state) {
  static const bool suits = true;
  struct share_claim claims[3];
  const struct share_pool pools[] = {{3, &suits, 4}, {2, &suits, 1}};
  uint64_t budget;
  struct share shares[3];
  (void)state;
  for (int i = 0; i < 3; i++)
    claims[i] = (struct share_claim){
        .least = 1, .min = 1, .wanted = 9, .max = 9, .weight = 1, .budget = i < 2 ? 1 : 0};
  for (budget = 0; budget < 14; budget++) {
    const struct share_supply supply = {
        .pools = pools, .n = 2, .n_kinds = 1, .budgets = &budget, .n_budgets = 1};
    share_workers(claims, 3, &supply, shares);
    assert_int_equal(shares[0].is_capped, budget == 0);
    assert_int_equal(shares[1].is_capped, budget <= 4);
    assert_int_equal(shares[2].is_capped, 0);
    assert_int_equal(shares[0].workers > 0, budget > 0);
    assert_int_equal(shares[0].workers + shares[1].workers + shares[2].workers, 5);
  }
}

static void a_claim_that_takes_workers_whole_has_none_that_is_larger_than_what_is_left(void **state) {
  static const bool suits = true;
  const struct share_pool pools[] = {{3, &suits, 4}};
  struct share_claim claim = {
      .least = 1, .min = 1, .wanted = 9, .max = 9, .weight = 1, .budget = 1, .takes_whole = true};
  uint64_t budget = 3;
  const struct share_supply supply = {
      .pools = pools, .n = 1, .n_kinds = 1, .budgets = &budget, .n_budgets = 1};
  struct share share;
  (void)state;
  share_workers(&claim, 1, &supply, &share);
  assert_int_equal(share.workers, 0);
  assert_true(share.is_capped);
  budget = 11;
  share_workers(&claim, 1, &supply, &share);
  assert_int_equal(share.workers, 2);
}

static void file_says(const char *path, const char *text) {
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  fputs(text, file);
  assert_int_equal(fclose(file), 0);
}

static void a_file_of_quotas_is_taken_whenever_it_has_changed_and_is_good(void **state) {
  static const char *const rows[][2] = {
      {"vision:runs=2\nvision:runs=3\n", ":2: the tenant 'vision' has quotas"},
      {"\n\nvision\n", ":3: 'vision' is no quota"}};
  char path[] = "/tmp/weir-quotas-XXXXXX";
  int fd = mkstemp(path);
  struct quota_file file = {.path = path};
  struct quotas quotas = {0}, others = {0};
  struct err err = ERR_NONE;
  (void)state;
  assert_true(fd >= 0);
  close(fd);
  file_says(path, "# who\n vision:runs=4 # what\n\n*:runs=1");
  assert_int_equal(quota_file_read(&file, &quotas, &err), 0);
  assert_int_equal(quotas.n, 2);
  assert_int_equal(quota_limit(&quotas, "vision", QUOTA_RUNS), 4);
  assert_false(quota_file_look(&file, &others));
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    file_says(path, rows[i][0]);
    assert_false(quota_file_look(&file, &others));
    assert_non_null(strstr(file.refused.text, rows[i][1]));
    assert_int_equal(others.n, 0);
  }
  file_says(path, "vision:runs=5");
  assert_true(quota_file_look(&file, &others));
  assert_int_equal(file.refused.code, ERR_OK);
  assert_int_equal(others.n, 1);
  assert_int_equal(quota_limit(&others, "vision", QUOTA_RUNS), 5);
  quotas_fini(&others);
  unlink(path);
  assert_false(quota_file_look(&file, &others));
  assert_int_equal(file.refused.code, ERR_NOT_FOUND);
  quota_file_fini(&file);
  quotas_fini(&quotas);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, core_setup, core_teardown)

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(quotas_are_of_a_tenant_or_of_each_that_has_none),
      cmocka_unit_test(what_is_no_quota_is_refused_with_what_is_wrong),
      cmocka_unit_test(a_refusal_says_which_quota_how_much_is_used_and_what_to_do),
      cmocka_unit_test(shares_end_where_a_budget_is_spent),
      cmocka_unit_test(a_claim_that_takes_workers_whole_has_none_that_is_larger_than_what_is_left),
      cmocka_unit_test(a_file_of_quotas_is_taken_whenever_it_has_changed_and_is_good),
      TEST(a_quota_that_grows_or_shrinks_is_gone_by),
      TEST(a_checkpoint_beyond_the_quota_waits_until_there_is_room_unless_it_is_waited_for),
      TEST(live_runs_their_memory_and_what_they_store_count_for_their_tenant),
      TEST(a_trial_that_is_held_does_not_count),
      TEST(a_run_that_is_held_counts),
      TEST(executors_beyond_the_quota_are_for_others_and_the_queue_says_why),
      TEST(runs_of_a_tenant_share_a_worker_within_its_quota),
      TEST(a_worker_with_more_executors_than_the_quota_lends_some_of_them),
  };
  log_set_level(LOG_ERROR);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
