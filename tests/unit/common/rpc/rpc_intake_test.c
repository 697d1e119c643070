/* A server that holds only so many bytes of its clients' payloads: who comes when it is full is read later,
   and never refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/clock.h"
#include "common/rpc/intake.h"
#include "parameters.pb-c.h"
#include "tests/support/common/patience.h"
#include "tests/support/common/rpc_fixture.h"

enum { BLOCK_BYTES = 256 * 1024, PUSHES = 12, ROOM = 2 };

/* For so long the server keeps room for what does not come. */
#define KEPT_NS UINT64_C(2000000000)

/* What the server's handler keeps, in the order in which it came. Under the fixture's lock. */
static struct rpc_bytes *kept[PUSHES];
static struct rpc_call *calls[PUSHES];
static int n_kept;

static void push(struct rpc_call *call, const void *message, struct rpc_bytes *bytes) {
  struct rpc_fixture *f = rpc_call_context(call);
  (void)message;
  pthread_mutex_lock(&f->lock);
  kept[n_kept] = bytes;
  calls[n_kept++] = call;
  pthread_cond_broadcast(&f->changed);
  pthread_mutex_unlock(&f->lock);
}

static void versions(struct rpc_call *call, const void *message, struct rpc_bytes *bytes) {
  Weir__VersionsReply reply = WEIR__VERSIONS_REPLY__INIT;
  (void)message;
  (void)bytes;
  rpc_call_reply(call, &reply, NULL);
}

static const struct rpc_method methods[] = {
    {.id = RPC_PUSH, .on_message = push, .on_closed = rpc_fixture_count_closed},
    {.id = RPC_VERSIONS, .on_message = versions},
};

struct pusher {
  struct rpc_request request;
  struct rpc_fixture *f;
  int n_done;
  enum err_code code;
};

static void pusher_done(struct rpc_request *request, const struct err *err, const void *reply,
                        struct rpc_bytes *bytes) {
  struct pusher *pusher = (struct pusher *)request;
  (void)reply;
  rpc_bytes_free(bytes);
  pusher->code = err->code;
  rpc_fixture_count(pusher->f, &pusher->n_done);
}

static void pusher_start(struct pusher *pusher, struct rpc_fixture *f, struct buffer *block) {
  Weir__PushRequest request = WEIR__PUSH_REQUEST__INIT;
  struct rpc_payload payload = {block, 0, block ? block->size_bytes : 0};
  *pusher = (struct pusher){.request = {.on_done = pusher_done}, .f = f};
  rpc_request_start(&pusher->request, f->channel, &(struct rpc_question){RPC_PUSH, &request, -1},
                    block ? &payload : NULL);
}

static int setup(void **state) {
  struct rpc_fixture *f = calloc(1, sizeof *f);
  n_kept = 0;
  rpc_fixture_init_bounded(f, methods, 2, ROOM * RPC_BLOCK_MESSAGE_BYTES_MAX);
  *state = f;
  return 0;
}

static int teardown(void **state) {
  rpc_fixture_fini(*state);
  free(*state);
  return 0;
}

/* The server answers, so whatever could be read before has been. */
static void wait_served(struct rpc_fixture *f) {
  Weir__VersionsRequest request = WEIR__VERSIONS_REQUEST__INIT;
  struct err err = ERR_NONE;
  void *reply;
  for (int i = 0; i < 20; i++) {
    if (rpc_unary(f->channel, &(struct rpc_question){RPC_VERSIONS, &request, patience_ms()}, false, &reply,
                  &err))
      fail_msg("%s", err.text);
    protobuf_c_message_free_unpacked(reply, NULL);
  }
}

static void answer(struct rpc_fixture *f, int i) {
  Weir__PushReply reply = WEIR__PUSH_REPLY__INIT;
  (void)f;
  rpc_bytes_free(kept[i]);
  rpc_call_reply(calls[i], &reply, NULL);
}

static int count_kept(struct rpc_fixture *f) {
  int n;
  pthread_mutex_lock(&f->lock);
  n = n_kept;
  pthread_mutex_unlock(&f->lock);
  return n;
}

static struct buffer *new_block(void) {
  struct buffer *block = buffer_new(BLOCK_BYTES);
  memset(block->data, 0, BLOCK_BYTES);
  return block;
}

static void who_comes_when_it_is_full_waits_and_is_not_refused(void **state) {
  struct rpc_fixture *f = *state;
  struct buffer *block = new_block();
  struct pusher pushers[PUSHES];
  uint64_t begin_ns = clock_now_ns();
  for (int i = 0; i < PUSHES; i++)
    pusher_start(&pushers[i], f, block);
  for (int i = 0; i < PUSHES; i++) {
    rpc_fixture_wait(f, &n_kept, i + 1);
    if (i == ROOM - 1) {
      wait_served(f);
      assert_true(count_kept(f) == ROOM || clock_now_ns() - begin_ns >= KEPT_NS);
    }
    if (i >= ROOM - 1)
      answer(f, i - (ROOM - 1));
  }
  for (int i = PUSHES - (ROOM - 1); i < PUSHES; i++)
    answer(f, i);
  for (int i = 0; i < PUSHES; i++) {
    rpc_fixture_wait(f, &pushers[i].n_done, 1);
    assert_int_equal(pushers[i].code, ERR_OK);
  }
  buffer_put(block);
}

static void a_client_that_goes_gives_up_its_turn(void **state) {
  struct rpc_fixture *f = *state;
  struct buffer *block = new_block();
  struct pusher pushers[ROOM + 2];
  for (int i = 0; i < ROOM + 2; i++) {
    pusher_start(&pushers[i], f, block);
    if (i < ROOM)
      rpc_fixture_wait(f, &n_kept, i + 1);
  }
  wait_served(f);
  rpc_request_cancel(&pushers[ROOM].request);
  rpc_fixture_wait(f, &pushers[ROOM].n_done, 1);
  assert_int_equal(pushers[ROOM].code, ERR_CANCELLED);
  wait_served(f);
  answer(f, 0);
  rpc_fixture_wait(f, &n_kept, ROOM + 1);
  for (int i = 1; i <= ROOM; i++)
    answer(f, i);
  rpc_fixture_wait(f, &pushers[ROOM + 1].n_done, 1);
  assert_int_equal(pushers[ROOM + 1].code, ERR_OK);
  buffer_put(block);
}

/* Of a frozen client, or a slow one: room is kept for a while only. */
static void a_client_that_sends_nothing_keeps_nobody_out(void **state) {
  struct rpc_fixture *f = *state;
  struct buffer *block = new_block();
  struct rpc_reader *silent[ROOM];
  struct pusher pusher;
  for (int i = 0; i < ROOM; i++)
    silent[i] = rpc_reader_open(f->channel, RPC_PUSH, -1);
  wait_served(f);
  pusher_start(&pusher, f, block);
  rpc_fixture_wait(f, &n_kept, 1);
  answer(f, 0);
  rpc_fixture_wait(f, &pusher.n_done, 1);
  for (int i = 0; i < ROOM; i++)
    rpc_reader_close(silent[i]);
  buffer_put(block);
}

static void stopping_ends_those_who_wait(void **state) {
  struct rpc_fixture *f = *state;
  struct buffer *block = new_block();
  struct pusher pushers[ROOM + 1];
  for (int i = 0; i < ROOM + 1; i++) {
    pusher_start(&pushers[i], f, block);
    if (i < ROOM)
      rpc_fixture_wait(f, &n_kept, i + 1);
  }
  wait_served(f);
  for (int i = 0; i < ROOM; i++)
    rpc_call_fail(calls[i], ERR_CANCELLED, "the test is over");
  rpc_server_stop(f->server);
  f->server = NULL;
  for (int i = 0; i < ROOM; i++)
    rpc_bytes_free(kept[i]); /* which may outlive the server */
  for (int i = 0; i < ROOM + 1; i++)
    rpc_fixture_wait(f, &pushers[i].n_done, 1);
  assert_int_equal(n_kept, ROOM);
  buffer_put(block);
}

static void what_brings_no_payload_is_not_held_up(void **state) {
  struct rpc_fixture *f = *state;
  struct pusher pushers[PUSHES];
  for (int i = 0; i < PUSHES; i++) {
    pusher_start(&pushers[i], f, NULL);
    rpc_fixture_wait(f, &n_kept, i + 1); /* though none is answered */
  }
  for (int i = 0; i < PUSHES; i++)
    answer(f, i);
  for (int i = 0; i < PUSHES; i++)
    rpc_fixture_wait(f, &pushers[i].n_done, 1);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
  const struct CMUnitTest tests[] = {
      TEST(who_comes_when_it_is_full_waits_and_is_not_refused),
      TEST(a_client_that_goes_gives_up_its_turn),
      TEST(a_client_that_sends_nothing_keeps_nobody_out),
      TEST(stopping_ends_those_who_wait),
      TEST(what_brings_no_payload_is_not_held_up),
  };
#undef TEST
  return cmocka_run_group_tests(tests, NULL, NULL);
}
