#include "tests/support/parameters/snapshot_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/memory.h"
#include "common/base/message.h"

#include "tests/support/parameters/parameters_calls.h"

static void on_answer(void *user, uint64_t membership, const Weir__MemberMessage *message) {
  struct snapshot_fixture *f = user;
  assert_int_equal(membership, MEMBERSHIP);
  assert_int_equal(message->body_case, WEIR__MEMBER_MESSAGE__BODY_WRITTEN);
  pthread_mutex_lock(&f->server.lock);
  assert_true(f->n_answers < ANSWERS_MAX);
  f->answers[f->n_answers++] = message_copy(message);
  pthread_cond_broadcast(&f->server.changed);
  pthread_mutex_unlock(&f->server.lock);
}

void snapshot_fixture_init_order(struct snapshot_fixture *f, const Weir__LoadRun *run) {
  struct snapshot_writer_options options = {.store = &f->store.base, .tell = on_answer, .user = f};
  struct err err;
  *f = (struct snapshot_fixture){0};
  parameters_fixture_init_order(&f->server, run);
  double_init(&f->store);
  f->writer = snapshot_writer_new(&options);
  f->run = run_table_find(&f->server.runs, "unit-1", 1, &err);
  assert_non_null(f->run);
}

void snapshot_fixture_init(struct snapshot_fixture *f) {
  snapshot_fixture_init_order(f, make_order(1, 1));
}

void snapshot_fixture_fini(struct snapshot_fixture *f) {
  double_hang(&f->store, false);
  snapshot_writer_stop(f->writer);
  hosted_run_put(f->run);
  parameters_fixture_fini(&f->server);
  snapshot_writer_free(f->writer);
  double_fini(&f->store);
  for (int i = 0; i < f->n_answers; i++)
    message_free(f->answers[i]);
}

void order_snapshot(struct snapshot_fixture *f, uint64_t step) {
  Weir__WriteBlocks order = WEIR__WRITE_BLOCKS__INIT;
  struct snapshot *snapshot;
  order.run = (char *)"unit-1";
  order.incarnation = 1;
  order.step = step;
  snapshot = snapshot_start(f->writer, &order, f->run->n_own, MEMBERSHIP);
  hosted_run_arm(f->run, snapshot);
  snapshot_put(snapshot);
}

const Weir__BlocksWritten *wait_answer(struct snapshot_fixture *f, int n) {
  pthread_mutex_lock(&f->server.lock);
  while (f->n_answers < n)
    wait_locked(&f->server);
  pthread_mutex_unlock(&f->server.lock);
  return f->answers[n - 1]->written;
}

void wait_shards(struct snapshot_fixture *f) {
  wait_parked(&f->server, 0, 0);
  wait_parked(&f->server, 1, 0);
}

const Weir__BlocksWritten *wait_written(struct snapshot_fixture *f, int n, uint64_t step) {
  const Weir__BlocksWritten *written = wait_answer(f, n);
  assert_string_equal(written->error, "");
  assert_string_equal(written->run, "unit-1");
  assert_int_equal(written->incarnation, 1);
  assert_int_equal(written->step, step);
  assert_int_equal(written->n_blocks, BLOCKS);
  assert_true(written->is_last);
  return written;
}

void *read_content(const struct hosted_run *run, uint32_t index, size_t *size_bytes) {
  const struct hosted_block *block = &run->blocks[run->own[index]];
  size_t slots_bytes = block->slots ? block->slots->size_bytes : 0;
  char *content = mem_new(block->current->size_bytes + slots_bytes);
  memcpy(content, block->current->data, block->current->size_bytes);
  if (block->slots)
    memcpy(content + block->current->size_bytes, block->slots->data, slots_bytes);
  *size_bytes = block->current->size_bytes + slots_bytes;
  return content;
}
