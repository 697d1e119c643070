/* Blocks that are named in shared memory in place of being sent: a worker of this process, over real RPC. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "common/base/message.h"
#include "common/share/share.h"
#include "common/share/shared_pool.h"
#include "tests/support/common/patience.h"
#include "tests/support/parameters/share_worker.h"

static void a_part_that_is_named_counts_as_one_that_is_sent(void **state) {
  struct share_worker *worker = *state;
  float before, after;
  pull_first_element(&worker->server, 0, 0, &before);
  for (uint32_t m = 0; m < MICROBATCHES; m++)
    if (m % 2)
      push_part(&worker->server, 0, 0, m, m + 1 == MICROBATCHES);
    else
      share_worker_push_part(worker, 0, 0, m, (float)(m + 1));
  pull_first_element(&worker->server, 0, 1, &after);
  assert_true(after == before - 0.5f * (1 + 2 + 3 + 4 + 5 + 6));
}

/* Where the server names the version; false if it was sent. */
static bool pull_name(struct share_worker *worker, uint32_t block, uint64_t version,
                      struct shared_bytes *bytes) {
  Weir__PullRequest pull = WEIR__PULL_REQUEST__INIT;
  struct err err = ERR_NONE;
  void *reply;
  bool is_shared;
  pull.run = (char *)"unit-1";
  pull.incarnation = 1;
  pull.block = block;
  pull.version = version;
  pull.share = worker->id;
  if (share_worker_ask(worker, RPC_PULL, &pull, &reply, &err))
    fail_msg("%s", err.text);
  is_shared = ((const Weir__PullReply *)reply)->shared != NULL;
  if (is_shared)
    assert_int_equal(share_find(worker->share, ((const Weir__PullReply *)reply)->shared, bytes, &err), 0);
  message_free(reply);
  return is_shared;
}

/* The same with the version's first element. */
static bool pull_shared(struct share_worker *worker, uint32_t block, uint64_t version, float *first) {
  struct shared_bytes bytes;
  struct err err;
  float *copy;
  if (!pull_name(worker, block, version, &bytes))
    return false;
  copy = mem_new(block_elems[block] * sizeof *copy);
  assert_int_equal(bytes.size_bytes, block_elems[block] * sizeof *copy);
  assert_int_equal(shared_bytes_copy(&bytes, copy, &err), 0);
  *first = copy[0];
  shared_bytes_put(&bytes);
  free(copy);
  return true;
}

static void versions_are_named_from_the_step_on_that_follows_the_first_named_part(void **state) {
  struct share_worker *worker = *state;
  float named, sent;
  int before;
  assert_false(pull_shared(worker, 0, 0, &named)); /* nobody of this host was met */
  share_worker_push_part(worker, 0, 0, 0, 1);
  push_version(&worker->server, 0);
  before = share_worker_heard(worker);
  assert_false(pull_shared(worker, 0, 1, &named)); /* sent, while its segment is offered */
  share_worker_wait_heard(worker, before + 1);
  /* Our answer and the pull go on different streams of one connection: in any order. */
  while (!pull_shared(worker, 0, 1, &named))
    continue;
  pull_first_element(&worker->server, 0, 1, &sent);
  assert_true(named == sent);
}

/* Whoever copies it late learns that it has read the next but one. */
static void a_version_that_is_dropped_is_named_no_more(void **state) {
  struct share_worker *worker = *state;
  float *copy = mem_new(block_elems[0] * sizeof *copy);
  struct shared_bytes bytes;
  struct err err;
  share_worker_push_part(worker, 0, 0, 0, 1);
  push_version(&worker->server, 0);
  while (!pull_name(worker, 0, 1, &bytes))
    continue;
  push_version(&worker->server, 1);
  assert_int_equal(shared_bytes_copy(&bytes, copy, &err), 0);
  push_version(&worker->server, 2);
  assert_int_equal(shared_bytes_copy(&bytes, copy, &err), ERR_STALE);
  shared_bytes_put(&bytes);
  free(copy);
}

static void what_is_named_wrongly_is_refused_and_the_server_lives_on(void **state) {
  struct share_worker *worker = *state;
  Weir__SharedBytes name, wrong;
  struct buffer *part = share_worker_part(worker, 0, 1, &name);
  Weir__PushRequest push = share_worker_push(worker, 0, 0, 0, &wrong);
  struct attempt both;
  float before, after;
  pull_first_element(&worker->server, 0, 0, &before);
  wrong = name, wrong.size -= 4;
  share_worker_assert_refused(worker, &push, ERR_INVALID, "bytes of data, but its");
  wrong = name, wrong.offset += (uint64_t)1 << 40;
  share_worker_assert_refused(worker, &push, ERR_INVALID, "has no range of");
  wrong = name, wrong.offset -= 4;
  share_worker_assert_refused(worker, &push, ERR_INVALID, "has no range of");
  wrong = name, wrong.offset = 0;
  share_worker_assert_refused(worker, &push, ERR_INVALID, "has no range of");
  wrong = name, wrong.segment += 7;
  share_worker_assert_refused(worker, &push, ERR_INVALID, "was not taken");
  wrong = name, push.share = worker->id + 7;
  share_worker_assert_refused(worker, &push, ERR_BUSY, "is over");
  push.share = 0;
  share_worker_assert_refused(worker, &push, ERR_BUSY, "is over");
  push.share = worker->id, wrong.turn++;
  share_worker_assert_refused(worker, &push, ERR_STALE, "others by now");
  wrong = name;
  ((float *)part->data)[5] = 1.0f / 0.0f;
  share_worker_assert_refused(worker, &push, ERR_INVALID, "not a finite number");
  start_push(&worker->server, &both, &push, worker->server.values, part_of(&worker->server, 0, 1));
  finish_with_error(&both, ERR_INVALID, "has data, and names other bytes");
  buffer_put(part);
  push_step(&worker->server, 0, 0);
  pull_first_element(&worker->server, 0, 1, &after);
  assert_true(after == before - 0.5f * 21); /* and nothing of that was counted */
}

/* Its call was cancelled, say, and the buffer has another gradient now. */
static void a_part_that_its_worker_has_given_up_is_not_counted(void **state) {
  struct share_worker *worker = *state;
  Weir__SharedBytes name;
  struct buffer *part = share_worker_part(worker, 0, 1, &name), *other;
  Weir__PushRequest push = share_worker_push(worker, 0, 0, 0, &name);
  buffer_put(part);
  other = share_worker_part(worker, 0, 9, &(Weir__SharedBytes){0});
  assert_ptr_equal(other->data, part->data);
  share_worker_assert_refused(worker, &push, ERR_STALE, "others by now");
  buffer_put(other);
}

static void a_wrong_message_ends_the_stream(void **state) {
  struct share_worker *worker = *state;
  Weir__ShareMessage message = WEIR__SHARE_MESSAGE__INIT;
  message.taken = 5;
  rpc_stream_send(worker->stream, &message);
  share_worker_wait_over(worker);
  assert_int_equal(worker->end.code, ERR_INVALID);
  push_step(&worker->server, 0, 0);
}

static void a_stream_ends_with_its_run(void **state) {
  struct share_worker *worker = *state;
  run_table_remove(&worker->server.runs, "unit-1", "it was cancelled");
  share_worker_wait_over(worker);
  assert_int_equal(worker->end.code, ERR_CANCELLED);
  share_worker_close(worker);
  share_worker_open(worker, "unit-1", NULL);
  share_worker_wait_over(worker);
  assert_int_equal(worker->end.code, ERR_NOT_FOUND);
}

static int count_mapped(void) {
  FILE *maps = fopen("/proc/self/maps", "r");
  char line[512];
  int n = 0;
  assert_non_null(maps);
  while (fgets(line, sizeof line, maps))
    n += strstr(line, "memfd:weir-segment") && strstr(line, "r--s");
  fclose(maps);
  return n;
}

static void what_was_mapped_is_let_go_of_with_the_stream(void **state) {
  struct share_worker *worker = *state;
  share_worker_push_part(worker, 0, 0, 0, 1);
  assert_int_equal(count_mapped(), 1);
  rpc_stream_half_close(worker->stream);
  share_worker_wait_over(worker);
  assert_int_equal(worker->end.code, 0);
  while (count_mapped() > 0) /* the server's last callback is behind the end that we see */
    continue;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, share_worker_setup, share_worker_teardown)

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      TEST(a_part_that_is_named_counts_as_one_that_is_sent),
      TEST(versions_are_named_from_the_step_on_that_follows_the_first_named_part),
      TEST(a_version_that_is_dropped_is_named_no_more),
      TEST(what_is_named_wrongly_is_refused_and_the_server_lives_on),
      TEST(a_part_that_its_worker_has_given_up_is_not_counted),
      TEST(a_wrong_message_ends_the_stream),
      TEST(a_stream_ends_with_its_run),
      TEST(what_was_mapped_is_let_go_of_with_the_stream),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
