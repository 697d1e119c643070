/* Timelines of a run's members, collected: when it begins and ends, whose clock is how far ahead, who is
 * waited for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "server/coordinator/tracing/tracing.h"

enum { OWN = 1, FAR = 2, STEPS = 3 };
#define MS UINT64_C(1000000)

/* What members and the caller were told. */
struct told {
  struct tracing *tracing;
  struct tracing_now now;
  int begins[3], stops[3]; /* [key] */
  uint64_t asked_ns;       /* by the newest order */
  int chunks;
  Weir__TraceChunk chunk; /* the newest */
};

static void on_order(void *user, uint64_t key, const Weir__Order *order) {
  struct told *told = user;
  assert_int_equal(order->body_case, WEIR__ORDER__BODY_TRACE);
  assert_int_equal(order->trace->number, 7);
  assert_string_equal(order->trace->run, "run-1");
  told->asked_ns = order->trace->asked_ns;
  ++*(order->trace->stop ? &told->stops[key] : &told->begins[key]);
}

static void on_send(void *user, const Weir__TraceChunk *chunk) {
  struct told *told = user;
  told->chunk = *chunk;
  told->chunks++;
}

static void begin(struct told *told, int n_members) {
  static const struct tracing_member members[] = {{OWN, "server-1", "here"}, {FAR, "worker-1", "there"}};
  const struct tracing_options options = {.number = 7,
                                          .run = "run-1",
                                          .boot = "ours",
                                          .steps = STEPS,
                                          .members = members,
                                          .n_members = n_members,
                                          .order = on_order,
                                          .send = on_send,
                                          .user = told};
  *told = (struct told){.now = {.now_ns = 1000 * MS, .step = 10, .is_running = true}};
  told->tracing = tracing_new(&options, &told->now);
}

static void answer(struct told *told, uint64_t key, const char *boot, uint64_t clock_ns, const char *events) {
  Weir__Traced traced = WEIR__TRACED__INIT;
  traced.number = 7;
  traced.asked_ns = told->asked_ns;
  traced.now_ns = clock_ns;
  traced.boot = (char *)boot;
  traced.events.data = (uint8_t *)events;
  traced.events.len = strlen(events);
  traced.last = true;
  tracing_take(told->tracing, key, &traced, &told->now);
}

static bool turn(struct told *told, uint64_t step) {
  told->now.step = step;
  return tracing_turn(told->tracing, &told->now);
}

/* All have begun, and are asked once more. */
static void settle(struct told *told, uint64_t step, bool has_far) {
  assert_false(turn(told, step));
  told->now.now_ns += 40 * MS;
  answer(told, OWN, "ours", 0, "");
  if (has_far)
    answer(told, FAR, "theirs", told->now.now_ns - 600 * MS, "");
  assert_false(turn(told, step));
}

static void whole_steps_are_captured_once_all_have_begun(void **state) {
  struct told told;
  (void)state;
  begin(&told, 1);
  assert_int_equal(told.begins[OWN], 1);
  assert_false(turn(&told, 11)); /* it has not answered */
  answer(&told, OWN, "ours", 5, "");
  assert_false(turn(&told, 11));
  assert_int_equal(told.begins[OWN], 2);
  assert_false(turn(&told, 11)); /* it has not answered again, and may have made 12 before it began */
  settle(&told, 12, false);      /* 12 was under way, and tasks of 13 may have begun ahead of its weights */
  assert_false(turn(&told, 17)); /* some block may be at 16 */
  assert_int_equal(told.stops[OWN], 0);
  assert_false(turn(&told, 18));
  assert_int_equal(told.stops[OWN], 1);
  answer(&told, OWN, "ours", 5, "{},\n");
  assert_int_equal(told.chunks, 1);
  assert_int_equal(told.chunk.first, 14);
  assert_int_equal(told.chunk.end, 17);
  assert_int_equal(told.chunk.ahead_ns, 0);
  assert_int_equal(told.chunk.error_ns, 0);
  assert_true(turn(&told, 18));
  tracing_free(told.tracing);
  assert_int_equal(told.stops[OWN], 1);
}

static void another_machines_clock_is_that_of_its_quickest_answer(void **state) {
  static const struct {
    uint64_t took_ms;
    int64_t ahead_ms; /* as the middle shows it */
  } answers[] = {{8, -504}, {2, -501}, {20, -480}};
  struct told told;
  (void)state;
  begin(&told, 2);
  for (int i = 0; i < 3; i++) {
    uint64_t middle_ns = told.asked_ns + answers[i].took_ms * MS / 2;
    told.now.now_ns = told.asked_ns + answers[i].took_ms * MS;
    answer(&told, FAR, "theirs", middle_ns + (uint64_t)(answers[i].ahead_ms * (int64_t)MS), "");
  }
  assert_int_equal(told.begins[FAR], 4);
  answer(&told, OWN, "ours", 0, "");
  settle(&told, 10, true);
  assert_false(turn(&told, 13 + STEPS));
  answer(&told, FAR, "theirs", 0, "{},\n");
  assert_true(told.chunk.ahead_ns == -501 * (int64_t)MS);
  assert_true(told.chunk.error_ns == MS);
  assert_string_equal(told.chunk.member, "worker-1");
  tracing_free(told.tracing);
}

static void who_leaves_or_is_silent_is_not_waited_for(void **state) {
  struct told told;
  (void)state;
  begin(&told, 2);
  tracing_left(told.tracing, FAR);
  answer(&told, OWN, "ours", 0, "");
  settle(&told, 10, false);
  told.now.is_running = false; /* the run is over before the steps are made */
  assert_false(turn(&told, 12));
  assert_int_equal(told.stops[OWN], 1);
  assert_int_equal(told.stops[FAR], 0);
  told.now.now_ns += 9999 * MS;
  assert_false(turn(&told, 12));
  told.now.now_ns += MS;
  assert_true(turn(&told, 12));
  tracing_free(told.tracing);
  begin(&told, 2);
  tracing_free(told.tracing); /* who asked is gone: members stop */
  assert_int_equal(told.stops[OWN] + told.stops[FAR], 2);
}

static void who_is_slow_to_begin_is_waited_for(void **state) {
  struct told told;
  (void)state;
  begin(&told, 2);
  answer(&told, OWN, "ours", 0, "");
  told.now.now_ns += 9999 * MS;
  assert_false(turn(&told, 10));
  assert_int_equal(told.begins[OWN], 1);
  told.now.now_ns += MS;
  assert_false(turn(&told, 10));
  assert_int_equal(told.begins[OWN], 2);
  tracing_free(told.tracing);
}

static void answers_to_another_question_are_ignored(void **state) {
  Weir__Traced traced = WEIR__TRACED__INIT;
  struct told told;
  (void)state;
  begin(&told, 1);
  traced.number = 6;
  traced.boot = "ours";
  tracing_take(told.tracing, OWN, &traced, &told.now);
  assert_false(turn(&told, 10));
  assert_false(turn(&told, 20));
  assert_int_equal(told.stops[OWN], 0);
  traced.number = 7;
  tracing_take(told.tracing, 99, &traced, &told.now);
  tracing_left(told.tracing, 99);
  tracing_free(told.tracing);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(whole_steps_are_captured_once_all_have_begun),
      cmocka_unit_test(another_machines_clock_is_that_of_its_quickest_answer),
      cmocka_unit_test(who_leaves_or_is_silent_is_not_waited_for),
      cmocka_unit_test(who_is_slow_to_begin_is_waited_for),
      cmocka_unit_test(answers_to_another_question_are_ignored),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
