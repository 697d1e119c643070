/* The order in which the stages of a team compute, on a clock of its own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/agree/random.h"
#include "worker/train/executor/pipeline.h"
#include "worker/train/executor/team_times.h"

enum { STAGES_MAX = 5, DRAWS = 300, REPEATS = 3, STEP = 5 };

/* A team whose parts take as long as `lasts` says. */
struct bench {
  struct pipeline pipeline;
  struct team_times times;
  int n_stages, n_tasks, n_begun, n_ended, n_dropped;
  bool goes_back;
  int slot[STAGES_MAX];                        /* that the stage is at; -1 */
  uint64_t until[STAGES_MAX];                  /* when it will be done */
  uint64_t busy[STAGES_MAX];                   /* all together */
  int visits[STAGES_MAX], repeats[STAGES_MAX]; /* by slot: parts of its task that are done; executions */
  uint64_t now, key;
  uint64_t (*lasts)(const struct bench *bench, int stage, int slot);
};

static void bench_init(struct bench *bench, int n_stages, int n_tasks, bool goes_back) {
  *bench = (struct bench){.n_stages = n_stages, .n_tasks = n_tasks, .goes_back = goes_back};
  pipeline_init(&bench->pipeline, n_stages, 0, n_stages - 1);
  team_times_init(&bench->times, n_stages);
  for (int i = 0; i < n_stages; i++)
    bench->slot[i] = -1;
}

static void bench_fini(struct bench *bench) {
  pipeline_fini(&bench->pipeline);
  team_times_fini(&bench->times);
}

/* The stage and the part that the task's visits-th visit is at. */
static void check_order(const struct bench *bench, int stage, int s) {
  const struct pipeline_slot *slot = &bench->pipeline.slots[s];
  int n = bench->n_stages, visits = bench->visits[s];
  int expected = visits < n ? visits : 2 * (n - 1) - visits;
  assert_int_equal(stage, expected);
  assert_int_equal(slot->next, visits < n ? PIPELINE_FORWARD : PIPELINE_BACKWARD);
}

/* No two tasks are in one context of a stage, and none is where there is no such context. */
static void check_contexts(const struct bench *bench) {
  for (int stage = 0; stage < bench->n_stages; stage++) {
    bool is_used[STAGES_MAX] = {false};
    for (int s = 0; s < bench->n_stages; s++) {
      const struct pipeline_slot *slot = &bench->pipeline.slots[s];
      int context = slot->next == PIPELINE_FREE ? -1 : slot->contexts[stage];
      assert_in_range(context + 1, 0, pipeline_contexts(bench->n_stages, stage));
      assert_false(context >= 0 && is_used[context]);
      if (context >= 0)
        is_used[context] = true;
    }
  }
}

static void bench_start(struct bench *bench, int stage) {
  int s = pipeline_take(&bench->pipeline, stage);
  if (s < 0 && stage == 0 && bench->n_begun < bench->n_tasks && pipeline_has_room(&bench->pipeline)) {
    int begun = pipeline_begin(&bench->pipeline, bench->goes_back);
    bench->visits[begun] = bench->repeats[begun] = 0;
    bench->n_begun++;
    s = pipeline_take(&bench->pipeline, stage);
  }
  bench->slot[stage] = s;
  if (s < 0)
    return;
  check_order(bench, stage, s);
  team_times_set(&bench->times, stage, STAGE_AT_MICROBATCH, bench->now);
  bench->until[stage] = bench->now + bench->lasts(bench, stage, s);
  bench->busy[stage] += bench->until[stage] - bench->now;
}

static void bench_finish(struct bench *bench, int stage) {
  int s = bench->slot[stage];
  bench->slot[stage] = -1;
  team_times_set(&bench->times, stage, STAGE_WAITS, bench->now);
  bench->visits[s]++;
  if (!bench->goes_back && stage == bench->n_stages - 1 && ++bench->repeats[s] < REPEATS) {
    pipeline_repeat(&bench->pipeline, s);
    bench->visits[s] = 0;
  } else if (pipeline_finish(&bench->pipeline, s))
    team_times_add(&bench->times, (uint64_t)(bench->n_ended++ / STEP));
}

/* To the next part that is done. False: nobody is at anything. */
static bool bench_step(struct bench *bench) {
  uint64_t next = UINT64_MAX;
  for (int i = 0; i < bench->n_stages; i++)
    if (bench->slot[i] < 0)
      bench_start(bench, i);
  check_contexts(bench);
  for (int i = 0; i < bench->n_stages; i++)
    if (bench->slot[i] >= 0 && bench->until[i] < next)
      next = bench->until[i];
  if (next == UINT64_MAX)
    return false;
  bench->now = next;
  for (int i = 0; i < bench->n_stages; i++)
    if (bench->slot[i] >= 0 && bench->until[i] == next)
      bench_finish(bench, i);
  return true;
}

static uint64_t draw(struct bench *bench, uint64_t below) {
  bench->key++;
  return random_bits(bench->key, 0) % below;
}

/* Drops a task that nobody is at. */
static void bench_drop(struct bench *bench) {
  for (int s = 0; s < bench->n_stages; s++)
    if (bench->pipeline.slots[s].next != PIPELINE_FREE && !bench->pipeline.slots[s].is_busy) {
      pipeline_take_away(&bench->pipeline, s);
      pipeline_drop(&bench->pipeline, s);
      bench->n_dropped++;
      return;
    }
}

/* Forward and backward part alike; the highest stage does both at once. */
static uint64_t lasts_alike(const struct bench *bench, int stage, int slot) {
  (void)slot;
  return bench->goes_back && stage == bench->n_stages - 1 ? 2 : 1;
}

static uint64_t lasts_drawn(const struct bench *bench, int stage, int slot) {
  return 1 + random_bits(random_key(bench->key, (uint64_t)stage, 0, 0), (uint64_t)slot + bench->now) % 20;
}

/* With equal stages a step takes as long as if each of them waited for (n_stages - 1) tasks and no longer;
   and that is what the team's times say. */
static void the_bubble_is_no_larger_than_it_must_be(void **state) {
  (void)state;
  for (int stages = 1; stages <= STAGES_MAX; stages++)
    for (int tasks = 1; tasks <= 12; tasks++) {
      struct bench bench;
      bench_init(&bench, stages, tasks, true);
      bench.lasts = lasts_alike;
      while (bench_step(&bench))
        continue;
      assert_int_equal(bench.n_ended, tasks);
      assert_int_equal(bench.now, 2 * (tasks + stages - 1));
      for (int i = 0; i < stages; i++)
        assert_int_equal(bench.busy[i], 2 * tasks);
      assert_int_equal(bench.times.total_ns, bench.now);
      for (int i = 0; i < stages; i++)
        assert_int_equal(bench.times.stages[i].busy_ns, 2 * tasks);
      assert_int_equal(bench.times.microbatches, tasks);
      assert_int_equal(bench.times.steps, (tasks + STEP - 1) / STEP);
      bench_fini(&bench);
    }
}

static void tasks_end_whatever_their_parts_take_and_whichever_are_dropped(void **state) {
  (void)state;
  for (uint64_t seed = 0; seed < DRAWS; seed++) {
    struct bench bench;
    int stages = 1 + (int)(seed % STAGES_MAX), tasks = 1 + (int)(seed % 17);
    bench_init(&bench, stages, tasks, seed % 3 != 0);
    bench.lasts = lasts_drawn;
    bench.key = seed;
    while (bench_step(&bench))
      if (draw(&bench, 6) == 0)
        bench_drop(&bench);
    assert_int_equal(bench.n_begun, tasks);
    assert_int_equal(bench.n_ended + bench.n_dropped, tasks);
    bench_fini(&bench);
  }
}

static void a_stage_goes_back_before_it_goes_on(void **state) {
  struct pipeline pipeline;
  int first, second;
  (void)state;
  pipeline_init(&pipeline, 2, 0, 1);
  first = pipeline_begin(&pipeline, true);
  for (int stage = 0; stage < 2; stage++) {
    assert_int_equal(pipeline_take(&pipeline, stage), first);
    assert_false(pipeline_finish(&pipeline, first));
  }
  second = pipeline_begin(&pipeline, true);
  assert_int_equal(pipeline_take(&pipeline, 0), first);
  assert_int_equal(pipeline_take(&pipeline, 1), -1);
  assert_true(pipeline_finish(&pipeline, first));
  assert_int_equal(pipeline_take(&pipeline, 0), second);
  pipeline_fini(&pipeline);
}

/* Stages 1 and 2 of four: what comes from below goes up, and waits for what comes from above. */
static void a_task_waits_for_the_stages_that_other_workers_have(void **state) {
  struct pipeline pipeline;
  int first, second;
  (void)state;
  pipeline_init(&pipeline, 4, 1, 2);
  first = pipeline_begin(&pipeline, true);
  assert_int_equal(pipeline_take(&pipeline, 1), first);
  assert_false(pipeline_finish(&pipeline, first));
  assert_int_equal(pipeline_take(&pipeline, 2), first);
  assert_false(pipeline_finish(&pipeline, first));
  assert_int_equal(pipeline.slots[first].next, PIPELINE_AWAITS);
  second = pipeline_begin(&pipeline, true);
  assert_int_equal(pipeline_take(&pipeline, 1), second);
  assert_false(pipeline_finish(&pipeline, second));
  assert_int_equal(pipeline_take(&pipeline, 2), second);
  assert_int_not_equal(pipeline.slots[first].contexts[2], pipeline.slots[second].contexts[2]);
  assert_false(pipeline_finish(&pipeline, second));
  assert_int_equal(pipeline_take(&pipeline, 2), -1);
  pipeline_resume(&pipeline, first);
  assert_int_equal(pipeline_take(&pipeline, 2), first);
  assert_false(pipeline_finish(&pipeline, first));
  assert_int_equal(pipeline_take(&pipeline, 1), first);
  assert_true(pipeline_finish(&pipeline, first)); /* the stage below has the rest of it */
  assert_int_equal(pipeline.slots[first].next, PIPELINE_FREE);
  pipeline_fini(&pipeline);
}

static void an_evaluation_ends_here_when_its_last_execution_has_gone_up(void **state) {
  struct pipeline pipeline;
  int chunk;
  (void)state;
  pipeline_init(&pipeline, 4, 1, 2);
  chunk = pipeline_begin(&pipeline, false);
  for (int execution = 0; execution < 2; execution++) {
    assert_int_equal(pipeline_take(&pipeline, 1), chunk);
    assert_false(pipeline_finish(&pipeline, chunk));
    pipeline.is_held_up = true;
    assert_int_equal(pipeline_take(&pipeline, 2), -1);
    pipeline.is_held_up = false;
    assert_int_equal(pipeline_take(&pipeline, 2), chunk);
    if (execution > 0)
      continue;
    pipeline_repeat(&pipeline, chunk);
    assert_int_equal(pipeline_take(&pipeline, 1), -1); /* its input has yet to come */
    pipeline_resume(&pipeline, chunk);
  }
  assert_true(pipeline_finish(&pipeline, chunk));
  pipeline_fini(&pipeline);
}

static void what_does_not_go_back_has_its_executions_one_behind_another(void **state) {
  struct bench bench;
  (void)state;
  bench_init(&bench, 3, 3, false);
  bench.lasts = lasts_alike;
  while (bench_step(&bench))
    continue;
  assert_int_equal(bench.n_ended, 3);
  for (int i = 0; i < 3; i++)
    assert_int_equal(bench.busy[i], 3 * REPEATS);
  assert_int_equal(bench.now, 3 * REPEATS + 2); /* three tasks fill three stages */
  bench_fini(&bench);
}

/* Stage 0 computes from 10 to 30, stage 1 a chunk from 15 to 25; then both wait; then stage 1 has a chunk
 * alone. */
static void times_are_counted_while_a_stage_is_at_a_microbatch(void **state) {
  struct team_times times;
  (void)state;
  team_times_init(&times, 2);
  team_times_set(&times, 0, STAGE_AT_MICROBATCH, 10);
  team_times_set(&times, 1, STAGE_AT_CHUNK, 15);
  team_times_count(&times, 20);
  assert_int_equal(times.total_ns, 10);
  assert_int_equal(times.stages[1].busy_ns, 5);
  team_times_set(&times, 1, STAGE_WAITS, 25);
  team_times_set(&times, 0, STAGE_WAITS, 30);
  team_times_set(&times, 1, STAGE_AT_CHUNK, 40);
  team_times_set(&times, 1, STAGE_WAITS, 50);
  team_times_count(&times, 60);
  assert_int_equal(times.total_ns, 20);
  assert_int_equal(times.stages[0].busy_ns, 20);
  assert_int_equal(times.stages[1].busy_ns, 10);
  team_times_fini(&times);
}

/* Of which other workers have the other stages: while its microbatch is under way the stage may wait for
 * them. */
static void times_are_counted_while_a_microbatch_is_under_way(void **state) {
  struct team_times times;
  (void)state;
  team_times_init(&times, 1);
  team_times_hold(&times, true, 10);
  team_times_set(&times, 0, STAGE_AT_MICROBATCH, 10);
  team_times_set(&times, 0, STAGE_WAITS, 15);
  team_times_count(&times, 20);
  assert_true(times.total_ns == 10 && times.stages[0].busy_ns == 5);
  team_times_hold(&times, false, 30);
  team_times_count(&times, 50);
  assert_true(times.total_ns == 20 && times.stages[0].busy_ns == 5);
  team_times_fini(&times);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_bubble_is_no_larger_than_it_must_be),
      cmocka_unit_test(tasks_end_whatever_their_parts_take_and_whichever_are_dropped),
      cmocka_unit_test(a_stage_goes_back_before_it_goes_on),
      cmocka_unit_test(times_are_counted_while_a_stage_is_at_a_microbatch),
      cmocka_unit_test(a_task_waits_for_the_stages_that_other_workers_have),
      cmocka_unit_test(an_evaluation_ends_here_when_its_last_execution_has_gone_up),
      cmocka_unit_test(times_are_counted_while_a_microbatch_is_under_way),
      cmocka_unit_test(what_does_not_go_back_has_its_executions_one_behind_another),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
