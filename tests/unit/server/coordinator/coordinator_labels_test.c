/* Labels of workers, and runs that require some. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/log.h"
#include "server/coordinator/messages/info.h"
#include "tests/support/coordinator/core_labels.h"
#include "tests/support/coordinator/core_run.h"

enum { W3 = 5, W4 = 6 };

static const char RUN2[] = "mlp-bbbbbb";
static const char RUN3[] = "mlp-cccccc";

static void assert_loads(const struct core_fixture *f, uint64_t worker, const char *run) {
  assert_string_equal(f->told[worker].load, run);
}

static void run_begins(struct core_fixture *f, const char *run, const uint64_t *workers, int n) {
  for (int i = 0; i < n; i++) {
    assert_loads(f, workers[i], run);
    worker_loads(f, workers[i], run);
  }
  server_loads(f, S1, run);
  assert_state(f, run, WEIR__RUN_STATE__RUNNING);
}

static void a_run_waits_for_a_worker_with_its_labels(void **state) {
  struct core_fixture *f = *state;
  server_joins(f, S1);
  user_submits_for(f, RUN, "gpu=h200,zone=a", 1, 0);
  assert_string_equal(info_of_run(f, RUN).message, "waiting for workers: 0 of 1 with gpu=h200, zone=a");
  labelled_joins(f, W1, "gpu=h200");
  assert_loads(f, W1, "");
  assert_string_equal(info_of_run(f, RUN).message,
                      "waiting for workers: 0 of 1 with gpu=h200, zone=a: the only worker does not have "
                      "them; they have gpu=h200; none has a label zone");
  worker_joins(f, W2, 1);
  labelled_joins(f, W3, "gpu=a100,zone=a");
  assert_string_equal(info_of_run(f, RUN).message,
                      "waiting for workers: 0 of 1 with gpu=h200, zone=a: none of the 3 workers has them; "
                      "they have gpu=h200, gpu=a100, zone=a");
  labelled_joins(f, W4, "rack=9,zone=a,gpu=h200");
  run_begins(f, RUN, (const uint64_t[]){W4}, 1);
  assert_loads(f, W1, "");
  assert_loads(f, W2, "");
  assert_loads(f, W3, "");
}

static void a_gang_counts_only_workers_with_its_labels(void **state) {
  struct core_fixture *f = *state;
  server_joins(f, S1);
  labelled_joins(f, W1, "gpu=h200");
  labelled_joins(f, W2, "gpu=a100");
  worker_joins(f, W3, 1);
  user_submits_for(f, RUN, "gpu=h200", 2, 0);
  assert_string_equal(info_of_run(f, RUN).message,
                      "waiting for workers: 1 of 2 with gpu=h200: 1 of the 3 workers has it; they have "
                      "gpu=h200, gpu=a100");
  user_submits(f, RUN2, 3, 0); /* nothing is kept for the gang */
  run_begins(f, RUN2, (const uint64_t[]){W1, W2, W3}, 3);
  labelled_joins(f, W4, "gpu=h200");
  assert_loads(f, W1, RUN); /* the other one has begun: it needs one */
  assert_loads(f, W4, RUN);
}

static void others_have_the_workers_that_a_run_cannot_use(void **state) {
  struct core_fixture *f = *state;
  server_joins(f, S1);
  labelled_joins(f, W1, "gpu=h200");
  labelled_joins(f, W2, "gpu=a100");
  labelled_joins(f, W3, "gpu=a100");
  user_submits_for(f, RUN, "gpu=h200", 1, 0);
  user_submits_for(f, RUN2, "gpu=h200", 1, 0);
  user_submits(f, RUN3, 1, 0);
  assert_loads(f, W1, RUN);
  assert_loads(f, W2, RUN3);
  assert_loads(f, W3, RUN3);
  assert_string_equal(info_of_run(f, RUN2).message,
                      "waiting for workers: 0 of 1 with gpu=h200; mlp-aaaaaa has 1");
}

static void a_run_is_given_first_what_nobody_else_requires(void **state) {
  struct core_fixture *f = *state;
  server_joins(f, S1);
  labelled_joins(f, W1, "gpu=h200");
  worker_joins(f, W2, 1);
  user_submits_for(f, RUN2, "gpu=h200", 2, 0);
  user_submits(f, RUN, 1, 1);
  assert_loads(f, W1, "");
  assert_loads(f, W2, RUN);
}

static void who_holds_what_another_requires_is_given_something_else(void **state) {
  struct core_fixture *f = *state;
  server_joins(f, S1);
  labelled_joins(f, W1, "gpu=h200");
  user_submits(f, RUN, 1, 1);
  run_begins(f, RUN, (const uint64_t[]){W1}, 1);
  worker_joins(f, W2, 1);
  worker_joins(f, W3, 1);
  user_submits(f, RUN3, 1, 0);
  run_begins(f, RUN3, (const uint64_t[]){W2, W3}, 2);
  user_submits_for(f, RUN2, "gpu=h200", 1, 0);
  core_ticks(f);
  assert_loads(f, W1, RUN2); /* RUN has no more than its share, and has one of RUN3's in its place */
  assert_loads(f, W2, RUN);
  assert_loads(f, W3, RUN3);
}

static void a_requirement_can_be_set_and_taken_away(void **state) {
  struct core_fixture *f = *state;
  server_joins(f, S1);
  labelled_joins(f, W1, "gpu=a100");
  labelled_joins(f, W2, "gpu=h200");
  user_submits(f, RUN, 1, 0);
  run_begins(f, RUN, (const uint64_t[]){W1, W2}, 2);
  user_sets(f, RUN, "workers.require.gpu=h200");
  assert_string_equal(f->told[W1].unload, RUN);
  assert_int_equal(f->told[W2].end - f->told[W2].begin, MICROBATCHES);
  user_sets(f, RUN, "workers.require={gpu: h100}"); /* not before it has completed a step */
  assert_string_equal(f->told[W2].unload, "");
  reports_step(f, S1, RUN, 0);
  assert_string_equal(f->told[W2].unload, RUN);
  assert_string_equal(info_of_run(f, RUN).message,
                      "waiting for workers: 0 of 1 with gpu=h100: none of the 2 workers has it; they have "
                      "gpu=a100, gpu=h200");
  user_sets(f, RUN, "workers.require=null");
  assert_loads(f, W1, RUN);
  assert_loads(f, W2, RUN);
}

static void who_comes_back_without_the_labels_gives_up_the_run(void **state) {
  struct core_fixture *f = *state;
  server_joins(f, S1);
  worker_joins(f, W1, 1);
  user_submits(f, RUN, 1, 0);
  run_begins(f, RUN, (const uint64_t[]){W1}, 1);
  member_leaves(f, W1);
  user_sets(f, RUN, "workers.require.gpu=h200");
  worker_joins_again(f, W1, W2, RUN);
  assert_string_equal(f->told[W2].unload, RUN);
  assert_int_equal(f->told[W2].loads, 0);
}

static void an_evaluation_is_given_only_workers_with_its_labels(void **state) {
  struct core_fixture *f = *state;
  server_joins(f, S1);
  labelled_joins(f, W1, "gpu=a100");
  user_submits(f, RUN, 1, 0);
  run_begins(f, RUN, (const uint64_t[]){W1}, 1);
  f->trains_nothing = true;
  user_submits_for(f, RUN2, "gpu=h200", 1, 0);
  assert_loads(f, W1, RUN);
  assert_state(f, RUN2, WEIR__RUN_STATE__QUEUED);
  user_submits_for(f, RUN3, "gpu=a100", 1, 0);
  assert_loads(f, W1, RUN3);
}

static void a_hello_with_bad_labels_is_refused(void **state) {
  struct core_fixture *f = *state;
  static const char *const words[] = {"", "a b", "\x1b[2J", "\xff", "a=b"};
  Weir__Label label = WEIR__LABEL__INIT, *same[] = {&label, &label};
  uint64_t key = S1;
  for (size_t i = 0; i <= sizeof words / sizeof *words; i++, key += 2) {
    Weir__Hello hello = WEIR__HELLO__INIT;
    hello.role = WEIR__ROLE__WORKER;
    hello.labels = same;
    hello.n_labels = i < sizeof words / sizeof *words ? 1 : 2; /* twice the same */
    label.key = "good";
    label.value = i < sizeof words / sizeof *words ? (char *)words[i] : "good";
    says_hello(f, key, &hello);
    assert_true(f->told[key].is_closed);
    label.value = "good";
    label.key = i < sizeof words / sizeof *words ? (char *)words[i] : "good";
    says_hello(f, key + 1, &hello);
    assert_true(f->told[key + 1].is_closed);
  }
}

static void many_labels_are_too_many(void **state) {
  struct core_fixture *f = *state;
  Weir__Hello hello = WEIR__HELLO__INIT;
  Weir__Label labels[LABELS_MAX + 1], *list[LABELS_MAX + 1];
  char keys[LABELS_MAX + 1][8];
  for (int i = 0; i <= LABELS_MAX; i++) {
    snprintf(keys[i], sizeof keys[i], "k%d", i);
    weir__label__init(list[i] = &labels[i]);
    labels[i].key = labels[i].value = keys[i];
  }
  hello.role = WEIR__ROLE__WORKER;
  hello.labels = list;
  hello.n_labels = LABELS_MAX + 1;
  says_hello(f, W1, &hello);
  assert_true(f->told[W1].is_closed);
  hello.n_labels = LABELS_MAX;
  says_hello(f, W2, &hello);
  assert_int_equal(worker_row(f, W2).n_labels, LABELS_MAX);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, core_setup, core_teardown)
  const struct CMUnitTest tests[] = {
      TEST(a_run_waits_for_a_worker_with_its_labels),
      TEST(a_gang_counts_only_workers_with_its_labels),
      TEST(others_have_the_workers_that_a_run_cannot_use),
      TEST(a_run_is_given_first_what_nobody_else_requires),
      TEST(who_holds_what_another_requires_is_given_something_else),
      TEST(a_requirement_can_be_set_and_taken_away),
      TEST(who_comes_back_without_the_labels_gives_up_the_run),
      TEST(an_evaluation_is_given_only_workers_with_its_labels),
      TEST(a_hello_with_bad_labels_is_refused),
      TEST(many_labels_are_too_many),
  };
#undef TEST
  log_set_level(LOG_ERROR);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
