#include "tests/support/parameters/parameters_calls.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/clock.h"
#include "tests/support/common/patience.h"

static void attempt_take(struct attempt *attempt, const struct err *err, uint64_t version,
                         struct rpc_bytes *bytes) {
  struct parameters_fixture *f = attempt->fixture;
  pthread_mutex_lock(&f->lock);
  attempt->err = *err;
  attempt->version = version;
  attempt->size_bytes = rpc_bytes_size(bytes);
  attempt->data = mem_new(attempt->size_bytes);
  if (bytes)
    rpc_bytes_copy(bytes, attempt->data);
  rpc_bytes_free(bytes);
  attempt->is_done = true;
  pthread_cond_broadcast(&f->changed);
  pthread_mutex_unlock(&f->lock);
}

static void push_done(struct rpc_request *request, const struct err *err, const void *reply,
                      struct rpc_bytes *bytes) {
  attempt_take((struct attempt *)request, err, reply ? ((const Weir__PushReply *)reply)->version : 0, bytes);
}

static void pull_done(struct rpc_request *request, const struct err *err, const void *reply,
                      struct rpc_bytes *bytes) {
  attempt_take((struct attempt *)request, err, reply ? ((const Weir__PullReply *)reply)->version : 0, bytes);
}

Weir__PushRequest push_request(uint32_t block, uint64_t step, uint32_t first, uint32_t level) {
  Weir__PushRequest push = WEIR__PUSH_REQUEST__INIT;
  push.run = (char *)"unit-1";
  push.incarnation = 1;
  push.block = block;
  push.step = step;
  push.first = first;
  push.level = level;
  return push;
}

void start_push(struct parameters_fixture *f, struct attempt *attempt, const Weir__PushRequest *push,
                const float *values, size_t size_bytes) {
  struct buffer *buffer = buffer_new(size_bytes);
  struct rpc_payload payload = {.buffer = buffer, .size_bytes = size_bytes};
  Weir__PushRequest named = *push;
  if (f->called)
    named.run = (char *)f->called;
  memcpy(buffer->data, values, size_bytes);
  *attempt = (struct attempt){.request = {.on_done = push_done}, .fixture = f};
  rpc_request_start(&attempt->request, f->channel, &(struct rpc_question){RPC_PUSH, &named, -1}, &payload);
  buffer_put(buffer);
}

void start_pull(struct parameters_fixture *f, struct attempt *attempt, uint32_t block, uint64_t version) {
  Weir__PullRequest pull = WEIR__PULL_REQUEST__INIT;
  pull.run = (char *)(f->called ? f->called : "unit-1");
  pull.incarnation = 1;
  pull.block = block;
  pull.version = version;
  *attempt = (struct attempt){.request = {.on_done = pull_done}, .fixture = f};
  rpc_request_start(&attempt->request, f->channel, &(struct rpc_question){RPC_PULL, &pull, -1}, NULL);
}

void attempt_finish(struct attempt *attempt) {
  struct parameters_fixture *f = attempt->fixture;
  pthread_mutex_lock(&f->lock);
  while (!attempt->is_done)
    wait_locked(f);
  pthread_mutex_unlock(&f->lock);
}

void parked_probe_run(struct job *job) {
  struct parked_probe *probe = (struct parked_probe *)job;
  probe->n_parked = probe->block->n_parked;
  sem_post(&probe->done);
}

void wait_parked(struct parameters_fixture *f, uint32_t block, int n_parked) {
  struct err err;
  struct hosted_run *run = run_table_find(&f->runs, "unit-1", 1, &err);
  struct parked_probe probe = {.job = {.run = parked_probe_run}, .block = hosted_run_block(run, block, &err)};
  uint64_t until_ns = clock_now_ns() + (uint64_t)patience_seconds() * 1000000000;
  sem_init(&probe.done, 0, 0);
  do {
    shard_post(probe.block->queue, &probe.job);
    sem_wait(&probe.done);
    sched_yield();
  } while (probe.n_parked != n_parked && clock_now_ns() < until_ns);
  sem_destroy(&probe.done);
  hosted_run_put(run);
  assert_int_equal(probe.n_parked, n_parked);
}

bool attempt_is_done(struct attempt *attempt) {
  bool done;
  pthread_mutex_lock(&attempt->fixture->lock);
  done = attempt->is_done;
  pthread_mutex_unlock(&attempt->fixture->lock);
  return done;
}

void finish_with_version(struct attempt *attempt, uint64_t version) {
  attempt_finish(attempt);
  if (attempt->err.code)
    fail_msg("%s: %s", err_name(attempt->err.code), attempt->err.text);
  assert_int_equal(attempt->version, version);
  free(attempt->data);
}

void finish_with_error(struct attempt *attempt, enum err_code code, const char *text) {
  attempt_finish(attempt);
  if (attempt->err.code != code || !strstr(attempt->err.text, text))
    fail_msg("%s: %s; expected %s: %s", err_name(attempt->err.code), attempt->err.text, err_name(code), text);
  free(attempt->data);
}

size_t part_of(struct parameters_fixture *f, uint32_t block, float value) {
  for (uint32_t i = 0; i < block_elems[block]; i++)
    f->values[i] = value;
  return block_elems[block] * sizeof(float);
}

static void start_microbatch(struct parameters_fixture *f, struct attempt *attempt,
                             const Weir__PushRequest *push) {
  size_t size_bytes = part_of(f, push->block, (float)(push->first + 1 + push->step));
  start_push(f, attempt, push, f->values, size_bytes);
}

void start_part(struct parameters_fixture *f, struct attempt *attempt, uint32_t block, uint64_t step,
                uint32_t first) {
  Weir__PushRequest push = push_request(block, step, first, 0);
  start_microbatch(f, attempt, &push);
}

void start_waiting_part(struct parameters_fixture *f, struct attempt *attempt, uint32_t block, uint64_t step,
                        uint32_t first) {
  Weir__PushRequest push = push_request(block, step, first, 0);
  push.wait = true;
  start_microbatch(f, attempt, &push);
}

void push_part(struct parameters_fixture *f, uint32_t block, uint64_t step, uint32_t first,
               uint64_t version) {
  struct attempt attempt;
  start_part(f, &attempt, block, step, first);
  finish_with_version(&attempt, version);
}

void pull_first_element(struct parameters_fixture *f, uint32_t block, uint64_t version,
                        float *first_element) {
  struct attempt attempt;
  start_pull(f, &attempt, block, version);
  attempt_finish(&attempt);
  assert_int_equal(attempt.err.code, 0);
  assert_int_equal(attempt.size_bytes, block_elems[block] * sizeof(float));
  *first_element = attempt.data[0];
  finish_with_version(&attempt, version);
}

void push_all_but_last(struct parameters_fixture *f, uint32_t block, uint64_t step) {
  for (uint32_t m = 0; m < MICROBATCHES - 1; m++)
    push_part(f, block, step, m, step);
}

void push_step(struct parameters_fixture *f, uint32_t block, uint64_t step) {
  push_all_but_last(f, block, step);
  push_part(f, block, step, MICROBATCHES - 1, step + 1);
}

void push_eval(struct parameters_fixture *f, uint64_t step, uint32_t chunk, uint64_t version) {
  Weir__PushRequest push = push_request(STATISTICS_BLOCK, step, chunk, 0);
  struct attempt attempt;
  float row[METRICS] = {50, 100, 75, 100, 100};
  push.evaluation = true;
  start_push(f, &attempt, &push, row, sizeof row);
  finish_with_version(&attempt, version);
}

void push_rows(struct parameters_fixture *f, uint64_t step) {
  for (uint32_t chunk = 0; step == EVAL_EVERY && chunk < CHUNKS; chunk++)
    push_eval(f, step, chunk, step);
  push_step(f, STATISTICS_BLOCK, step);
}

void push_version(struct parameters_fixture *f, uint64_t step) {
  for (uint32_t block = 0; block < STATISTICS_BLOCK; block++)
    push_step(f, block, step);
  push_rows(f, step);
}
