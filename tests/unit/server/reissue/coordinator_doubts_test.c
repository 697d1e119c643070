/* Parts that are finite and whose sum is not: who computes them anew, and who was wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/log.h"
#include "tests/support/coordinator/core_reissue.h"

enum { S1 = 1, S2, W1, W2, W3, W4, ALL = (1 << MICROBATCHES) - 1, GATHER_MS = 50, PATIENCE_MS = 10000 };
#define BY(key) (UINT64_C(1) << (key))
static const char RUN[] = "mlp-aaaaaa";
static const char *const own_hosts[] = {"a", "b", "c", "d"}, *const two_hosts[] = {"a", "a", "b", "b"};

/* Two servers and n workers, of these hosts. */
static void start(struct core_fixture *f, const char *const *hosts, uint64_t n) {
  for (uint64_t key = S1; key <= S2; key++)
    server_joins(f, key);
  for (uint64_t i = 0; i < n; i++)
    worker_joins_on(f, W1 + i, hosts[i], "cpu");
  user_submits(f, RUN, (uint32_t)n, 0);
  for (uint64_t i = 0; i < n; i++)
    worker_loads(f, W1 + i, RUN);
  for (uint64_t key = S1; key <= S2; key++)
    server_loads(f, key, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
}

/* Everybody lives on, as long as doubts are gathered. */
static void gathers(struct core_fixture *f) {
  f->now_ms += GATHER_MS;
  core_ticks(f);
}

/* The first four microbatches, of which a half each is of W1 and of another. */
static void doubts(struct core_fixture *f, uint32_t block, uint64_t other) {
  struct pushed parts[] = {{W1, 0, 1}, {other, 2, 1}};
  server_doubts(f, block, parts, 2);
  gathers(f);
}

static void finds_w1_changed(struct core_fixture *f, uint64_t by) {
  struct finding finding = {.block = 1, .changed = {{W1, 0, 1}}, .n_changed = 1, .by = by};
  server_judges(f, &finding);
}

static void assert_in_quarantine(struct core_fixture *f, uint64_t key) {
  assert_string_equal(worker_row(f, key).state, "quarantined");
  assert_string_equal(f->told[key].unload, RUN);
  assert_non_null(strstr(info_of_run(f, RUN).message, f->told[key].id));
  assert_non_null(strstr(info_of_run(f, RUN).message, "is in quarantine"));
}

static void assert_nobody_is_in_quarantine(struct core_fixture *f, uint64_t n) {
  for (uint64_t key = W1; key < W1 + n; key++)
    assert_string_equal(worker_row(f, key).state, "ready");
  assert_null(strstr(info_of_run(f, RUN).message, "is in quarantine"));
}

static void doubted_microbatches_are_computed_by_who_sent_none_of_them(void **state) {
  struct core_fixture *f = *state;
  uint64_t view;
  start(f, own_hosts, 3);
  view = f->told[W3].view;
  doubts(f, 1, W2);
  assert_int_equal(f->told[W3].reissue_step, DOUBTED_STEP);
  assert_int_equal(f->told[W3].reissue_microbatches, 0xf);
  assert_int_equal(f->told[W1].reissues + f->told[W2].reissues, 0);
  assert_int_equal(f->told[W3].view, view);
  assert_non_null(strstr(info_of_run(f, RUN).message, "step 5: the sum of parts that are finite overflows"));
}

static void blocks_that_are_doubted_together_are_one_order(void **state) {
  struct core_fixture *f = *state;
  struct pushed parts[] = {{W1, 0, 0}, {W2, 1, 0}};
  start(f, own_hosts, 3);
  for (uint32_t block = 0; block < BLOCKS; block++)
    server_doubts(f, block, parts, 2);
  assert_int_equal(f->told[W3].reissues, 0);
  gathers(f);
  assert_int_equal(f->told[W3].reissues, 1);
  assert_int_equal(f->told[W3].reissue_microbatches, 3);
}

static void who_sent_what_others_compute_otherwise_goes_into_quarantine(void **state) {
  struct core_fixture *f = *state;
  start(f, own_hosts, 3);
  doubts(f, 1, W2);
  finds_w1_changed(f, BY(W3));
  assert_in_quarantine(f, W1);
  assert_string_equal(worker_row(f, W2).state, "ready");
  assert_string_equal(worker_row(f, W3).state, "ready");
  assert_string_equal(
      worker_row(f, W1).message,
      "in quarantine: run mlp-aaaaaa, step 5: microbatches 0 to 1, which it pushed, had other "
      "bits when worker-3 computed them; 'weir workers --readmit worker-1' ends it");
  assert_state(f, RUN, WEIR__RUN_STATE__LOADING); /* more of what it has pushed may be wrong */
  finds_w1_changed(f, BY(W3));                    /* of another block */
  assert_in_quarantine(f, W1);
  f->incarnation = 1;
  server_loads(f, S1, RUN);
  server_loads(f, S2, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
  assert_int_equal(f->told[W2].end - f->told[W2].begin, MICROBATCHES / 2);
}

static void of_two_workers_one_computes_all_and_is_believed(void **state) {
  struct core_fixture *f = *state;
  uint64_t helper;
  start(f, own_hosts, 2);
  doubts(f, 1, W2);
  assert_int_equal(f->told[W1].reissues + f->told[W2].reissues, 1);
  helper = f->told[W1].reissues ? W1 : W2;
  assert_int_equal(f->told[helper].reissue_microbatches, 0xf);
  f->now_ms += PATIENCE_MS; /* it says nothing: the other is asked */
  for (uint64_t key = S1; key <= W2; key++)
    member_beats(f, key);
  core_ticks(f);
  assert_int_equal(f->told[W1].reissue_microbatches, 0xf);
  assert_int_equal(f->told[W2].reissue_microbatches, 0xf);
  finds_w1_changed(f, BY(W2));
  assert_in_quarantine(f, W1);
  assert_string_equal(worker_row(f, W2).state, "ready");
}

static void who_is_compared_with_itself_is_named_and_goes_on(void **state) {
  struct core_fixture *f = *state;
  start(f, own_hosts, 2);
  doubts(f, 1, W2);
  finds_w1_changed(f, BY(W1) | BY(W2));
  assert_nobody_is_in_quarantine(f, 2);
  assert_non_null(strstr(info_of_run(f, RUN).message, "worker-1 (a, cpu) may compute wrongly: at step 5"));
}

static void who_is_compared_with_its_own_device_is_named_and_goes_on(void **state) {
  struct core_fixture *f = *state;
  start(f, two_hosts, 2);
  doubts(f, 1, W2);
  finds_w1_changed(f, BY(W2));
  assert_nobody_is_in_quarantine(f, 2);
  assert_non_null(strstr(info_of_run(f, RUN).message, "worker-1 (a, cpu) may compute wrongly"));
}

static void another_device_is_asked_before_one_that_sent_a_part(void **state) {
  struct core_fixture *f = *state;
  static const char *const hosts[] = {"a", "b", "a", "c"};
  start(f, hosts, 4);
  doubts(f, 1, W2);
  assert_int_equal(f->told[W4].reissue_microbatches, 0xf);
  assert_int_equal(f->told[W3].reissues, 0); /* of W1's device */
}

static void who_is_no_worker_is_named_alone(void **state) {
  struct core_fixture *f = *state;
  struct finding finding = {.block = 1, .changed = {{0, 0, 1}}, .n_changed = 1, .by = BY(W2)};
  start(f, own_hosts, 2);
  doubts(f, 1, W2);
  server_judges(f, &finding);
  assert_nobody_is_in_quarantine(f, 2);
  assert_non_null(strstr(info_of_run(f, RUN).message, "worker 0 may compute wrongly"));
}

static void nothing_is_concluded_while_the_sum_overflows(void **state) {
  struct core_fixture *f = *state;
  struct finding finding = {
      .block = 1, .changed = {{W1, 0, 1}, {W2, 2, 1}}, .n_changed = 2, .by = BY(W3), .overflows = true};
  struct pushed anew[] = {{W3, 0, 0}, {W3, 1, 0}, {W3, 2, 0}, {W3, 3, 0}};
  start(f, own_hosts, 4);
  member_drains(f, W4); /* three are enough */
  doubts(f, 1, W2);
  assert_int_equal(f->told[W3].reissues, 1);
  server_judges(f, &finding); /* by a liar that contradicts both */
  assert_nobody_is_in_quarantine(f, 3);
  server_doubts(f, 1, anew, 4);
  gathers(f);
  assert_int_equal(f->told[W3].reissues, 1); /* others, now */
  assert_int_equal(f->told[W1].reissues + f->told[W2].reissues, 1);
  finding = (struct finding){.block = 1, .changed = {{W3, 0, 0}, {W3, 2, 0}}, .n_changed = 2, .by = BY(W2)};
  server_judges(f, &finding);
  assert_in_quarantine(f, W3);
  assert_non_null(strstr(worker_row(f, W3).message, "microbatches 0, 2, which it pushed"));
  assert_string_equal(worker_row(f, W1).state, "ready");
}

static void what_others_compute_alike_diverges(void **state) {
  struct core_fixture *f = *state;
  struct finding finding = {.block = 1, .by = BY(W3), .overflows = true};
  start(f, own_hosts, 3);
  doubts(f, 1, W2);
  server_judges(f, &finding);
  assert_state(f, RUN, WEIR__RUN_STATE__FAILED);
  assert_non_null(strstr(info_of_run(f, RUN).message,
                         "the sum of step 5's gradients of block 1 is not finite, whoever computes it: the "
                         "training diverges; try a lower train.optimizer.lr"));
  for (uint64_t key = W1; key <= W3; key++)
    assert_string_equal(worker_row(f, key).state, "idle");
}

static void what_only_its_sender_has_repeated_is_computed_by_another_too(void **state) {
  struct core_fixture *f = *state;
  struct pushed anew[4];
  uint64_t first, second;
  start(f, own_hosts, 2);
  doubts(f, 1, W2);
  first = f->told[W1].reissues ? W1 : W2, second = W1 + W2 - first;
  server_judges(f, &(struct finding){.block = 1, .by = BY(first), .overflows = true});
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
  for (uint32_t m = 0; m < 4; m++)
    anew[m] = (struct pushed){first, m, 0};
  server_doubts(f, 1, anew, 4);
  gathers(f);
  assert_int_equal(f->told[second].reissue_microbatches, 0xf);
  assert_int_equal(f->told[first].reissues, 1);
  server_judges(f, &(struct finding){.block = 1, .by = BY(second), .overflows = true});
  assert_state(f, RUN, WEIR__RUN_STATE__FAILED);
}

/* W2 has computed some of it, but not what was wrong. */
static void what_two_computed_together_says_nothing_of_either(void **state) {
  struct core_fixture *f = *state;
  struct pushed anew[] = {{W1, 0, 1}, {W2, 2, 1}};
  start(f, own_hosts, 2);
  doubts(f, 1, W2);
  for (int i = 0; i < 3; i++) {
    server_judges(f, &(struct finding){.block = 1, .by = BY(W1) | BY(W2), .overflows = true});
    server_doubts(f, 1, anew, 2);
    gathers(f);
  }
  server_judges(f, &(struct finding){.block = 1, .by = BY(W1), .overflows = true});
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
  server_doubts(f, 1, anew, 2);
  server_judges(f, &(struct finding){.block = 1, .by = BY(W2), .overflows = true});
  assert_state(f, RUN, WEIR__RUN_STATE__FAILED);
}

/* W1 is asked again meanwhile, but ever less often. */
static void a_worker_that_follows_is_awaited_before_a_run_is_said_to_diverge(void **state) {
  struct core_fixture *f = *state;
  struct pushed anew[] = {{W1, 0, 1}, {W1, 2, 1}};
  uint64_t asked_before;
  start(f, own_hosts, 1);
  worker_joins_on(f, W2, "b", "cpu");
  member_loads(f, W2, RUN, "data", SAMPLES);
  assert_string_equal(worker_row(f, W2).state, "following");
  doubts(f, 1, W1);
  for (int i = 0; i < 5; i++) {
    server_judges(f, &(struct finding){.block = 1, .by = BY(W1), .overflows = true});
    server_doubts(f, 1, anew, 2);
    asked_before = f->told[W1].reissues;
    gathers(f);
    assert_int_equal(f->told[W1].reissues, asked_before);
    for (int waited_ms = 0; f->told[W1].reissues == asked_before && waited_ms < 5000; waited_ms += 10)
      time_passes(f, 10);
    assert_int_equal(f->told[W1].reissues, asked_before + 1);
  }
  server_judges(f, &(struct finding){.block = 1, .by = BY(W1), .overflows = true});
  server_doubts(f, 1, anew, 2);
  gathers(f);
  worker_catches_up(f, W2, RUN, 0);
  assert_int_equal(f->told[W2].reissue_microbatches, 0xf); /* at once */
  finds_w1_changed(f, BY(W2));
  assert_in_quarantine(f, W1);
}

/* The server does not judge what its sender may have sent twice. */
static void parts_that_are_doubted_once_more_are_given_to_another(void **state) {
  struct core_fixture *f = *state;
  struct pushed anew[4];
  uint64_t first, second;
  start(f, own_hosts, 2);
  doubts(f, 1, W2);
  first = f->told[W1].reissues ? W1 : W2, second = W1 + W2 - first;
  for (uint32_t m = 0; m < 4; m++)
    anew[m] = (struct pushed){first, m, 0};
  server_doubts(f, 1, anew, 4);
  gathers(f);
  assert_int_equal(f->told[second].reissue_microbatches, 0xf);
  assert_int_equal(f->told[first].reissues, 1);
}

static void an_only_worker_that_computes_the_same_diverges(void **state) {
  struct core_fixture *f = *state;
  start(f, own_hosts, 1);
  doubts(f, 1, W1);
  assert_int_equal(f->told[W1].reissue_microbatches, 0xf);
  server_judges(f, &(struct finding){.block = 1, .by = BY(W1), .overflows = true});
  assert_state(f, RUN, WEIR__RUN_STATE__FAILED);
}

static void another_runs_worker_is_asked_before_a_run_is_said_to_diverge(void **state) {
  struct core_fixture *f = *state;
  start(f, own_hosts, 1);
  user_submits(f, "mlp-bbbbbb", 1, 0);
  worker_joins_on(f, W2, "b", "cpu");
  worker_loads(f, W2, "mlp-bbbbbb");
  doubts(f, 1, W1);
  assert_string_equal(f->told[W2].load, RUN);
  server_judges(f, &(struct finding){.block = 1, .by = BY(W1), .overflows = true});
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
}

static void where_bits_may_differ_nobody_is_named(void **state) {
  struct core_fixture *f = *state;
  f->admits_any = true;
  start(f, own_hosts, 3);
  doubts(f, 1, W2);
  assert_int_equal(f->told[W3].reissue_microbatches, 0xf);
  finds_w1_changed(f, BY(W3));
  assert_nobody_is_in_quarantine(f, 3);
  assert_string_equal(info_of_run(f, RUN).message, "");
  doubts(f, 1, W2);
  server_judges(f, &(struct finding){
                       .block = 1, .changed = {{W1, 0, 1}}, .n_changed = 1, .by = BY(W3), .overflows = true});
  assert_state(f, RUN, WEIR__RUN_STATE__FAILED);
}

static void of_a_group_the_group_goes_into_quarantine(void **state) {
  struct core_fixture *f = *state;
  f->collective = "shm";
  for (uint64_t key = S1; key <= S2; key++)
    server_joins(f, key);
  worker_joins_on(f, W1, "a", "cuda:0");
  worker_joins_on(f, W2, "a", "cuda:1");
  worker_joins_on(f, W3, "b", "cpu");
  worker_joins_on(f, W4, "c", "cpu");
  user_submits(f, RUN, 4, 0);
  for (uint64_t key = W1; key <= W4; key++)
    worker_loads(f, key, RUN);
  for (uint64_t key = S1; key <= S2; key++)
    server_loads(f, key, RUN);
  assert_true(f->told[W1].group && f->told[W1].group == f->told[W2].group);
  doubts(f, 1, W3);
  assert_int_equal(f->told[W4].reissue_microbatches, 0xf);
  assert_int_equal(f->told[W2].reissues, 0);
  finds_w1_changed(f, BY(W4));
  assert_in_quarantine(f, W1);
  assert_in_quarantine(f, W2);
  assert_non_null(strstr(worker_row(f, W2).message, "which its group pushed"));
  assert_string_equal(worker_row(f, W3).state, "ready");
}

/* The part is of the view in which it was computed, whatever has changed since. */
static void a_group_is_known_when_it_is_no_more(void **state) {
  struct core_fixture *f = *state;
  struct pushed parts[] = {{W1, 0, 1}, {W3, 2, 1}};
  struct finding finding = {.block = 1, .changed = {{W1, 0, 1}}, .n_changed = 1, .by = BY(W4)};
  uint64_t old;
  f->collective = "shm";
  start(f, two_hosts, 2);
  worker_joins_on(f, W3, "b", "cpu");
  worker_joins_on(f, W4, "c", "cpu");
  old = f->told[W1].view_number;
  member_leaves(f, W2);
  for (uint64_t key = W3; key <= W4; key++)
    worker_loads(f, key, RUN);
  assert_true(f->told[W1].view_number > old && f->told[W1].group == 0);
  f->told[W1].view_number = old;
  server_doubts(f, 1, parts, 2);
  gathers(f);
  server_judges(f, &finding);
  assert_in_quarantine(f, W1);
  assert_non_null(strstr(worker_row(f, W1).message, "which its group pushed"));
}

static void a_group_is_the_same_in_views_that_do_not_change_it(void **state) {
  struct core_fixture *f = *state;
  Weir__GroupFailed failed = WEIR__GROUP_FAILED__INIT;
  static const char *const hosts[] = {"a", "a", "b", "b"};
  uint32_t group;
  f->collective = "shm";
  start(f, hosts, 4);
  group = f->told[W1].group;
  failed.run = (char *)RUN;
  failed.view = f->told[W3].view_number;
  failed.group = f->told[W3].group;
  member_says(f, W3, WEIR__MEMBER_MESSAGE__BODY_GROUP_FAILED, &failed);
  assert_true(f->told[W1].view_number > failed.view && f->told[W1].group == group);
  finds_w1_changed(f, BY(W3));
  assert_in_quarantine(f, W1);
  assert_non_null(strstr(worker_row(f, W1).message, "which its group pushed"));
}

static void a_group_of_a_view_that_is_not_known_is_named_alone(void **state) {
  struct core_fixture *f = *state;
  f->collective = "shm";
  start(f, own_hosts, 3);
  f->told[W1].view_number = 1;
  doubts(f, 1, W2);
  finds_w1_changed(f, BY(W3));
  assert_nobody_is_in_quarantine(f, 3);
  assert_non_null(strstr(info_of_run(f, RUN).message, "with whom it was in a group is not known any more"));
}

static void a_worker_that_has_left_is_found_out_all_the_same(void **state) {
  struct core_fixture *f = *state;
  start(f, own_hosts, 3);
  doubts(f, 1, W2);
  member_leaves(f, W1);
  finds_w1_changed(f, BY(W3));
  assert_non_null(strstr(info_of_run(f, RUN).message, "worker-1 (a, cpu) is in quarantine"));
  worker_joins_on(f, W4 + 1, "a", "cpu");
  assert_string_equal(worker_row(f, W4 + 1).state, "quarantined");
}

static void a_worker_that_goes_is_replaced_as_a_helper(void **state) {
  struct core_fixture *f = *state;
  uint64_t helper;
  start(f, own_hosts, 4);
  doubts(f, 1, W2);
  helper = W3;
  assert_int_equal(f->told[W3].reissue_microbatches | f->told[W4].reissue_microbatches, 0xf);
  member_leaves(f, helper);
  assert_int_equal(f->told[W4].reissue_microbatches, 0xf);
}

static void doubts_end_with_their_step(void **state) {
  struct core_fixture *f = *state;
  start(f, own_hosts, 3);
  doubts(f, 1, W2);
  reports_steps(f, S1, RUN, 0, DOUBTED_STEP + 2);
  assert_string_equal(info_of_run(f, RUN).message, "");
  f->now_ms += PATIENCE_MS;
  for (uint64_t key = S1; key <= W3; key++)
    member_beats(f, key);
  assert_int_equal(f->told[W3].reissues, 1);
}

/* A successor has not heard the beginning. */
static void a_judgement_without_a_doubt_counts(void **state) {
  struct core_fixture *f = *state;
  start(f, own_hosts, 2);
  finds_w1_changed(f, BY(W2));
  assert_in_quarantine(f, W1);
}

static void nonsense_is_ignored(void **state) {
  static const struct pushed wrong[] = {{W1, 8, 0}, {W1, 1, 1}, {W1, 0, 32}, {W1, UINT32_MAX, UINT32_MAX}};
  struct core_fixture *f = *state;
  Weir__Doubted doubted = WEIR__DOUBTED__INIT;
  Weir__Judged judged = WEIR__JUDGED__INIT;
  start(f, own_hosts, 3);
  server_doubts(f, 1, wrong, 4);
  gathers(f);
  server_judges(f, &(struct finding){.block = 1});
  doubted.run = judged.run = (char *)RUN;
  doubted.block = judged.block = UINT32_MAX;
  judged.overflows = true;
  member_says(f, S1, WEIR__MEMBER_MESSAGE__BODY_DOUBTED, &doubted);
  member_says(f, S1, WEIR__MEMBER_MESSAGE__BODY_JUDGED, &judged);
  doubted.block = judged.block = 0;
  doubted.step = judged.step = UINT64_MAX;
  member_says(f, S1, WEIR__MEMBER_MESSAGE__BODY_DOUBTED, &doubted);
  member_says(f, S1, WEIR__MEMBER_MESSAGE__BODY_JUDGED, &judged);
  doubted.step = judged.step = 0;
  member_says(f, W1, WEIR__MEMBER_MESSAGE__BODY_JUDGED, &judged);
  judged.run = doubted.run = "nobody's";
  member_says(f, S1, WEIR__MEMBER_MESSAGE__BODY_DOUBTED, &doubted);
  member_says(f, S1, WEIR__MEMBER_MESSAGE__BODY_JUDGED, &judged);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
  assert_nobody_is_in_quarantine(f, 3);
  assert_int_equal(f->told[W1].reissues + f->told[W2].reissues + f->told[W3].reissues, 0);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, core_setup, core_teardown)
  const struct CMUnitTest tests[] = {
      TEST(doubted_microbatches_are_computed_by_who_sent_none_of_them),
      TEST(blocks_that_are_doubted_together_are_one_order),
      TEST(who_sent_what_others_compute_otherwise_goes_into_quarantine),
      TEST(of_two_workers_one_computes_all_and_is_believed),
      TEST(who_is_compared_with_itself_is_named_and_goes_on),
      TEST(who_is_compared_with_its_own_device_is_named_and_goes_on),
      TEST(another_device_is_asked_before_one_that_sent_a_part),
      TEST(who_is_no_worker_is_named_alone),
      TEST(nothing_is_concluded_while_the_sum_overflows),
      TEST(what_others_compute_alike_diverges),
      TEST(what_only_its_sender_has_repeated_is_computed_by_another_too),
      TEST(what_two_computed_together_says_nothing_of_either),
      TEST(a_worker_that_follows_is_awaited_before_a_run_is_said_to_diverge),
      TEST(parts_that_are_doubted_once_more_are_given_to_another),
      TEST(an_only_worker_that_computes_the_same_diverges),
      TEST(another_runs_worker_is_asked_before_a_run_is_said_to_diverge),
      TEST(where_bits_may_differ_nobody_is_named),
      TEST(of_a_group_the_group_goes_into_quarantine),
      TEST(a_group_is_known_when_it_is_no_more),
      TEST(a_group_is_the_same_in_views_that_do_not_change_it),
      TEST(a_group_of_a_view_that_is_not_known_is_named_alone),
      TEST(a_worker_that_has_left_is_found_out_all_the_same),
      TEST(a_worker_that_goes_is_replaced_as_a_helper),
      TEST(doubts_end_with_their_step),
      TEST(a_judgement_without_a_doubt_counts),
      TEST(nonsense_is_ignored),
  };
#undef TEST
  log_set_level(LOG_ERROR);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
