/* Blobs that are streamed to whoever reads them. */
#include <pthread.h>
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
#include "server/coordinator/shell/threads/sender.h"
#include "tests/support/common/patience.h"
#include "tests/support/common/rpc_fixture.h"
#include "training.pb-c.h"

/* More than lies between two processes on one machine. */
enum { BLOB_BYTES = 64 << 20, UNREAD_MS = 200 };

struct service {
  struct rpc_fixture f; /* what the calls' context points at */
  struct sender *sender;
  struct buffer *blob;
  int sent;           /* chunks of weights; the sender's own */
  int n_read;         /* atomic: of these */
  bool is_other_done; /* atomic */
};

static void get_model(struct rpc_call *call, const void *message, struct rpc_bytes *bytes) {
  struct service *service = rpc_call_context(call);
  (void)message;
  (void)bytes;
  sender_send(service->sender, call, buffer_get(service->blob));
  rpc_fixture_count(&service->f, &service->f.n_messages);
}

/* Comes no faster than it is read, and ends once another client has been served. */
static int next_weights(void *user, const void **data, size_t *size, struct err *err) {
  struct service *service = user;
  uint64_t begin_ns = clock_now_ns();
  (void)err;
  while (__atomic_load_n(&service->n_read, __ATOMIC_ACQUIRE) < service->sent &&
         clock_now_ns() - begin_ns < patience_ms() * UINT64_C(1000000))
    sched_yield();
  *data = "w";
  *size = __atomic_load_n(&service->is_other_done, __ATOMIC_ACQUIRE) ? 0 : 1;
  service->sent += *size > 0;
  return 0;
}

static void close_weights(void *user) {
  (void)user;
}

static void get_weights(struct rpc_call *call, const void *message, struct rpc_bytes *bytes) {
  struct service *service = rpc_call_context(call);
  (void)message;
  (void)bytes;
  sender_send_source(service->sender, call, &(struct sender_source){next_weights, close_weights, service});
}

static const struct rpc_method methods[] = {{.id = RPC_GET_MODEL, .on_message = get_model},
                                            {.id = RPC_GET_WEIGHTS, .on_message = get_weights}};

static int setup_with(void **state, int unread_ms) {
  struct service *service = calloc(1, sizeof *service);
  rpc_fixture_init(&service->f, methods, sizeof methods / sizeof *methods);
  service->blob = buffer_new(BLOB_BYTES);
  memset(service->blob->data, 7, BLOB_BYTES);
  service->sender = sender_start(unread_ms);
  *state = service;
  return 0;
}

static int setup(void **state) {
  return setup_with(state, WEEK_MS);
}

static int setup_impatient(void **state) {
  return setup_with(state, UNREAD_MS);
}

static int teardown(void **state) {
  struct service *service = *state;
  rpc_fixture_fini(&service->f);
  sender_stop(service->sender);
  buffer_put(service->blob);
  free(service);
  return 0;
}

static struct rpc_reader *ask(struct service *service) {
  struct rpc_reader *reader = rpc_reader_open(service->f.channel, RPC_GET_MODEL, patience_ms());
  Weir__RunRequest request = WEIR__RUN_REQUEST__INIT;
  struct err err = ERR_NONE;
  assert_int_equal(rpc_reader_send(reader, &request, &err), ERR_OK);
  rpc_reader_half_close(reader);
  return reader;
}

/* The bytes that come until the end, which err says. */
static size_t read_all(struct rpc_reader *reader, struct err *err) {
  Weir__Chunk *chunk = NULL;
  size_t n = 0;
  *err = ERR_NONE;
  while (rpc_reader_next(reader, (void **)&chunk, err) == 0 && chunk) {
    n += chunk->data.len;
    weir__chunk__free_unpacked(chunk, NULL);
  }
  rpc_reader_close(reader);
  return n;
}

static void a_blob_comes_whole(void **state) {
  struct err err;
  assert_int_equal(read_all(ask(*state), &err), BLOB_BYTES);
  assert_int_equal(err.code, ERR_OK);
}

static void a_client_that_does_not_read_does_not_keep_the_blob(void **state) {
  struct service *service = *state;
  uint64_t begin_ns = clock_now_ns();
  struct rpc_reader *reader = ask(service);
  struct err err;
  rpc_fixture_wait(&service->f, &service->f.n_messages, 1);
  while (!buffer_is_sole(service->blob) && clock_now_ns() - begin_ns < patience_ms() * UINT64_C(1000000))
    sched_yield();
  assert_true(buffer_is_sole(service->blob));
  assert_true(clock_now_ns() - begin_ns >= UNREAD_MS * UINT64_C(1000000));
  assert_in_range(read_all(reader, &err), 0, BLOB_BYTES - 1);
  assert_int_equal(err.code, ERR_CANCELLED);
  assert_non_null(strstr(err.text, "the client read nothing for 0.2 s"));
}

static void *read_weights(void *user) {
  struct service *service = user;
  struct rpc_reader *reader = rpc_reader_open(service->f.channel, RPC_GET_WEIGHTS, patience_ms());
  Weir__WeightsRequest request = WEIR__WEIGHTS_REQUEST__INIT;
  Weir__Chunk *chunk = NULL;
  struct err err = ERR_NONE;
  if (rpc_reader_send(reader, &request, &err) == 0)
    rpc_reader_half_close(reader);
  while (!err.code && rpc_reader_next(reader, (void **)&chunk, &err) == 0 && chunk) {
    weir__chunk__free_unpacked(chunk, NULL);
    __atomic_add_fetch(&service->n_read, 1, __ATOMIC_RELEASE);
  }
  rpc_reader_close(reader);
  return NULL;
}

static void a_client_that_reads_as_fast_as_it_is_sent_leaves_others_their_turns(void **state) {
  struct service *service = *state;
  pthread_t thread;
  struct err err;
  assert_int_equal(pthread_create(&thread, NULL, read_weights, service), 0);
  while (!__atomic_load_n(&service->n_read, __ATOMIC_ACQUIRE))
    sched_yield();
  assert_int_equal(read_all(ask(service), &err), BLOB_BYTES);
  __atomic_store_n(&service->is_other_done, true, __ATOMIC_RELEASE);
  pthread_join(thread, NULL);
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(a_blob_comes_whole, setup, teardown),
      cmocka_unit_test_setup_teardown(a_client_that_reads_as_fast_as_it_is_sent_leaves_others_their_turns,
                                      setup, teardown),
      cmocka_unit_test_setup_teardown(a_client_that_does_not_read_does_not_keep_the_blob, setup_impatient,
                                      teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
