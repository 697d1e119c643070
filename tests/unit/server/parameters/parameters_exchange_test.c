/* Sums that several servers exchange: real servers beside each other, and one server among peers that do what
   peers should not. */
#include <math.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "common/base/clock.h"
#include "server/parameters/exchange/exchange_parts.h"
#include "tests/support/common/patience.h"
#include "tests/support/parameters/parameters_calls.h"

enum { PARAM_BLOCKS = 3, ELEMS = 300 * 300 + 1803, CALLS_MAX = 8 };

static const Weir__LoadRun *clipped_order(uint64_t incarnation, size_t servers) {
  const Weir__LoadRun *order = make_order(incarnation, servers);
  order->spec->train->has_clip_norm = true;
  order->spec->train->clip_norm = 1;
  return order;
}

/* Which of the servers has the block. */
static int owner_of(struct parameters_fixture *servers, int n, uint32_t block) {
  struct err err;
  int owner = -1;
  for (int s = 0; s < n; s++) {
    struct hosted_run *run = run_table_find(&servers[s].runs, "unit-1", 1, &err);
    if (run->own[block] >= 0)
      owner = s;
    hosted_run_put(run);
  }
  return owner;
}

/* Gradients that differ from element to element. */
static void push_varied(struct parameters_fixture *f, uint32_t block, uint64_t step, uint32_t microbatch) {
  Weir__PushRequest push = push_request(block, step, microbatch, 0);
  struct attempt attempt;
  for (uint32_t i = 0; i < block_elems[block]; i++)
    f->values[i] = sinf((float)(i * 7 + block * 13 + microbatch * 5 + (uint32_t)step));
  start_push(f, &attempt, &push, f->values, block_elems[block] * sizeof(float));
  attempt_finish(&attempt);
  assert_int_equal(attempt.err.code, 0);
  free(attempt.data);
}

/* All steps on so many servers, blocks in an order of its own; the weights after the last. */
static void train(int n, bool is_reversed, float *weights) {
  struct parameters_fixture servers[SERVERS_MAX];
  static const char *const ids[SERVERS_MAX] = {"server-1", "server-2", "server-3"};
  struct err err = ERR_NONE;
  uint32_t at = 0;
  for (int s = 0; s < n; s++)
    parameters_fixture_open(&servers[s]);
  for (int s = 0; s < n; s++) {
    const Weir__LoadRun *order = clipped_order(1, (size_t)n);
    order->servers[0]->address = servers[0].target;
    if (load_order_as(&servers[s], order, ids[s], &err))
      fail_msg("%s", err.text);
  }
  for (uint64_t step = 0; step < STEPS; step++) {
    for (uint32_t block = 0; block < BLOCKS; block++) {
      float element;
      pull_first_element(&servers[owner_of(servers, n, block)], block, step, &element);
    }
    push_rows(&servers[owner_of(servers, n, STATISTICS_BLOCK)], step);
    for (uint32_t i = 0; i < PARAM_BLOCKS * MICROBATCHES; i++) {
      uint32_t block = i % PARAM_BLOCKS, microbatch = i / PARAM_BLOCKS;
      block = is_reversed ? PARAM_BLOCKS - 1 - block : block;
      push_varied(&servers[owner_of(servers, n, block)], block, step,
                  is_reversed ? MICROBATCHES - 1 - microbatch : microbatch);
    }
  }
  for (uint32_t block = 0; block < PARAM_BLOCKS; block++) {
    struct attempt last;
    start_pull(&servers[owner_of(servers, n, block)], &last, block, STEPS);
    attempt_finish(&last);
    memcpy(weights + at, last.data, last.size_bytes);
    at += block_elems[block];
    finish_with_version(&last, STEPS);
  }
  for (int s = 0; s < n; s++)
    parameters_fixture_fini(&servers[s]);
}

static void any_number_of_servers_and_any_order_give_the_same_bits(void **state) {
  static float one[ELEMS], other[ELEMS];
  (void)state;
  train(1, false, one);
  for (int n = 1; n <= SERVERS_MAX; n++) {
    train(n, true, other);
    assert_memory_equal(one, other, sizeof one);
  }
}

/* One call of a fake server. */
struct sums_attempt {
  struct rpc_request request;
  struct parameters_fixture *fixture;
  bool is_done;
  struct err err;
  double totals[CALLS_MAX];
  size_t n_totals;
};

static void sums_done(struct rpc_request *request, const struct err *err, const void *message,
                      struct rpc_bytes *bytes) {
  struct sums_attempt *attempt = (struct sums_attempt *)request;
  const Weir__SumsReply *reply = message;
  struct parameters_fixture *f = attempt->fixture;
  rpc_bytes_free(bytes);
  pthread_mutex_lock(&f->lock);
  attempt->err = *err;
  attempt->n_totals = reply ? reply->n_totals : 0;
  for (size_t i = 0; i < attempt->n_totals && i < CALLS_MAX; i++)
    attempt->totals[i] = reply->totals[i];
  attempt->is_done = true;
  pthread_cond_broadcast(&f->changed);
  pthread_mutex_unlock(&f->lock);
}

struct sums_of {
  uint64_t incarnation, step;
  uint32_t phase;
  size_t n_blocks, n_values;
  uint32_t blocks[CALLS_MAX];
  double values[CALLS_MAX];
};

static void start_sums(struct parameters_fixture *f, struct sums_attempt *attempt, struct sums_of sums) {
  Weir__SumsRequest request = WEIR__SUMS_REQUEST__INIT;
  request.run = (char *)"unit-1";
  request.incarnation = sums.incarnation;
  request.step = sums.step;
  request.phase = sums.phase;
  request.n_blocks = sums.n_blocks;
  request.blocks = sums.blocks;
  request.n_values = sums.n_values;
  request.values = sums.values;
  *attempt = (struct sums_attempt){.request = {.on_done = sums_done}, .fixture = f};
  rpc_request_start(&attempt->request, f->channel, &(struct rpc_question){RPC_SUMS, &request, -1}, NULL);
}

static void sums_finish(struct sums_attempt *attempt) {
  struct parameters_fixture *f = attempt->fixture;
  pthread_mutex_lock(&f->lock);
  while (!attempt->is_done)
    wait_locked(f);
  pthread_mutex_unlock(&f->lock);
}

static void finish_with_totals(struct sums_attempt *attempt, double total, size_t n) {
  sums_finish(attempt);
  if (attempt->err.code)
    fail_msg("%s", attempt->err.text);
  assert_int_equal(attempt->n_totals, n);
  for (size_t i = 0; i < n; i++)
    assert_true(attempt->totals[i] == total);
}

static void refuse_sums(struct parameters_fixture *f, struct sums_of sums, enum err_code code,
                        const char *text) {
  struct sums_attempt attempt;
  start_sums(f, &attempt, sums);
  sums_finish(&attempt);
  if (attempt.err.code != code || !strstr(attempt.err.text, text))
    fail_msg("%s: %s; expected %s: %s", err_name(attempt.err.code), attempt.err.text, err_name(code), text);
}

struct probe {
  struct job job;
  struct hosted_run *run;
  int n_parked;
  sem_t done;
};

static void probe_run(struct job *job) {
  struct probe *probe = (struct probe *)job;
  probe->n_parked = probe->run->exchange->collections[0].n_parked;
  sem_post(&probe->done);
}

/* Waits until so many calls of other servers are parked. */
static void wait_sums_parked(struct parameters_fixture *f, int n_parked) {
  struct err err;
  struct probe probe = {.job = {.run = probe_run}, .run = run_table_find(&f->runs, "unit-1", 1, &err)};
  uint64_t until_ns = clock_now_ns() + (uint64_t)patience_seconds() * 1000000000;
  sem_init(&probe.done, 0, 0);
  do {
    shard_post(probe.run->exchange->queue, &probe.job);
    sem_wait(&probe.done);
    sched_yield();
  } while (probe.n_parked != n_parked && clock_now_ns() < until_ns);
  sem_destroy(&probe.done);
  hosted_run_put(probe.run);
  assert_int_equal(probe.n_parked, n_parked);
}

/* The step of block 0, the keeper's own, and what its gradient's squares add up to. */
static double push_own(struct parameters_fixture *f, uint64_t step) {
  double grad = 21 + 6 * (double)step;
  push_all_but_last(f, 0, step);
  push_part(f, 0, step, MICROBATCHES - 1, step);
  return grad * grad * block_elems[0];
}

/* The keeper of two servers: block 0 is its own, 1 and 2 are the fake one's. */
static void keeper_init(struct parameters_fixture *f) {
  parameters_fixture_init_order(f, clipped_order(1, 2));
  assert_int_equal(owner_of(f, 1, 0), 0);
  assert_int_equal(owner_of(f, 1, 1), -1);
  assert_int_equal(owner_of(f, 1, 2), -1);
}

static const struct sums_of both = {
    .incarnation = 1, .n_blocks = 2, .blocks = {2, 1}, .n_values = 2, .values = {2000, 1000}};

static void contributions_in_any_order_are_answered_when_the_last_is_there(void **state) {
  struct parameters_fixture f;
  struct sums_attempt second, first;
  struct attempt pulled;
  double own;
  (void)state;
  keeper_init(&f);
  start_sums(&f, &second, (struct sums_of){1, 0, 0, 1, 1, {2}, {2000}});
  wait_sums_parked(&f, 1);
  own = push_own(&f, 0);
  start_pull(&f, &pulled, 0, 1);
  wait_parked(&f, 0, 1);
  start_sums(&f, &first, (struct sums_of){1, 0, 0, 1, 1, {1}, {1000}});
  finish_with_totals(&first, own + 3000, 1);
  finish_with_totals(&second, own + 3000, 1);
  finish_with_version(&pulled, 1);
  parameters_fixture_fini(&f);
}

static void a_lost_answer_is_given_again_until_the_next_step_is_complete(void **state) {
  struct parameters_fixture f;
  struct sums_attempt attempt, twin;
  struct sums_of next = both, changed = both;
  double own;
  (void)state;
  keeper_init(&f);
  changed.values[0] = 77; /* what came first counts */
  next.step = 1;
  start_sums(&f, &attempt, both);
  wait_sums_parked(&f, 1);
  start_sums(&f, &twin, changed);
  wait_sums_parked(&f, 2);
  own = push_own(&f, 0);
  finish_with_totals(&attempt, own + 3000, 2);
  finish_with_totals(&twin, own + 3000, 2);
  start_sums(&f, &attempt, changed);
  finish_with_totals(&attempt, own + 3000, 2);
  start_sums(&f, &attempt, next);
  wait_sums_parked(&f, 1);
  start_sums(&f, &twin, both);
  finish_with_totals(&twin, own + 3000, 2);
  own = push_own(&f, 1);
  finish_with_totals(&attempt, own + 3000, 2);
  refuse_sums(&f, both, ERR_STALE,
              "run 'unit-1': sums of step 0: they were dropped, step 2 is collected now");
  parameters_fixture_fini(&f);
}

static void a_server_whose_connection_broke_asks_again(void **state) {
  struct parameters_fixture f;
  struct sums_attempt gone, again;
  double own;
  (void)state;
  keeper_init(&f);
  start_sums(&f, &gone, both);
  wait_sums_parked(&f, 1);
  rpc_request_cancel(&gone.request);
  sums_finish(&gone);
  assert_int_equal(gone.err.code, ERR_CANCELLED);
  wait_sums_parked(&f, 0);
  start_sums(&f, &again, both);
  wait_sums_parked(&f, 1);
  own = push_own(&f, 0);
  finish_with_totals(&again, own + 3000, 2);
  parameters_fixture_fini(&f);
}

static void sums_that_make_no_sense_are_refused_and_the_keeper_lives_on(void **state) {
  struct parameters_fixture f;
  struct sums_attempt attempt, twice;
  struct sums_of wrong;
  double own;
  (void)state;
  keeper_init(&f);
  wrong = both, wrong.incarnation = 0;
  refuse_sums(&f, wrong, ERR_STALE, "run 'unit-1' is in incarnation 1 here, not in 0");
  wrong = both, wrong.phase = 1;
  refuse_sums(&f, wrong, ERR_INVALID, "this server keeps no sums of phase 1");
  wrong = both, wrong.step = 1;
  refuse_sums(&f, wrong, ERR_INVALID, "run 'unit-1': sums of step 1: step 0 is collected now");
  wrong = both, wrong.step = UINT64_MAX;
  refuse_sums(&f, wrong, ERR_INVALID, "there is no step 18446744073709551615, the run has 3");
  wrong = both, wrong.blocks[1] = STATISTICS_BLOCK;
  refuse_sums(&f, wrong, ERR_INVALID, "there is no parameter block 3, the model has 3");
  wrong = both, wrong.blocks[1] = 0;
  refuse_sums(&f, wrong, ERR_INVALID, "block 0 is this server's own");
  wrong = both, wrong.n_blocks = 0;
  refuse_sums(&f, wrong, ERR_INVALID, "it names no block");
  wrong = both, wrong.n_values = 1;
  refuse_sums(&f, wrong, ERR_INVALID, "1 values, but its 2 blocks have 2");
  wrong = both, wrong.n_values = 3;
  refuse_sums(&f, wrong, ERR_INVALID, "3 values, but its 2 blocks have 2");
  wrong = both, wrong.values[1] = NAN;
  refuse_sums(&f, wrong, ERR_INVALID, "value 1 is nan, not a finite number");
  wrong = both, wrong.blocks[1] = 2;
  own = push_own(&f, 0);
  start_sums(&f, &twice, wrong); /* a block that is named twice counts once */
  wait_sums_parked(&f, 1);
  wrong = (struct sums_of){1, 0, 0, 3, 3, {1, 1, 2}, {1000, 5, 6}};
  start_sums(&f, &attempt, wrong);
  finish_with_totals(&attempt, own + 3000, 3);
  finish_with_totals(&twice, own + 3000, 2);
  parameters_fixture_fini(&f);
}

/* Each of them is finite, their total is not: it ends the step and does not reach the weights. */
static void totals_that_overflow_end_the_step_with_an_error(void **state) {
  struct parameters_fixture f;
  struct sums_attempt attempt;
  struct attempt waiting, late;
  struct sums_of huge = both;
  (void)state;
  keeper_init(&f);
  huge.values[0] = huge.values[1] = 1.5e308;
  start_sums(&f, &attempt, huge);
  start_pull(&f, &waiting, 0, 1);
  wait_parked(&f, 0, 1);
  push_own(&f, 0);
  finish_with_error(&waiting, ERR_INVALID,
                    "run 'unit-1': block 0 of step 0: a sum over weights and gradient");
  finish_with_totals(&attempt, INFINITY, 2);
  start_pull(&f, &late, 0, 1); /* whoever comes later is told, too, and does not wait for ever */
  finish_with_error(&late, ERR_INVALID, "run 'unit-1': block 0 of step 0: a sum over weights and gradient");
  start_waiting_part(&f, &late, 0, 0, 3);
  finish_with_error(&late, ERR_INVALID, "is not finite");
  start_pull(&f, &late, 0, 0);
  finish_with_version(&late, 0);
  parameters_fixture_fini(&f);
}

static void calls_that_wait_for_totals_take_no_more_memory_than_others_sums_do(void **state) {
  enum { ROOM = 4 };
  struct parameters_fixture f;
  struct sums_attempt waiting[ROOM], again;
  double own;
  (void)state;
  keeper_init(&f);
  for (int i = 0; i < ROOM; i++)
    start_sums(&f, &waiting[i], both);
  wait_sums_parked(&f, ROOM);
  refuse_sums(&f, both, ERR_BUSY, "run 'unit-1': sums of step 0: 4 calls wait for totals already");
  rpc_request_cancel(&waiting[0].request);
  sums_finish(&waiting[0]);
  wait_sums_parked(&f, ROOM - 1);
  start_sums(&f, &again, both);
  wait_sums_parked(&f, ROOM);
  own = push_own(&f, 0);
  for (int i = 1; i < ROOM; i++)
    finish_with_totals(&waiting[i], own + 3000, 2);
  finish_with_totals(&again, own + 3000, 2);
  start_sums(&f, &again, both); /* an answer that is there takes no room */
  finish_with_totals(&again, own + 3000, 2);
  parameters_fixture_fini(&f);
}

static void a_run_without_phases_keeps_no_sums(void **state) {
  struct parameters_fixture f;
  (void)state;
  parameters_fixture_init(&f, 2);
  refuse_sums(&f, both, ERR_INVALID, "this server keeps no sums of phase 0");
  parameters_fixture_fini(&f);
}

static void unloading_a_run_ends_the_calls_that_wait_for_totals(void **state) {
  struct parameters_fixture f;
  struct sums_attempt waiting;
  (void)state;
  keeper_init(&f);
  start_sums(&f, &waiting, both);
  wait_sums_parked(&f, 1);
  run_table_remove(&f.runs, "unit-1", "a server was lost");
  sums_finish(&waiting);
  assert_int_equal(waiting.err.code, ERR_CANCELLED);
  refuse_sums(&f, both, ERR_NOT_FOUND, "there is no run 'unit-1'");
  parameters_fixture_fini(&f);
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(any_number_of_servers_and_any_order_give_the_same_bits),
      cmocka_unit_test(contributions_in_any_order_are_answered_when_the_last_is_there),
      cmocka_unit_test(a_lost_answer_is_given_again_until_the_next_step_is_complete),
      cmocka_unit_test(a_server_whose_connection_broke_asks_again),
      cmocka_unit_test(sums_that_make_no_sense_are_refused_and_the_keeper_lives_on),
      cmocka_unit_test(totals_that_overflow_end_the_step_with_an_error),
      cmocka_unit_test(calls_that_wait_for_totals_take_no_more_memory_than_others_sums_do),
      cmocka_unit_test(a_run_without_phases_keeps_no_sums),
      cmocka_unit_test(unloading_a_run_ends_the_calls_that_wait_for_totals),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
