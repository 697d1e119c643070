/* Whose job is next, alone and on a shard's thread. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <semaphore.h>
#include <string.h>

#include "common/agree/float_setting.h"
#include "common/base/err.h"
#include "server/parameters/run/shard.h"

enum { JOBS = 4000, QUEUES = 3, BOUND = 4096 };

/* Jobs of several runs at one shard, each of a run taking it so long. */
struct fixture {
  struct fair_queue fair;
  struct job_queue queues[QUEUES];
  uint64_t ns[QUEUES];
  struct job jobs[QUEUES][JOBS];
  int added[QUEUES], taken[QUEUES];
};

static struct fixture f;

static void fixture_init(double weight_0, uint64_t ns_0, uint64_t ns_1) {
  memset(&f, 0, sizeof f);
  fair_queue_init(&f.fair);
  for (int q = 0; q < QUEUES; q++) {
    job_queue_init(&f.queues[q], NULL, q == 0 ? weight_0 : 1);
    f.ns[q] = q == 0 ? ns_0 : ns_1;
  }
}

static void add(int q, int n) {
  for (int i = 0; i < n; i++)
    fair_queue_add(&f.fair, &f.queues[q], &f.jobs[q][f.added[q]++]);
}

/* The queue whose job is next; the jobs of a queue come in their order. -1: there is none. */
static int take(void) {
  struct job *job = fair_queue_take(&f.fair);
  for (int q = 0; q < QUEUES; q++)
    if (job >= f.jobs[q] && job < f.jobs[q] + JOBS) {
      assert_ptr_equal(job, &f.jobs[q][f.taken[q]++]);
      fair_queue_charge(&f.fair, f.ns[q]);
      return q;
    }
  assert_null(job);
  return -1;
}

static void jobs_of_one_run_keep_their_order(void **state) {
  (void)state;
  fixture_init(1, 1000, 1000);
  assert_int_equal(take(), -1);
  add(0, 5);
  for (int i = 0; i < 3; i++)
    assert_int_equal(take(), 0);
  add(0, 2);
  for (int i = 0; i < 4; i++)
    assert_int_equal(take(), 0);
  assert_int_equal(take(), -1);
}

/* However many jobs it has queued before. */
static void a_burst_holds_up_another_run_by_one_job(void **state) {
  (void)state;
  fixture_init(1, 1000, 10);
  add(0, 2000);
  assert_int_equal(take(), 0);
  for (int round = 0; round < 100; round++) {
    add(1, 1);
    assert_int_equal(take(), 1);
    assert_int_equal(take(), 0);
  }
}

static void busy_runs_share_time_not_jobs(void **state) {
  (void)state;
  fixture_init(1, 900, 100);
  add(0, 1000);
  add(1, 4000);
  for (int i = 0; i < 2000; i++)
    take();
  assert_in_range(f.taken[0], 199, 201);
  assert_in_range(f.queues[0].served_ns, f.queues[1].served_ns - 1000, f.queues[1].served_ns + 1000);
  assert_int_equal(f.queues[1].served_ns, 100 * f.taken[1]);
}

static void a_weight_is_a_share(void **state) {
  (void)state;
  fixture_init(3, 100, 100);
  add(0, 4000);
  add(1, 4000);
  for (int i = 0; i < 2000; i++)
    take();
  assert_in_range(f.taken[0], 1499, 1501);
}

/* What it did not use while it had nothing to do, others do not owe it. */
static void an_idle_run_saves_nothing_up(void **state) {
  (void)state;
  fixture_init(1, 1000, 1000);
  add(0, 3000);
  for (int i = 0; i < 2000; i++)
    assert_int_equal(take(), 0);
  add(1, 1000);
  for (int i = 0; i < 1000; i++)
    take();
  assert_in_range(f.taken[1], 499, 501);
}

/* A queue that is emptied by each of its jobs is not new each time. */
static void a_long_job_is_paid_for_by_a_run_that_has_one_at_a_time(void **state) {
  int between = 0;
  (void)state;
  fixture_init(1, 1000, 50000);
  add(0, 200);
  add(1, 1);
  assert_int_equal(take(), 0);
  assert_int_equal(take(), 1);
  add(1, 1);
  while (take() == 0)
    between++;
  assert_in_range(between, 48, 51);
}

static void three_runs_have_a_third_each(void **state) {
  (void)state;
  fixture_init(1, 1000, 1000);
  for (int q = 0; q < QUEUES; q++)
    add(q, 1000);
  for (int i = 0; i < 300; i++)
    take();
  for (int q = 0; q < QUEUES; q++)
    assert_int_equal(f.taken[q], 100);
}

/* Its last job may free the run, and the queue with it. */
static void a_queue_may_go_while_its_last_job_runs(void **state) {
  (void)state;
  fixture_init(1, 1000, 1000);
  add(0, 1);
  add(1, 1);
  assert_ptr_equal(fair_queue_take(&f.fair), &f.jobs[0][0]);
  fair_queue_remove(&f.fair, &f.queues[0]);
  fair_queue_charge(&f.fair, 1000);
  assert_int_equal(f.queues[0].served_ns, 0);
  assert_int_equal(take(), 1);
}

/* A job that notes when it ran. */
struct noting {
  struct job job;
  int *n_ran, at; /* at: how many had run before */
};

static void note(struct job *job) {
  struct noting *noting = (struct noting *)job;
  noting->at = (*noting->n_ran)++;
}

struct gate {
  struct job job;
  sem_t reached, opened;
};

static void wait_at_gate(struct job *job) {
  struct gate *gate = (struct gate *)job;
  sem_post(&gate->reached);
  while (sem_wait(&gate->opened))
    continue;
}

/* A shard that stands still in a job of the first of two queues. */
struct stand {
  struct shard_budgets budgets;
  struct shard *shard;
  struct job_queue queues[2];
  struct gate gate;
  int n_ran;
};

static void stand_init(struct stand *stand) {
  *stand = (struct stand){.gate = {.job = {.run = wait_at_gate}}};
  sem_init(&stand->gate.reached, 0, 0);
  sem_init(&stand->gate.opened, 0, 0);
  stand->shard = shard_new(&stand->budgets);
  for (int q = 0; q < 2; q++)
    shard_open_queue(stand->shard, &stand->queues[q], 1);
  shard_post(&stand->queues[0], &stand->gate.job);
  while (sem_wait(&stand->gate.reached))
    continue;
}

static void stand_fini(struct stand *stand) {
  shard_settle(stand->shard);
  for (int q = 0; q < 2; q++)
    shard_close_queue(&stand->queues[q]);
  shard_free(stand->shard);
  sem_destroy(&stand->gate.reached);
  sem_destroy(&stand->gate.opened);
}

static void a_shard_serves_another_run_in_the_midst_of_a_burst(void **state) {
  static struct noting burst[BOUND], quiet;
  struct stand stand;
  (void)state;
  stand_init(&stand);
  for (int i = 0; i < BOUND; i++) {
    burst[i] = (struct noting){.job = {.run = note}, .n_ran = &stand.n_ran};
    shard_post(&stand.queues[0], &burst[i].job);
  }
  quiet = (struct noting){.job = {.run = note}, .n_ran = &stand.n_ran};
  shard_post(&stand.queues[1], &quiet.job);
  sem_post(&stand.gate.opened);
  shard_settle(stand.shard);
  assert_int_equal(stand.n_ran, BOUND + 1);
  assert_int_equal(quiet.at, 0);
  for (int i = 0; i < BOUND; i++)
    assert_int_equal(burst[i].at, i + 1);
  assert_true(shard_served_ns(&stand.queues[0]) > 0);
  stand_fini(&stand);
}

static void a_run_that_fills_its_queue_leaves_room_for_others(void **state) {
  static struct noting burst[BOUND + 1], quiet;
  struct stand stand;
  (void)state;
  stand_init(&stand);
  for (int i = 0; i <= BOUND; i++) {
    burst[i] = (struct noting){.job = {.run = note}, .n_ran = &stand.n_ran};
    assert_int_equal(shard_offer(&stand.queues[0], &burst[i].job), i < BOUND ? 0 : ERR_BUSY);
  }
  quiet = (struct noting){.job = {.run = note, .size_bytes = 1}, .n_ran = &stand.n_ran};
  assert_int_equal(shard_offer(&stand.queues[1], &quiet.job), 0);
  sem_post(&stand.gate.opened);
  shard_settle(stand.shard);
  assert_int_equal(stand.n_ran, BOUND + 1);
  stand_fini(&stand);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(jobs_of_one_run_keep_their_order),
      cmocka_unit_test(a_burst_holds_up_another_run_by_one_job),
      cmocka_unit_test(busy_runs_share_time_not_jobs),
      cmocka_unit_test(a_weight_is_a_share),
      cmocka_unit_test(an_idle_run_saves_nothing_up),
      cmocka_unit_test(a_long_job_is_paid_for_by_a_run_that_has_one_at_a_time),
      cmocka_unit_test(three_runs_have_a_third_each),
      cmocka_unit_test(a_queue_may_go_while_its_last_job_runs),
      cmocka_unit_test(a_shard_serves_another_run_in_the_midst_of_a_burst),
      cmocka_unit_test(a_run_that_fills_its_queue_leaves_room_for_others),
  };
  float_setting_apply();
  return cmocka_run_group_tests(tests, NULL, NULL);
}
