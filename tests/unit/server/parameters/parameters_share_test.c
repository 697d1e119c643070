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
#include "tests/support/parameters/parameters_calls.h"

/* The worker's end of the stream. */
struct worker {
  struct parameters_fixture server;
  struct rpc_stream *stream;
  struct share *share;
  struct shared_pool *pool;
  pthread_mutex_t lock; /* what follows */
  pthread_cond_t changed;
  uint64_t id;
  int n_heard;
  bool is_over;
  struct err end;
};

static void send_to_server(void *user, const Weir__ShareMessage *message) {
  rpc_stream_send(((struct worker *)user)->stream, message);
}

static void on_message(void *user, const void *message) {
  const Weir__ShareMessage *said = message;
  struct worker *worker = user;
  struct err err;
  pthread_mutex_lock(&worker->lock);
  assert_int_equal(share_take(worker->share, said, &err), 0);
  worker->id = said->share ? said->share : worker->id;
  worker->n_heard++;
  pthread_cond_broadcast(&worker->changed);
  pthread_mutex_unlock(&worker->lock);
}

static void on_end(void *user, const struct err *err) {
  struct worker *worker = user;
  pthread_mutex_lock(&worker->lock);
  worker->is_over = true;
  worker->end = *err;
  pthread_cond_broadcast(&worker->changed);
  pthread_mutex_unlock(&worker->lock);
}

static void open_share(struct worker *worker, const char *run, const char *ticket) {
  struct rpc_stream_handlers handlers = {on_message, on_end, worker};
  Weir__ShareMessage hello = WEIR__SHARE_MESSAGE__INIT;
  hello.run = (char *)run;
  hello.incarnation = 1;
  pthread_mutex_lock(&worker->lock);
  worker->is_over = false;
  worker->id = 0;
  worker->share = share_new(send_to_server, worker);
  worker->stream = rpc_stream_open_with(worker->server.channel, RPC_SHARE, ticket, &handlers);
  rpc_stream_send(worker->stream, &hello);
  pthread_mutex_unlock(&worker->lock);
}

static void close_share(struct worker *worker) {
  share_close(worker->share);
  rpc_stream_close(worker->stream);
  share_put(worker->share);
}

static void wait_heard(struct worker *worker, int n) {
  pthread_mutex_lock(&worker->lock);
  while (worker->n_heard < n && !worker->is_over)
    pthread_cond_wait(&worker->changed, &worker->lock);
  pthread_mutex_unlock(&worker->lock);
  assert_false(worker->is_over);
}

static int heard(struct worker *worker) {
  int n;
  pthread_mutex_lock(&worker->lock);
  n = worker->n_heard;
  pthread_mutex_unlock(&worker->lock);
  return n;
}

static void wait_over(struct worker *worker) {
  pthread_mutex_lock(&worker->lock);
  while (!worker->is_over)
    pthread_cond_wait(&worker->changed, &worker->lock);
  pthread_mutex_unlock(&worker->lock);
}

static int setup(void **state) {
  struct worker *worker = mem_new(sizeof *worker);
  pthread_mutex_init(&worker->lock, NULL);
  pthread_cond_init(&worker->changed, NULL);
  parameters_fixture_init(&worker->server, 1);
  worker->pool = shared_pool_new(1 << 20);
  open_share(worker, "unit-1", NULL);
  wait_heard(worker, 1); /* its name */
  *state = worker;
  return 0;
}

static int teardown(void **state) {
  struct worker *worker = *state;
  close_share(worker);
  shared_pool_free(worker->pool);
  parameters_fixture_fini(&worker->server);
  pthread_cond_destroy(&worker->changed);
  pthread_mutex_destroy(&worker->lock);
  free(worker);
  return 0;
}

/* A part as part_of makes it, in a segment that the server has; `name` is where. */
static struct buffer *shared_part(struct worker *worker, uint32_t block, float value,
                                  Weir__SharedBytes *name) {
  size_t size_bytes = part_of(&worker->server, block, value);
  struct buffer *part = shared_pool_take(worker->pool, size_bytes);
  int before = heard(worker);
  assert_non_null(part);
  memcpy(part->data, worker->server.values, size_bytes);
  weir__shared_bytes__init(name);
  if (share_name(worker->share, part, name))
    return part;
  wait_heard(worker, before + 1); /* that it was taken */
  assert_true(share_name(worker->share, part, name));
  return part;
}

static enum err_code ask(struct worker *worker, enum rpc_method_id method, const void *message, void **reply,
                         struct err *err) {
  return (enum err_code)rpc_unary(worker->server.channel,
                                  &(struct rpc_question){method, message, patience_ms()}, false, reply, err);
}

static Weir__PushRequest push_of(const struct worker *worker, uint32_t block, uint64_t step, uint32_t first,
                                 Weir__SharedBytes *name) {
  Weir__PushRequest push = push_request(block, step, first, 0);
  push.run = (char *)"unit-1";
  push.incarnation = 1;
  push.share = worker->id;
  push.shared = name;
  return push;
}

static void push_shared(struct worker *worker, uint32_t block, uint64_t step, uint32_t first, float value) {
  Weir__SharedBytes name;
  struct buffer *part = shared_part(worker, block, value, &name);
  Weir__PushRequest push = push_of(worker, block, step, first, &name);
  struct err err = ERR_NONE;
  void *reply;
  if (ask(worker, RPC_PUSH, &push, &reply, &err))
    fail_msg("%s", err.text);
  message_free(reply);
  buffer_put(part);
}

/* A refusal, after which the block is where it was. */
static void assert_refused(struct worker *worker, const Weir__PushRequest *push, enum err_code code,
                           const char *text) {
  struct err err = ERR_NONE;
  void *reply;
  assert_int_equal(ask(worker, RPC_PUSH, push, &reply, &err), code);
  if (!strstr(err.text, text))
    fail_msg("'%s' is not in '%s'", text, err.text);
}

static void a_part_that_is_named_counts_as_one_that_is_sent(void **state) {
  struct worker *worker = *state;
  float before, after;
  pull_first_element(&worker->server, 0, 0, &before);
  for (uint32_t m = 0; m < MICROBATCHES; m++)
    if (m % 2)
      push_part(&worker->server, 0, 0, m, m + 1 == MICROBATCHES);
    else
      push_shared(worker, 0, 0, m, (float)(m + 1));
  pull_first_element(&worker->server, 0, 1, &after);
  assert_true(after == before - 0.5f * (1 + 2 + 3 + 4 + 5 + 6));
}

/* Where the server names the version; false if it was sent. */
static bool pull_name(struct worker *worker, uint32_t block, uint64_t version, struct shared_bytes *bytes) {
  Weir__PullRequest pull = WEIR__PULL_REQUEST__INIT;
  struct err err = ERR_NONE;
  void *reply;
  bool is_shared;
  pull.run = (char *)"unit-1";
  pull.incarnation = 1;
  pull.block = block;
  pull.version = version;
  pull.share = worker->id;
  if (ask(worker, RPC_PULL, &pull, &reply, &err))
    fail_msg("%s", err.text);
  is_shared = ((const Weir__PullReply *)reply)->shared != NULL;
  if (is_shared)
    assert_int_equal(share_find(worker->share, ((const Weir__PullReply *)reply)->shared, bytes, &err), 0);
  message_free(reply);
  return is_shared;
}

/* The same with the version's first element. */
static bool pull_shared(struct worker *worker, uint32_t block, uint64_t version, float *first) {
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
  struct worker *worker = *state;
  float named, sent;
  int before;
  assert_false(pull_shared(worker, 0, 0, &named)); /* nobody of this host was met */
  push_shared(worker, 0, 0, 0, 1);
  push_version(&worker->server, 0);
  before = heard(worker);
  assert_false(pull_shared(worker, 0, 1, &named)); /* sent, while its segment is offered */
  wait_heard(worker, before + 1);
  /* Our answer and the pull go on different streams of one connection: in any order. */
  while (!pull_shared(worker, 0, 1, &named))
    continue;
  pull_first_element(&worker->server, 0, 1, &sent);
  assert_true(named == sent);
}

/* Whoever copies it late learns that it has read the next but one. */
static void a_version_that_is_dropped_is_named_no_more(void **state) {
  struct worker *worker = *state;
  float *copy = mem_new(block_elems[0] * sizeof *copy);
  struct shared_bytes bytes;
  struct err err;
  push_shared(worker, 0, 0, 0, 1);
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
  struct worker *worker = *state;
  Weir__SharedBytes name, wrong;
  struct buffer *part = shared_part(worker, 0, 1, &name);
  Weir__PushRequest push = push_of(worker, 0, 0, 0, &wrong);
  struct attempt both;
  float before, after;
  pull_first_element(&worker->server, 0, 0, &before);
  wrong = name, wrong.size -= 4;
  assert_refused(worker, &push, ERR_INVALID, "bytes of data, but its");
  wrong = name, wrong.offset += (uint64_t)1 << 40;
  assert_refused(worker, &push, ERR_INVALID, "has no range of");
  wrong = name, wrong.offset -= 4;
  assert_refused(worker, &push, ERR_INVALID, "has no range of");
  wrong = name, wrong.offset = 0;
  assert_refused(worker, &push, ERR_INVALID, "has no range of");
  wrong = name, wrong.segment += 7;
  assert_refused(worker, &push, ERR_INVALID, "was not taken");
  wrong = name, push.share = worker->id + 7;
  assert_refused(worker, &push, ERR_BUSY, "is over");
  push.share = 0;
  assert_refused(worker, &push, ERR_BUSY, "is over");
  push.share = worker->id, wrong.turn++;
  assert_refused(worker, &push, ERR_STALE, "others by now");
  wrong = name;
  ((float *)part->data)[5] = 1.0f / 0.0f;
  assert_refused(worker, &push, ERR_INVALID, "not a finite number");
  start_push(&worker->server, &both, &push, worker->server.values, part_of(&worker->server, 0, 1));
  finish_with_error(&both, ERR_INVALID, "has data, and names other bytes");
  buffer_put(part);
  push_step(&worker->server, 0, 0);
  pull_first_element(&worker->server, 0, 1, &after);
  assert_true(after == before - 0.5f * 21); /* and nothing of that was counted */
}

/* Its call was cancelled, say, and the buffer has another gradient now. */
static void a_part_that_its_worker_has_given_up_is_not_counted(void **state) {
  struct worker *worker = *state;
  Weir__SharedBytes name;
  struct buffer *part = shared_part(worker, 0, 1, &name), *other;
  Weir__PushRequest push = push_of(worker, 0, 0, 0, &name);
  buffer_put(part);
  other = shared_part(worker, 0, 9, &(Weir__SharedBytes){0});
  assert_ptr_equal(other->data, part->data);
  assert_refused(worker, &push, ERR_STALE, "others by now");
  buffer_put(other);
}

static void a_wrong_message_ends_the_stream(void **state) {
  struct worker *worker = *state;
  Weir__ShareMessage message = WEIR__SHARE_MESSAGE__INIT;
  message.taken = 5;
  rpc_stream_send(worker->stream, &message);
  wait_over(worker);
  assert_int_equal(worker->end.code, ERR_INVALID);
  push_step(&worker->server, 0, 0);
}

static void a_stream_ends_with_its_run(void **state) {
  struct worker *worker = *state;
  run_table_remove(&worker->server.runs, "unit-1", "it was cancelled");
  wait_over(worker);
  assert_int_equal(worker->end.code, ERR_CANCELLED);
  close_share(worker);
  open_share(worker, "unit-1", NULL);
  wait_over(worker);
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
  struct worker *worker = *state;
  push_shared(worker, 0, 0, 0, 1);
  assert_int_equal(count_mapped(), 1);
  rpc_stream_half_close(worker->stream);
  wait_over(worker);
  assert_int_equal(worker->end.code, 0);
  while (count_mapped() > 0) /* the server's last callback is behind the end that we see */
    continue;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

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
