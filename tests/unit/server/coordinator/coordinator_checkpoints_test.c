/* When the coordinator has checkpoints made, and which it keeps. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/log.h"
#include "server/coordinator/messages/info.h"
#include "tests/support/coordinator/core_run.h"

static void the_next_boundary_is_ordered_ahead(void **state) {
  struct core_fixture *f = *state;
  core_run_start(f, 3);
  assert_int_equal(f->told[S1].write_step, 4);
  assert_int_equal(f->told[S2].write_step, 4);
  reports_steps(f, S1, RUN, 0, 5);
  member_writes(f, S1, RUN);
  assert_int_equal(f->commits, 0);
  member_writes(f, S2, RUN);
  assert_int_equal(f->commits, 1);
  assert_int_equal(f->commit_step, 4);
  assert_int_equal(f->told[S1].writes, 1); /* one at a time */
  store_commits(f, RUN, NULL);
  assert_int_equal(core_run_newest(f), 4);
  assert_int_equal(info_of_run(f, RUN).checkpoints, 1);
  assert_int_equal(f->told[S1].write_step, 8);
  reports_steps(f, S1, RUN, 5, 9);
  core_run_checkpoint(f);
  assert_int_equal(f->told[S1].writes, 2); /* the last one comes by itself */
}

static void blocks_may_come_in_several_messages(void **state) {
  struct core_fixture *f = *state;
  bool one[BLOCKS] = {false};
  core_run_start(f, 3);
  member_writes(f, S2, RUN);
  for (int i = 0; i < BLOCKS; i++) {
    if (!f->told[S1].owns[i])
      continue;
    one[i] = true;
    writes_blocks(f, S1, RUN, one, false);
    one[i] = false;
  }
  assert_int_equal(f->commits, 0);
  writes_blocks(f, S1, RUN, one, true); /* nothing more */
  assert_int_equal(f->commits, 1);
}

static void what_came_too_late_is_ordered_further_ahead(void **state) {
  struct core_fixture *f = *state;
  core_run_start(f, 3);
  reports_steps(f, S1, RUN, 0, 3);
  cannot_write(f, S2, RUN, "version 4 is gone", true);
  assert_int_equal(f->told[S1].write_step, 8); /* at least 3 + 4 */
  assert_string_equal(info_of_run(f, RUN).store_message, "");
}

static void old_checkpoints_are_dropped(void **state) {
  struct core_fixture *f = *state;
  core_run_start(f, 1);
  reports_steps(f, S1, RUN, 0, 4);
  core_run_checkpoint(f);
  reports_steps(f, S1, RUN, 4, 8);
  core_run_checkpoint(f);
  assert_int_equal(f->n_dropped, 1);
  assert_int_equal(f->dropped[0], 4);
  assert_int_equal(info_of_run(f, RUN).checkpoints, 1);
}

/* Three versions are evaluated, and say so after they were committed; the first is the best. */
static void evaluate_three(struct core_fixture *f, char *keep_best, const double values[3]) {
  static char *names[] = {"perplexity"};
  Weir__RunLoaded loaded = WEIR__RUN_LOADED__INIT;
  Weir__EvalSpec eval = WEIR__EVAL_SPEC__INIT;
  Weir__MetricValue metric = WEIR__METRIC_VALUE__INIT, other = WEIR__METRIC_VALUE__INIT;
  weir__checkpoint_spec__init(&f->every);
  f->every.has_every_steps = f->every.has_keep = true;
  f->every.every_steps = 2;
  f->every.keep = 1;
  f->every.keep_best = keep_best;
  f->checkpoint = &f->every;
  eval.metrics = names;
  eval.n_metrics = 1;
  f->eval = &eval;
  server_joins(f, S1);
  worker_joins(f, W1, 1);
  user_submits(f, RUN, 1, 0);
  loaded.run = (char *)RUN;
  loaded.train_samples = 2 * BATCH; /* an epoch, and so an evaluation, each two steps */
  loaded.eval_samples = 100;
  member_says(f, W1, WEIR__MEMBER_MESSAGE__BODY_LOADED, &loaded);
  server_loads(f, S1, RUN);
  metric.name = "perplexity";
  other.name = "not asked for";
  for (int i = 0; i < 3; i++) {
    Weir__EvalReport report = WEIR__EVAL_REPORT__INIT;
    report.run = (char *)RUN;
    report.step = 2 + 2 * (uint64_t)i;
    reports_steps(f, S1, RUN, report.step - 2, report.step);
    member_writes(f, S1, RUN);
    store_commits(f, RUN, NULL);
    report.accuracy = metric.value = values[i];
    report.metrics = (Weir__MetricValue *[]){&other, &metric, &metric};
    report.n_metrics = 3;
    member_says(f, S1, WEIR__MEMBER_MESSAGE__BODY_EVAL, &report);
  }
}

static void the_best_evaluated_checkpoint_is_kept(void **state) {
  struct core_fixture *f = *state;
  struct arena arena;
  Weir__ListCheckpointsReply reply;
  evaluate_three(f, "accuracy", (const double[]){0.9, 0.4, 0.5});
  arena_init(&arena);
  coordinator_list_checkpoints(f->coordinator, RUN, &arena, &reply);
  assert_int_equal(reply.n_checkpoints, 2);
  assert_int_equal(reply.checkpoints[0]->step, 2);
  assert_true(reply.checkpoints[0]->accuracy == 0.9);
  assert_int_equal(reply.checkpoints[1]->step, 6);
  assert_true(reply.checkpoints[1]->accuracy == 0.5);
  arena_fini(&arena);
}

static void the_best_by_a_named_metric_may_be_the_lowest(void **state) {
  struct core_fixture *f = *state;
  struct arena arena;
  Weir__ListCheckpointsReply reply;
  evaluate_three(f, "perplexity", (const double[]){1.5, 4, 2});
  arena_init(&arena);
  coordinator_list_checkpoints(f->coordinator, RUN, &arena, &reply);
  assert_int_equal(reply.n_checkpoints, 2);
  for (int i = 0; i < 2; i++) {
    assert_int_equal(reply.checkpoints[i]->step, i == 0 ? 2 : 6);
    assert_int_equal(reply.checkpoints[i]->n_metrics, 1);
    assert_string_equal(reply.checkpoints[i]->metrics[0]->name, "perplexity");
    assert_true(reply.checkpoints[i]->metrics[0]->value == (i == 0 ? 1.5 : 2));
  }
  assert_int_equal(info_of_run(f, RUN).n_metrics, 1);
  arena_fini(&arena);
}

static void a_checkpoint_is_due_by_time(void **state) {
  struct core_fixture *f = *state;
  Weir__CheckpointSpec every_2_s = WEIR__CHECKPOINT_SPEC__INIT;
  every_2_s.has_every_seconds = true;
  every_2_s.every_seconds = 2;
  f->checkpoint = &every_2_s;
  server_joins(f, S1);
  worker_joins(f, W1, 1);
  user_submits(f, RUN, 1, 0);
  worker_loads(f, W1, RUN);
  server_loads(f, S1, RUN);
  reports_steps(f, S1, RUN, 0, 3);
  assert_int_equal(f->told[S1].writes, 0);
  member_beats(f, S1), member_beats(f, W1);
  time_passes(f, 2000);
  assert_int_equal(f->told[S1].write_step, 5);
  assert_int_equal(f->told[S1].writes, 1);
  member_writes(f, S1, RUN);
  store_commits(f, RUN, NULL);
  assert_int_equal(f->told[S1].writes, 1);
}

static void training_does_not_wait_for_a_store_in_trouble(void **state) {
  struct core_fixture *f = *state;
  struct coordinator_event well = {.kind = EVENT_STORE, .store_message = ""};
  struct coordinator_event ill = {.kind = EVENT_STORE, .store_message = "redis://store: connection refused"};
  core_run_start(f, 3);
  core_step(f, &ill);
  assert_string_equal(info_of_run(f, RUN).store_message, "redis://store: connection refused");
  reports_steps(f, S1, RUN, 0, 4);
  member_writes(f, S1, RUN);
  cannot_write(f, S2, RUN, "redis://store: connection refused", false);
  assert_string_equal(info_of_run(f, RUN).message, "");
  assert_non_null(strstr(info_of_run(f, RUN).store_message, "the checkpoint of step 4 failed: server-2"));
  assert_int_equal(f->told[S1].writes, 1);
  reports_steps(f, S1, RUN, 4, 6);
  assert_int_equal(info_of_run(f, RUN).step, 6);
  assert_int_equal(f->told[S1].writes, 1); /* a pause first */
  core_step(f, &well);
  assert_int_equal(f->told[S1].writes, 2);
  assert_int_equal(f->told[S1].write_step, 8);
  core_run_checkpoint(f);
  assert_string_equal(info_of_run(f, RUN).store_message, "");
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, core_setup, core_teardown)
  const struct CMUnitTest tests[] = {
      TEST(the_next_boundary_is_ordered_ahead),
      TEST(blocks_may_come_in_several_messages),
      TEST(what_came_too_late_is_ordered_further_ahead),
      TEST(old_checkpoints_are_dropped),
      TEST(the_best_evaluated_checkpoint_is_kept),
      TEST(the_best_by_a_named_metric_may_be_the_lowest),
      TEST(a_checkpoint_is_due_by_time),
      TEST(training_does_not_wait_for_a_store_in_trouble),
  };
#undef TEST
  log_set_level(LOG_ERROR + 1); /* damaged records are logged as errors */
  return cmocka_run_group_tests(tests, NULL, NULL);
}
