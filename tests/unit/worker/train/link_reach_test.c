/* When a worker takes a server to be reached: by answers and failures at times of the test's own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "worker/train/transfer/link_reach.h"

#define MS UINT64_C(1000000)
enum { BEGUN_MS = 5000, SILENT_MS = 2000, UNREACHED_MS = 6000, QUESTION_MS = 3000 };

static const struct err no_answer = {ERR_TIMEOUT, "no answer within 3000 ms"};
static const struct err refused = {ERR_UNAVAILABLE, "connection refused"};
static const struct err stale = {ERR_STALE, "another incarnation"};

static struct link_reach begin(void) {
  struct link_reach reach;
  link_reach_begin(&reach, 0, 0, BEGUN_MS * MS);
  return reach;
}

/* Looks this long after the link began. */
static bool look(struct link_reach *reach, uint64_t ms) {
  return link_reach_look(reach, (BEGUN_MS + ms) * MS, 0);
}

static void question_ends(struct link_reach *reach, const struct err *err, uint64_t ms) {
  bool counts = link_reach_asked(reach, (BEGUN_MS + ms) * MS);
  if (err && counts)
    link_reach_failed(reach, err, (BEGUN_MS + ms) * MS);
  else if (!err)
    link_reach_heard(reach, (BEGUN_MS + ms) * MS);
}

static void a_silent_server_is_asked_once_and_unreached_six_seconds_after_it_was_heard(void **state) {
  struct link_reach reach = begin();
  (void)state;
  assert_false(look(&reach, SILENT_MS - 1));
  assert_true(look(&reach, SILENT_MS));
  assert_false(look(&reach, SILENT_MS + 500)); /* one question at a time */
  question_ends(&reach, &no_answer, SILENT_MS + QUESTION_MS);
  look(&reach, UNREACHED_MS - 1);
  assert_false(reach.is_unreached);
  look(&reach, UNREACHED_MS);
  assert_true(reach.is_unreached);
  assert_string_equal(reach.failure.text, no_answer.text);
}

static void an_answer_begins_the_silence_anew(void **state) {
  struct link_reach reach = begin();
  (void)state;
  assert_true(look(&reach, SILENT_MS));
  question_ends(&reach, NULL, SILENT_MS + 100);
  assert_false(look(&reach, 2 * SILENT_MS + 99));
  assert_true(look(&reach, 2 * SILENT_MS + 100));
  link_reach_heard(&reach, (BEGUN_MS + 4500) * MS); /* another call is answered */
  question_ends(&reach, &no_answer, 7100);
  look(&reach, 4500 + UNREACHED_MS - 1);
  assert_false(reach.is_unreached);
  look(&reach, 4500 + UNREACHED_MS);
  assert_true(reach.is_unreached);
}

static void a_server_that_is_silent_and_fails_nothing_is_no_cause_for_alarm(void **state) {
  struct link_reach reach = begin();
  (void)state;
  assert_true(look(&reach, SILENT_MS));
  look(&reach, 60 * 1000); /* the question is still under way */
  assert_false(reach.is_unreached);
}

static void what_a_server_answers_is_no_failure_of_the_way_to_it(void **state) {
  struct link_reach reach = begin();
  (void)state;
  link_reach_failed(&reach, &refused, (BEGUN_MS + 100) * MS);
  assert_true(look(&reach, SILENT_MS));
  question_ends(&reach, &stale, SILENT_MS + 1);
  look(&reach, UNREACHED_MS);
  assert_false(reach.is_unreached);
}

/* Another process is at the address, or the run has gone on without us. */
static void a_server_without_the_run_does_not_count_as_reached(void **state) {
  static const struct err none = {ERR_NOT_FOUND, "there is no run"}, busy = {ERR_BUSY, "too many calls"};
  const struct err *const without[] = {&stale, &none};
  (void)state;
  for (int i = 0; i < 2; i++) {
    struct link_reach reach = begin();
    link_reach_failed(&reach, without[i], (BEGUN_MS + 1) * MS);
    assert_false(link_reach_is_fresh(&reach, (BEGUN_MS + 2) * MS));
    link_reach_failed(&reach, &busy, (BEGUN_MS + 3) * MS); /* with the run */
    assert_true(link_reach_is_fresh(&reach, (BEGUN_MS + 4) * MS));
    link_reach_failed(&reach, without[i], (BEGUN_MS + 5) * MS);
    link_reach_heard(&reach, (BEGUN_MS + 6) * MS);
    assert_true(link_reach_is_fresh(&reach, (BEGUN_MS + 7) * MS));
  }
}

static void a_server_that_refuses_connections_is_asked_with_pauses(void **state) {
  struct link_reach reach = begin();
  (void)state;
  assert_true(look(&reach, SILENT_MS));
  question_ends(&reach, &refused, SILENT_MS + 1);
  assert_false(look(&reach, SILENT_MS + 500));
  assert_int_equal(link_reach_due_ns(&reach, (BEGUN_MS + SILENT_MS + 500) * MS),
                   (BEGUN_MS + SILENT_MS + 501) * MS);
  assert_true(look(&reach, SILENT_MS + 501));
  question_ends(&reach, NULL, SILENT_MS + 600);
  look(&reach, UNREACHED_MS);
  assert_false(reach.is_unreached);
}

/* Ten seconds, in which our process was stopped: the deadline of the question passed, and nobody could
 * answer. */
static void a_time_in_which_we_did_not_run_is_no_silence_of_the_server(void **state) {
  struct link_reach reach = begin();
  (void)state;
  assert_true(look(&reach, SILENT_MS));
  link_reach_failed(&reach, &refused, (BEGUN_MS + SILENT_MS) * MS);
  assert_false(link_reach_look(&reach, (BEGUN_MS + 12000) * MS, 10000 * MS));
  assert_false(reach.is_unreached);
  question_ends(&reach, &no_answer, 12001); /* for nothing */
  assert_false(reach.is_failing);
  assert_true(look(&reach, 12501)); /* 2.5 s of silence, without the ten */
  question_ends(&reach, &no_answer, 15501);
  look(&reach, 10000 + UNREACHED_MS - 1);
  assert_false(reach.is_unreached);
  look(&reach, 10000 + UNREACHED_MS);
  assert_true(reach.is_unreached);
}

static void the_excuse_is_never_longer_than_the_silence(void **state) {
  struct link_reach reach = begin();
  (void)state;
  link_reach_heard(&reach, (BEGUN_MS + 9000) * MS);
  link_reach_look(&reach, (BEGUN_MS + 9500) * MS, 8000 * MS);
  assert_int_equal(reach.heard_ns, (BEGUN_MS + 9500) * MS);
}

static void a_server_counts_as_reached_for_two_seconds_unless_a_call_fails(void **state) {
  struct link_reach reach = begin();
  (void)state;
  assert_true(link_reach_is_fresh(&reach, (BEGUN_MS + 2000) * MS));
  assert_false(link_reach_is_fresh(&reach, (BEGUN_MS + 2001) * MS));
  link_reach_heard(&reach, (BEGUN_MS + 2500) * MS);
  assert_true(link_reach_is_fresh(&reach, (BEGUN_MS + 2501) * MS));
  link_reach_failed(&reach, &refused, (BEGUN_MS + 2502) * MS);
  assert_false(link_reach_is_fresh(&reach, (BEGUN_MS + 2503) * MS));
}

static void looks_are_never_more_than_a_second_apart(void **state) {
  struct link_reach reach = begin();
  (void)state;
  for (uint64_t ms = 0; ms < 8000; ms += 137) {
    uint64_t now_ns = (BEGUN_MS + ms) * MS, due_ns;
    look(&reach, ms);
    due_ns = link_reach_due_ns(&reach, now_ns);
    assert_true(due_ns > now_ns && due_ns <= now_ns + 1000 * MS);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_silent_server_is_asked_once_and_unreached_six_seconds_after_it_was_heard),
      cmocka_unit_test(an_answer_begins_the_silence_anew),
      cmocka_unit_test(a_server_that_is_silent_and_fails_nothing_is_no_cause_for_alarm),
      cmocka_unit_test(what_a_server_answers_is_no_failure_of_the_way_to_it),
      cmocka_unit_test(a_server_without_the_run_does_not_count_as_reached),
      cmocka_unit_test(a_server_that_refuses_connections_is_asked_with_pauses),
      cmocka_unit_test(a_time_in_which_we_did_not_run_is_no_silence_of_the_server),
      cmocka_unit_test(the_excuse_is_never_longer_than_the_silence),
      cmocka_unit_test(a_server_counts_as_reached_for_two_seconds_unless_a_call_fails),
      cmocka_unit_test(looks_are_never_more_than_a_second_apart),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
