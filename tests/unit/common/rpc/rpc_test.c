/* Unary calls: payloads, parked calls, ends of every kind. */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "parameters.pb-c.h"
#include "tests/support/common/own_port.h"
#include "tests/support/common/patience.h"
#include "tests/support/common/rpc_fixture.h"

enum { BLOCK_BYTES = 256 * 1024, BLOCK_ELEMS = BLOCK_BYTES / 4 };

/* A request whose end the test waits for. */
struct waiter {
  struct rpc_request request;
  struct rpc_fixture *f;
  int n_sent, n_done;
  bool was_sent_first;
  struct err err;
  uint64_t version;
  struct rpc_bytes *bytes;
};

static void waiter_sent(struct rpc_request *request) {
  struct waiter *waiter = (struct waiter *)request;
  rpc_fixture_count(waiter->f, &waiter->n_sent);
}

static void waiter_done(struct rpc_request *request, const struct err *err, const void *reply,
                        struct rpc_bytes *bytes) {
  struct waiter *waiter = (struct waiter *)request;
  waiter->was_sent_first = waiter->n_sent == 1;
  waiter->err = *err;
  waiter->version = reply ? ((const Weir__PushReply *)reply)->version : 0;
  waiter->bytes = bytes;
  rpc_fixture_count(waiter->f, &waiter->n_done);
}

static void waiter_start(struct waiter *waiter, struct rpc_fixture *f, const char *run,
                         const struct rpc_payload *payload, int deadline_ms) {
  Weir__PushRequest request = WEIR__PUSH_REQUEST__INIT;
  request.run = (char *)run;
  request.step = 41;
  *waiter = (struct waiter){.request = {.on_sent = waiter_sent, .on_done = waiter_done}, .f = f};
  rpc_request_start(&waiter->request, f->channel, &(struct rpc_question){RPC_PUSH, &request, deadline_ms},
                    payload);
}

static void reply_version(struct rpc_call *call, uint64_t version, struct rpc_bytes *bytes) {
  Weir__PushReply reply = WEIR__PUSH_REPLY__INIT;
  struct buffer *buffer = buffer_new(rpc_bytes_size(bytes));
  struct rpc_payload payload = {buffer, 0, rpc_bytes_size(bytes)};
  reply.version = version;
  rpc_bytes_copy(bytes, buffer->data);
  rpc_call_reply(call, &reply, &payload);
  buffer_put(buffer);
}

static void push(struct rpc_call *call, const void *message, struct rpc_bytes *bytes) {
  const Weir__PushRequest *request = message;
  struct rpc_fixture *f = rpc_call_context(call);
  if (strcmp(request->run, "echo") == 0)
    reply_version(call, request->step + 1, bytes);
  else if (strcmp(request->run, "park") == 0)
    rpc_fixture_park(f, call);
  else if (strcmp(request->run, "silent") == 0)
    rpc_call_set_user(call, f);
  else
    rpc_call_fail(call, ERR_NOT_FOUND, "no run '%s'", request->run);
  rpc_bytes_free(bytes);
}

/* Where nobody answers, the call ends when its client has gone, which may be before the test sees it here. */
static void push_closed(struct rpc_call *call) {
  if (rpc_call_user(call))
    rpc_call_finish(call, NULL);
  rpc_fixture_count_closed(call);
}

/* The run says what becomes of the first two calls. */
static void versions(struct rpc_call *call, const void *message, struct rpc_bytes *bytes) {
  const Weir__VersionsRequest *request = message;
  Weir__VersionsReply reply = WEIR__VERSIONS_REPLY__INIT;
  struct rpc_fixture *f = rpc_call_context(call);
  assert_null(bytes);
  reply.highest = request->incarnation;
  rpc_fixture_count(f, &f->n_messages);
  if (strcmp(request->run, "busy") == 0 && f->n_messages <= 2)
    rpc_call_fail(call, ERR_BUSY, "a queue is full");
  else if (strcmp(request->run, "full") == 0 && f->n_messages <= 2)
    rpc_call_fail(call, ERR_NO_MEMORY, "no memory for a part");
  else
    rpc_call_reply(call, &reply, NULL);
}

static const struct rpc_method methods[] = {
    {.id = RPC_PUSH, .on_message = push, .on_closed = push_closed},
    {.id = RPC_VERSIONS, .on_message = versions},
};

static int setup(void **state) {
  struct rpc_fixture *f = calloc(1, sizeof *f);
  rpc_fixture_init(f, methods, 2);
  *state = f;
  return 0;
}

static int teardown(void **state) {
  rpc_fixture_fini(*state);
  free(*state);
  return 0;
}

static void assert_serves(struct rpc_fixture *f) {
  Weir__VersionsRequest request = WEIR__VERSIONS_REQUEST__INIT;
  Weir__VersionsReply *reply;
  struct err err = ERR_NONE;
  request.incarnation = 7;
  if (rpc_unary(f->channel, &(struct rpc_question){RPC_VERSIONS, &request, patience_ms()}, false,
                (void **)&reply, &err))
    fail_msg("%s", err.text);
  assert_int_equal(reply->highest, 7);
  protobuf_c_message_free_unpacked(&reply->base, NULL);
}

static void a_block_comes_back_bit_for_bit(void **state) {
  struct rpc_fixture *f = *state;
  struct buffer *block = buffer_new(BLOCK_BYTES + 8);
  struct rpc_payload payload = {block, 8, BLOCK_BYTES};
  uint32_t *words = (uint32_t *)block->data;
  uint32_t *got = malloc(BLOCK_BYTES);
  struct waiter waiter;
  for (uint32_t i = 0; i < BLOCK_ELEMS + 2; i++)
    words[i] = i * 2654435761u;
  waiter_start(&waiter, f, "echo", &payload, patience_ms());
  rpc_fixture_wait(f, &waiter.n_done, 1);
  assert_int_equal(waiter.err.code, ERR_OK);
  assert_int_equal(waiter.version, 42);
  assert_true(waiter.was_sent_first);
  assert_int_equal(rpc_bytes_size(waiter.bytes), BLOCK_BYTES);
  rpc_bytes_copy(waiter.bytes, got);
  assert_memory_equal(got, words + 2, BLOCK_BYTES);
  rpc_bytes_free(waiter.bytes);
  buffer_put(block);
  free(got);
}

static void many_blocks_in_flight_all_come_back(void **state) {
  struct rpc_fixture *f = *state;
  struct buffer *block = buffer_new(BLOCK_BYTES);
  struct rpc_payload payload = {block, 0, BLOCK_BYTES};
  struct waiter waiters[64];
  memset(block->data, 1, BLOCK_BYTES);
  for (int i = 0; i < 64; i++)
    waiter_start(&waiters[i], f, "echo", &payload, patience_ms());
  for (int i = 0; i < 64; i++) {
    rpc_fixture_wait(f, &waiters[i].n_done, 1);
    assert_int_equal(waiters[i].err.code, ERR_OK);
    assert_int_equal(rpc_bytes_size(waiters[i].bytes), BLOCK_BYTES);
    rpc_bytes_free(waiters[i].bytes);
  }
  rpc_fixture_wait(f, &f->n_closed, 64);
  buffer_put(block);
}

static void an_oversized_message_is_refused_and_the_server_lives(void **state) {
  struct rpc_fixture *f = *state;
  const size_t sizes[] = {RPC_BLOCK_MESSAGE_BYTES_MAX + 1, 5 * 1024 * 1024};
  for (int i = 0; i < 2; i++) {
    struct buffer *block = buffer_new(sizes[i]);
    struct rpc_payload payload = {block, 0, sizes[i]};
    struct waiter waiter;
    memset(block->data, 0, sizes[i]);
    waiter_start(&waiter, f, "echo", &payload, patience_ms());
    rpc_fixture_wait(f, &waiter.n_done, 1);
    assert_int_equal(waiter.err.code, ERR_NO_MEMORY);
    assert_non_null(strstr(waiter.err.text, "larger than max"));
    assert_null(waiter.bytes);
    buffer_put(block);
  }
  assert_serves(f);
}

static void *finish_from_here(void *arg) {
  reply_version(arg, 99, NULL);
  return NULL;
}

static void a_parked_call_is_finished_from_another_thread(void **state) {
  struct rpc_fixture *f = *state;
  struct waiter waiter;
  pthread_t thread;
  waiter_start(&waiter, f, "park", NULL, -1);
  rpc_fixture_wait(f, &f->n_parked, 1);
  rpc_fixture_wait(f, &waiter.n_sent, 1); /* the window opens while the call is parked */
  assert_int_equal(waiter.n_done, 0);
  pthread_create(&thread, NULL, finish_from_here, f->parked[0]);
  rpc_fixture_wait(f, &waiter.n_done, 1);
  pthread_join(thread, NULL);
  assert_int_equal(waiter.version, 99);
  rpc_fixture_wait(f, &f->n_closed, 1);
}

static void a_parked_call_whose_client_cancels_is_closed(void **state) {
  struct rpc_fixture *f = *state;
  Weir__PushReply reply = WEIR__PUSH_REPLY__INIT;
  struct waiter waiter;
  waiter_start(&waiter, f, "park", NULL, -1);
  rpc_fixture_wait(f, &f->n_parked, 1);
  rpc_request_cancel(&waiter.request);
  rpc_fixture_wait(f, &waiter.n_done, 1);
  assert_int_equal(waiter.err.code, ERR_CANCELLED);
  rpc_fixture_wait(f, &f->n_closed, 1);
  assert_int_equal(rpc_call_send(f->parked[0], &reply, NULL), ERR_CANCELLED);
  rpc_call_finish(f->parked[0], NULL);
}

static void a_call_ends_at_its_deadline(void **state) {
  struct rpc_fixture *f = *state;
  struct waiter waiter;
  waiter_start(&waiter, f, "silent", NULL, 50);
  rpc_fixture_wait(f, &waiter.n_done, 1);
  assert_int_equal(waiter.err.code, ERR_TIMEOUT);
  assert_non_null(strstr(waiter.err.text, f->target));
  assert_non_null(strstr(waiter.err.text, "no answer within 50 ms"));
  assert_false(rpc_channel_has_answered(f->channel, &waiter.err));
}

static void *finish_parked_when_closed(void *arg) {
  struct rpc_fixture *f = arg;
  rpc_fixture_wait(f, &f->n_closed, 3);
  for (int i = 0; i < 3; i++)
    rpc_call_finish(f->parked[i], NULL);
  return NULL;
}

static void stopping_with_parked_calls_ends_them(void **state) {
  struct rpc_fixture *f = *state;
  struct waiter waiters[3];
  pthread_t thread;
  for (int i = 0; i < 3; i++)
    waiter_start(&waiters[i], f, "park", NULL, -1);
  rpc_fixture_wait(f, &f->n_parked, 3);
  pthread_create(&thread, NULL, finish_parked_when_closed, f);
  rpc_server_stop(f->server);
  f->server = NULL;
  pthread_join(thread, NULL);
  for (int i = 0; i < 3; i++) {
    rpc_fixture_wait(f, &waiters[i].n_done, 1);
    assert_int_equal(waiters[i].err.code, ERR_UNAVAILABLE);
    assert_true(strlen(waiters[i].err.text) < 80);
    assert_false(rpc_channel_has_answered(f->channel, &waiters[i].err));
  }
}

static void an_error_carries_the_target_and_the_servers_text_in_one_line(void **state) {
  struct rpc_fixture *f = *state;
  struct waiter waiter;
  char expected[128];
  waiter_start(&waiter, f, "else\n\x1b[2Jwhere", NULL, patience_ms());
  rpc_fixture_wait(f, &waiter.n_done, 1);
  snprintf(expected, sizeof expected, "%s: no run 'else??[2Jwhere'", f->target);
  assert_int_equal(waiter.err.code, ERR_NOT_FOUND);
  assert_string_equal(waiter.err.text, expected);
  assert_true(rpc_channel_has_answered(f->channel, &waiter.err));
}

static void a_method_that_is_not_served_is_unsupported(void **state) {
  struct rpc_fixture *f = *state;
  Weir__PullRequest request = WEIR__PULL_REQUEST__INIT;
  struct err err = ERR_NONE;
  void *reply;
  assert_int_equal(
      rpc_unary(f->channel, &(struct rpc_question){RPC_PULL, &request, patience_ms()}, true, &reply, &err),
      ERR_UNSUPPORTED);
  assert_non_null(strstr(err.text, "/weir.Parameters/Pull"));
}

static void an_unreachable_target_is_named_quickly_and_clearly(void **state) {
  struct rpc_fixture *f = *state;
  Weir__VersionsRequest request = WEIR__VERSIONS_REQUEST__INIT;
  struct err err = ERR_NONE;
  char target[64], expected[128];
  struct rpc_channel *channel;
  void *reply;
  snprintf(target, sizeof target, "127.0.0.1:%d", own_port());
  snprintf(expected, sizeof expected, "%s: connection refused", target);
  channel = rpc_channel_open(f->client, target, PEER_ANY);
  patience_begin(); /* not at its deadline */
  assert_int_equal(
      rpc_unary(channel, &(struct rpc_question){RPC_VERSIONS, &request, WEEK_MS}, false, &reply, &err),
      ERR_UNAVAILABLE);
  patience_end();
  assert_string_equal(err.text, expected);
  assert_false(rpc_channel_has_answered(channel, &err));
  rpc_channel_close(channel);
}

static void retries_reach_a_server_that_starts_late(void **state) {
  struct rpc_fixture *f = *state;
  struct rpc_fixture late = {.lock = PTHREAD_MUTEX_INITIALIZER};
  Weir__VersionsRequest request = WEIR__VERSIONS_REQUEST__INIT;
  struct rpc_channel *channel;
  struct err err = ERR_NONE;
  char target[64];
  void *reply;
  snprintf(target, sizeof target, "127.0.0.1:%d", own_port());
  channel = rpc_channel_open(f->client, target, PEER_ANY);
  do { /* if this process stands still in a try, that has no more time */
    err = ERR_NONE;
    rpc_unary(channel, &(struct rpc_question){RPC_VERSIONS, &request, 2000}, true, &reply, &err);
  } while (err.code == ERR_TIMEOUT);
  assert_int_equal(err.code, ERR_UNAVAILABLE);
  rpc_fixture_start_server(&late, target, methods, 2);
  if (rpc_unary(channel, &(struct rpc_question){RPC_VERSIONS, &request, patience_ms()}, true, &reply, &err))
    fail_msg("%s", err.text);
  protobuf_c_message_free_unpacked(reply, NULL);
  rpc_channel_close(channel);
  rpc_server_stop(late.server);
}

static void a_busy_server_is_asked_again_and_one_without_memory_is_not(void **state) {
  struct rpc_fixture *f = *state;
  Weir__VersionsRequest request = WEIR__VERSIONS_REQUEST__INIT;
  struct rpc_question question = {RPC_VERSIONS, &request, patience_ms()};
  struct err err = ERR_NONE;
  void *reply;
  request.run = "busy";
  if (rpc_unary(f->channel, &question, true, &reply, &err))
    fail_msg("%s", err.text);
  protobuf_c_message_free_unpacked(reply, NULL);
  assert_int_equal(f->n_messages, 3);
  f->n_messages = 0;
  request.run = "full";
  assert_int_equal(rpc_unary(f->channel, &question, true, &reply, &err), ERR_NO_MEMORY);
  assert_non_null(strstr(err.text, "no memory for a part"));
  assert_int_equal(f->n_messages, 1);
}

/* Without a call that would have to fail first. */
static void a_channel_knows_whether_its_connection_is_open(void **state) {
  struct rpc_fixture *f = *state;
  struct rpc_fixture other = {.lock = PTHREAD_MUTEX_INITIALIZER};
  Weir__VersionsRequest request = WEIR__VERSIONS_REQUEST__INIT;
  struct rpc_channel *channel;
  struct err err = ERR_NONE;
  char target[64];
  void *reply;
  rpc_fixture_start_server(&other, "127.0.0.1:0", methods, 2);
  snprintf(target, sizeof target, "127.0.0.1:%d", rpc_server_port(other.server));
  channel = rpc_channel_open(f->client, target, PEER_ANY);
  assert_false(rpc_channel_is_connected(channel));
  if (rpc_unary(channel, &(struct rpc_question){RPC_VERSIONS, &request, patience_ms()}, true, &reply, &err))
    fail_msg("%s", err.text);
  protobuf_c_message_free_unpacked(reply, NULL);
  assert_true(rpc_channel_is_connected(channel));
  rpc_server_stop(other.server);
  for (int ms = 0; ms < patience_ms() && rpc_channel_is_connected(channel); ms++)
    nanosleep(&(struct timespec){0, 1000000}, NULL);
  assert_false(rpc_channel_is_connected(channel));
  rpc_channel_close(channel);
}

static void pauses_double_up_to_two_seconds(void **state) {
  (void)state;
  for (int attempt = 0; attempt < 40; attempt++) {
    double middle = attempt < 6 ? 50 << attempt : 2000;
    int pause = rpc_backoff_ms(attempt);
    middle = middle < 2000 ? middle : 2000;
    assert_true(pause >= 0.74 * middle && pause <= 1.26 * middle);
  }
}

static void garbage_bytes_leave_the_server_serving(void **state) {
  struct rpc_fixture *f = *state;
  struct sockaddr_in address = {.sin_family = AF_INET,
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                .sin_port = htons((uint16_t)rpc_server_port(f->server))};
  const char *const openings[] = {"GET / HTTP/1.1\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", ""};
  for (int i = 0; i < 12; i++) {
    char garbage[4096];
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    for (size_t k = 0; k < sizeof garbage; k++)
      garbage[k] = (char)((k * 2654435761u + (unsigned)i * 40503u) >> 7);
    memcpy(garbage, openings[i % 3], strlen(openings[i % 3]));
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(send(fd, garbage, sizeof garbage, MSG_NOSIGNAL), sizeof garbage);
    close(fd);
  }
  assert_serves(f);
}

static void a_message_that_does_not_parse_is_an_invalid_argument(void **state) {
  struct rpc_fixture *f = *state;
  Weir__VersionsRequest request = WEIR__VERSIONS_REQUEST__INIT;
  uint8_t cut_short[] = {0xff, 0x01}, varint[] = {0x01};
  ProtobufCMessageUnknownField fields[] = {{1, 2, sizeof cut_short, cut_short}, {1, 0, 1, varint}};
  const enum rpc_method_id ids[] = {RPC_VERSIONS, RPC_PUSH};
  for (int i = 0; i < 4; i++) {
    struct err err = ERR_NONE;
    void *reply;
    request.base.n_unknown_fields = 1;
    request.base.unknown_fields = &fields[i / 2];
    assert_int_equal(rpc_unary(f->channel, &(struct rpc_question){ids[i % 2], &request, patience_ms()}, false,
                               &reply, &err),
                     ERR_INVALID);
    assert_non_null(strstr(err.text, "not a weir."));
  }
  assert_serves(f);
}

static void a_port_that_is_taken_is_refused_with_the_cause(void **state) {
  struct rpc_fixture *f = *state;
  struct rpc_server_options options = {.listen = f->target};
  struct rpc_server *server = NULL;
  struct err err = ERR_NONE;
  assert_int_equal(rpc_server_start(&options, &server, &err), ERR_UNAVAILABLE);
  assert_non_null(strstr(err.text, f->target));
  assert_non_null(strstr(err.text, "Address already in use"));
}

static void an_address_without_a_port_is_invalid(void **state) {
  const char *const wrong[] = {"localhost", "localhost:", ":7070", "::1", "a:70000", "a:7o", ""};
  (void)state;
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    struct rpc_server_options options = {.listen = wrong[i]};
    struct rpc_server *server = NULL;
    struct err err = ERR_NONE;
    assert_int_equal(rpc_server_start(&options, &server, &err), ERR_INVALID);
  }
}

static void ipv6_addresses_are_served(void **state) {
  struct rpc_fixture *f = *state;
  struct rpc_channel *own = f->channel;
  struct rpc_fixture six = {.lock = PTHREAD_MUTEX_INITIALIZER};
  char target[64];
  int probe = socket(AF_INET6, SOCK_STREAM, 0);
  struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
  bool has_ipv6 = probe >= 0 && bind(probe, (struct sockaddr *)&address, sizeof address) == 0;
  if (probe >= 0)
    close(probe);
  if (!has_ipv6)
    skip();
  rpc_fixture_start_server(&six, "[::1]:0", methods, 2);
  snprintf(target, sizeof target, "[::1]:%d", rpc_server_port(six.server));
  f->channel = rpc_channel_open(f->client, target, PEER_ANY);
  assert_serves(f);
  rpc_channel_close(f->channel);
  f->channel = own;
  rpc_server_stop(six.server);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(a_block_comes_back_bit_for_bit, setup, teardown),
      cmocka_unit_test_setup_teardown(many_blocks_in_flight_all_come_back, setup, teardown),
      cmocka_unit_test_setup_teardown(an_oversized_message_is_refused_and_the_server_lives, setup, teardown),
      cmocka_unit_test_setup_teardown(a_parked_call_is_finished_from_another_thread, setup, teardown),
      cmocka_unit_test_setup_teardown(a_parked_call_whose_client_cancels_is_closed, setup, teardown),
      cmocka_unit_test_setup_teardown(a_call_ends_at_its_deadline, setup, teardown),
      cmocka_unit_test_setup_teardown(stopping_with_parked_calls_ends_them, setup, teardown),
      cmocka_unit_test_setup_teardown(an_error_carries_the_target_and_the_servers_text_in_one_line, setup,
                                      teardown),
      cmocka_unit_test_setup_teardown(a_method_that_is_not_served_is_unsupported, setup, teardown),
      cmocka_unit_test_setup_teardown(an_unreachable_target_is_named_quickly_and_clearly, setup, teardown),
      cmocka_unit_test_setup_teardown(retries_reach_a_server_that_starts_late, setup, teardown),
      cmocka_unit_test_setup_teardown(a_busy_server_is_asked_again_and_one_without_memory_is_not, setup,
                                      teardown),
      cmocka_unit_test_setup_teardown(a_channel_knows_whether_its_connection_is_open, setup, teardown),
      cmocka_unit_test(pauses_double_up_to_two_seconds),
      cmocka_unit_test_setup_teardown(garbage_bytes_leave_the_server_serving, setup, teardown),
      cmocka_unit_test_setup_teardown(a_message_that_does_not_parse_is_an_invalid_argument, setup, teardown),
      cmocka_unit_test_setup_teardown(a_port_that_is_taken_is_refused_with_the_cause, setup, teardown),
      cmocka_unit_test(an_address_without_a_port_is_invalid),
      cmocka_unit_test_setup_teardown(ipv6_addresses_are_served, setup, teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
