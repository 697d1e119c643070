/* Reports reach the coordinator in order and once a membership, and again when it asks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "common/base/err.h"
#include "common/base/memory.h"
#include "server/parameters/run/report_log.h"

enum { TOLD_MAX = 400000 };

struct fixture {
  struct report_log log;
  uint64_t membership; /* that is answered */
  int room;            /* messages that are taken before it is BUSY */
  struct {
    Weir__MemberMessage__BodyCase body;
    uint64_t step;
    double loss;
  } * told;
  int n_told;
};

static int take(void *user, uint64_t membership, const Weir__MemberMessage *message) {
  struct fixture *f = user;
  if (membership != f->membership)
    return ERR_CANCELLED;
  if (f->room == 0)
    return ERR_BUSY;
  f->room--;
  assert_true(f->n_told < TOLD_MAX);
  f->told[f->n_told].body = message->body_case;
  switch (message->body_case) {
  case WEIR__MEMBER_MESSAGE__BODY_STEP:
    assert_string_equal(message->step->run, "unit-1");
    assert_int_equal(message->step->incarnation, 3);
    assert_true(message->step->lr == 0.5 && message->step->samples == 12 && message->step->seconds == 0.25);
    f->told[f->n_told].step = message->step->step;
    f->told[f->n_told].loss = message->step->loss;
    break;
  case WEIR__MEMBER_MESSAGE__BODY_EVAL:
    assert_string_equal(message->eval->run, "unit-1");
    assert_true(message->eval->accuracy == 0.75 && message->eval->samples == 200);
    f->told[f->n_told].step = message->eval->step;
    f->told[f->n_told].loss = message->eval->loss;
    break;
  case WEIR__MEMBER_MESSAGE__BODY_DOUBTED:
    assert_string_equal(message->doubted->run, "unit-1");
    assert_int_equal(message->doubted->incarnation, 3);
    assert_int_equal(message->doubted->parts[0]->worker, 7);
    f->told[f->n_told].step = message->doubted->step;
    break;
  case WEIR__MEMBER_MESSAGE__BODY_JUDGED:
    assert_string_equal(message->judged->run, "unit-1");
    assert_int_equal(message->judged->incarnation, 3);
    assert_int_equal(message->judged->changed[0]->worker, 7);
    f->told[f->n_told].step = message->judged->step;
    break;
  case WEIR__MEMBER_MESSAGE__BODY_LATE:
    f->told[f->n_told].step = message->late->step;
    break;
  case WEIR__MEMBER_MESSAGE__BODY_HELD:
    assert_int_equal(message->held->incarnation, 3);
    f->told[f->n_told].step = message->held->step;
    break;
  default:
    assert_int_equal(message->body_case, WEIR__MEMBER_MESSAGE__BODY_COMPLETE);
    assert_int_equal(message->complete->incarnation, 3);
  }
  f->n_told++;
  return 0;
}

static void fixture_init(struct fixture *f) {
  *f = (struct fixture){.membership = 1, .room = TOLD_MAX};
  f->told = mem_new(TOLD_MAX * sizeof *f->told);
  report_log_init(&f->log, "unit-1", 3, take, f);
}

static void fixture_fini(struct fixture *f) {
  report_log_fini(&f->log);
  free(f->told);
}

static void add_step(struct fixture *f, uint64_t step) {
  Weir__StepReport report = WEIR__STEP_REPORT__INIT;
  report.step = step;
  report.loss = (double)step / 8;
  report.lr = 0.5;
  report.samples = 12;
  report.seconds = 0.25;
  report_log_add_step(&f->log, &report);
}

static void add_eval(struct fixture *f, uint64_t version) {
  Weir__EvalReport report = WEIR__EVAL_REPORT__INIT;
  report.step = version;
  report.loss = (double)version / 4;
  report.accuracy = 0.75;
  report.samples = 200;
  report_log_add_eval(&f->log, &report);
}

/* Of n parts, that worker 7 sent. */
static void add_doubted(struct fixture *f, uint64_t step, size_t n) {
  Weir__Doubted doubted = WEIR__DOUBTED__INIT;
  Weir__PushedPart part = WEIR__PUSHED_PART__INIT, **parts = mem_new(n * sizeof *parts);
  part.worker = 7;
  part.view = UINT64_MAX;
  for (size_t i = 0; i < n; i++)
    parts[i] = &part;
  doubted.step = step;
  doubted.n_parts = n;
  doubted.parts = parts;
  report_log_add_doubted(&f->log, &doubted);
  free(parts);
}

static void add_judged(struct fixture *f, uint64_t step) {
  Weir__Judged judged = WEIR__JUDGED__INIT;
  Weir__PushedPart part = WEIR__PUSHED_PART__INIT, *parts[] = {&part};
  uint32_t computed_by[] = {9, 0};
  part.worker = 7;
  judged.step = step;
  judged.n_changed = 1;
  judged.changed = parts;
  judged.n_computed_by = 2;
  judged.computed_by = computed_by;
  report_log_add_judged(&f->log, &judged);
}

static void tell_late(struct fixture *f, uint64_t step) {
  Weir__MemberMessage message = WEIR__MEMBER_MESSAGE__INIT;
  Weir__Late late = WEIR__LATE__INIT;
  late.step = step;
  message.body_case = WEIR__MEMBER_MESSAGE__BODY_LATE;
  message.late = &late;
  report_log_tell(&f->log, &message);
}

static void assert_told_of(const struct fixture *f, int i, Weir__MemberMessage__BodyCase body,
                           uint64_t step) {
  assert_true(i < f->n_told);
  assert_int_equal(f->told[i].body, body);
  assert_int_equal(f->told[i].step, step);
}

static void assert_told(const struct fixture *f, int i, Weir__MemberMessage__BodyCase body, uint64_t step) {
  assert_told_of(f, i, body, step);
  assert_true(f->told[i].loss == (double)step / (body == WEIR__MEMBER_MESSAGE__BODY_STEP ? 8 : 4));
}

static void reports_are_told_as_they_come(void **state) {
  struct fixture f;
  (void)state;
  fixture_init(&f);
  add_step(&f, 0);
  assert_int_equal(f.n_told, 0);
  report_log_open(&f.log, 1, 0);
  assert_int_equal(f.n_told, 0); /* until it is resumed */
  assert_false(report_log_resume(&f.log));
  assert_int_equal(f.n_told, 1);
  add_step(&f, 1);
  add_eval(&f, 2);
  report_log_complete(&f.log);
  assert_int_equal(f.n_told, 4);
  assert_told(&f, 0, WEIR__MEMBER_MESSAGE__BODY_STEP, 0);
  assert_told(&f, 1, WEIR__MEMBER_MESSAGE__BODY_STEP, 1);
  assert_told(&f, 2, WEIR__MEMBER_MESSAGE__BODY_EVAL, 2);
  assert_int_equal(f.told[3].body, WEIR__MEMBER_MESSAGE__BODY_COMPLETE);
  assert_false(report_log_resume(&f.log));
  assert_int_equal(f.n_told, 4);
  fixture_fini(&f);
}

static void what_is_missing_is_told_again_and_nothing_else(void **state) {
  struct fixture f;
  (void)state;
  fixture_init(&f);
  report_log_open(&f.log, 1, 0);
  for (uint64_t step = 0; step < 10; step++) {
    if (step % 4 == 0 && step)
      add_eval(&f, step);
    add_step(&f, step);
    if (step == 5)
      f.membership = 2; /* steps 6.. go into the log alone */
  }
  assert_int_equal(f.n_told, 7);
  report_log_complete(&f.log);
  assert_int_equal(f.n_told, 7);
  f.n_told = 0;
  report_log_open(&f.log, 2, 8); /* it knows all before version 8, but not its evaluation */
  assert_false(report_log_resume(&f.log));
  assert_int_equal(f.n_told, 4);
  assert_told(&f, 0, WEIR__MEMBER_MESSAGE__BODY_EVAL, 8);
  assert_told(&f, 1, WEIR__MEMBER_MESSAGE__BODY_STEP, 8);
  assert_told(&f, 2, WEIR__MEMBER_MESSAGE__BODY_STEP, 9);
  assert_int_equal(f.told[3].body, WEIR__MEMBER_MESSAGE__BODY_COMPLETE);
  f.n_told = 0;
  report_log_open(&f.log, 2, 10); /* up to date */
  assert_false(report_log_resume(&f.log));
  assert_int_equal(f.n_told, 1);
  assert_int_equal(f.told[0].body, WEIR__MEMBER_MESSAGE__BODY_COMPLETE);
  fixture_fini(&f);
}

static void reports_wait_in_order_while_there_is_no_room(void **state) {
  struct fixture f;
  (void)state;
  fixture_init(&f);
  report_log_open(&f.log, 1, 0);
  f.room = 2;
  for (uint64_t step = 0; step < 5; step++)
    add_step(&f, step);
  report_log_complete(&f.log);
  assert_int_equal(f.n_told, 2);
  assert_true(report_log_resume(&f.log));
  f.room = 1;
  assert_true(report_log_resume(&f.log));
  f.room = 100;
  assert_false(report_log_resume(&f.log));
  assert_int_equal(f.n_told, 6);
  for (int i = 0; i < 5; i++)
    assert_told(&f, i, WEIR__MEMBER_MESSAGE__BODY_STEP, (uint64_t)i);
  assert_int_equal(f.told[5].body, WEIR__MEMBER_MESSAGE__BODY_COMPLETE);
  fixture_fini(&f);
}

static void a_hold_is_told_behind_the_steps_before_it_and_again_when_asked(void **state) {
  struct fixture f;
  (void)state;
  fixture_init(&f);
  report_log_open(&f.log, 1, 0);
  f.room = 1;
  add_step(&f, 0);
  add_step(&f, 1);
  report_log_held(&f.log, 2);
  report_log_held(&f.log, 2);
  assert_int_equal(f.n_told, 1);
  f.room = TOLD_MAX;
  assert_false(report_log_resume(&f.log));
  assert_int_equal(f.n_told, 3);
  assert_told_of(&f, 2, WEIR__MEMBER_MESSAGE__BODY_HELD, 2);
  add_step(&f, 2); /* it was raised, */
  report_log_held(&f.log, 3);
  report_log_held(&f.log, 2); /* and one that is over is no news */
  assert_int_equal(f.n_told, 5);
  assert_told_of(&f, 4, WEIR__MEMBER_MESSAGE__BODY_HELD, 3);
  f.membership = 2;
  report_log_open(&f.log, 2, 3);
  assert_false(report_log_resume(&f.log));
  assert_int_equal(f.n_told, 6);
  assert_told_of(&f, 5, WEIR__MEMBER_MESSAGE__BODY_HELD, 3);
  fixture_fini(&f);
}

static void the_newest_65536_steps_are_kept_with_their_evaluations(void **state) {
  enum { ALL = 150000, EVERY = 3 };
  struct fixture f;
  int n = 0;
  (void)state;
  fixture_init(&f);
  f.membership = 0; /* nobody listens */
  for (uint64_t step = 0; step < ALL; step++) {
    if (step % EVERY == 0 && step)
      add_eval(&f, step);
    add_step(&f, step);
  }
  f.membership = 1;
  report_log_open(&f.log, 1, 0);
  assert_false(report_log_resume(&f.log));
  for (uint64_t step = ALL - REPORT_LOG_STEPS_MAX; step < ALL; step++) {
    if (step % EVERY == 0)
      assert_told(&f, n++, WEIR__MEMBER_MESSAGE__BODY_EVAL, step);
    assert_told(&f, n++, WEIR__MEMBER_MESSAGE__BODY_STEP, step);
  }
  assert_int_equal(f.n_told, n);
  fixture_fini(&f);
}

static void what_is_lost_while_there_is_no_room_is_the_oldest(void **state) {
  struct fixture f;
  (void)state;
  fixture_init(&f);
  report_log_open(&f.log, 1, 0);
  f.room = 1;
  for (uint64_t step = 0; step < 70000; step++)
    add_step(&f, step);
  f.room = TOLD_MAX;
  assert_false(report_log_resume(&f.log));
  assert_int_equal(f.n_told, 1 + REPORT_LOG_STEPS_MAX);
  assert_told(&f, 1, WEIR__MEMBER_MESSAGE__BODY_STEP, 70000 - REPORT_LOG_STEPS_MAX);
  assert_told(&f, REPORT_LOG_STEPS_MAX, WEIR__MEMBER_MESSAGE__BODY_STEP, 69999);
  fixture_fini(&f);
}

static void doubts_are_told_in_their_place(void **state) {
  struct fixture f;
  (void)state;
  fixture_init(&f);
  report_log_open(&f.log, 1, 0);
  add_step(&f, 0);
  add_doubted(&f, 1, 2);
  add_judged(&f, 1);
  add_step(&f, 1);
  f.n_told = 0;
  report_log_open(&f.log, 1, 1); /* a coordinator that saw no more than step 0 */
  assert_false(report_log_resume(&f.log));
  assert_int_equal(f.n_told, 3);
  assert_told_of(&f, 0, WEIR__MEMBER_MESSAGE__BODY_DOUBTED, 1);
  assert_told_of(&f, 1, WEIR__MEMBER_MESSAGE__BODY_JUDGED, 1);
  assert_told(&f, 2, WEIR__MEMBER_MESSAGE__BODY_STEP, 1);
  fixture_fini(&f);
}

/* It knows the steps that follow from another server. */
static void a_doubt_that_nobody_was_told_of_is_told_however_far_the_coordinator_is(void **state) {
  struct fixture f;
  (void)state;
  fixture_init(&f);
  report_log_open(&f.log, 1, 0);
  add_doubted(&f, 3, 2);
  f.membership = 2;
  add_step(&f, 3);
  add_judged(&f, 3);
  add_step(&f, 4);
  add_doubted(&f, 5, 2);
  add_step(&f, 5);
  add_step(&f, 6);
  f.n_told = 0;
  f.room = 1;
  report_log_open(&f.log, 2, 6);
  assert_true(report_log_resume(&f.log));
  f.room = TOLD_MAX;
  assert_false(report_log_resume(&f.log));
  assert_int_equal(f.n_told, 3);
  assert_told_of(&f, 0, WEIR__MEMBER_MESSAGE__BODY_JUDGED, 3);
  assert_told_of(&f, 1, WEIR__MEMBER_MESSAGE__BODY_DOUBTED, 5);
  assert_told(&f, 2, WEIR__MEMBER_MESSAGE__BODY_STEP, 6);
  f.n_told = 0;
  report_log_open(&f.log, 2, 6); /* once is enough: whom it named may have been readmitted */
  assert_false(report_log_resume(&f.log));
  assert_int_equal(f.n_told, 1);
  fixture_fini(&f);
}

/* On a server that reports no steps. */
static void doubts_are_kept_within_4_mebibytes(void **state) {
  enum { PARTS = 4096, TIMES = 300 };
  struct fixture f;
  (void)state;
  fixture_init(&f);
  for (uint64_t step = 0; step < TIMES; step++)
    add_doubted(&f, step, PARTS);
  assert_in_range(f.log.doubt_bytes, REPORT_LOG_DOUBT_BYTES_MAX / 2, REPORT_LOG_DOUBT_BYTES_MAX);
  report_log_open(&f.log, 1, 0);
  assert_false(report_log_resume(&f.log));
  assert_in_range(f.n_told, 10, TIMES - 1);
  assert_told_of(&f, f.n_told - 1, WEIR__MEMBER_MESSAGE__BODY_DOUBTED, TIMES - 1);
  fixture_fini(&f);
}

static void what_is_true_only_now_is_told_now_or_never(void **state) {
  struct fixture f;
  (void)state;
  fixture_init(&f);
  tell_late(&f, 1);
  report_log_open(&f.log, 1, 0);
  tell_late(&f, 2);
  f.room = 0;
  tell_late(&f, 3);
  f.room = 10;
  assert_false(report_log_resume(&f.log));
  assert_int_equal(f.n_told, 1);
  assert_told_of(&f, 0, WEIR__MEMBER_MESSAGE__BODY_LATE, 2);
  fixture_fini(&f);
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(reports_are_told_as_they_come),
      cmocka_unit_test(what_is_missing_is_told_again_and_nothing_else),
      cmocka_unit_test(reports_wait_in_order_while_there_is_no_room),
      cmocka_unit_test(a_hold_is_told_behind_the_steps_before_it_and_again_when_asked),
      cmocka_unit_test(the_newest_65536_steps_are_kept_with_their_evaluations),
      cmocka_unit_test(what_is_lost_while_there_is_no_room_is_the_oldest),
      cmocka_unit_test(doubts_are_told_in_their_place),
      cmocka_unit_test(a_doubt_that_nobody_was_told_of_is_told_however_far_the_coordinator_is),
      cmocka_unit_test(doubts_are_kept_within_4_mebibytes),
      cmocka_unit_test(what_is_true_only_now_is_told_now_or_never),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
