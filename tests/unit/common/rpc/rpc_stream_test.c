/* Streams of every kind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cluster.pb-c.h"
#include "common/base/clock.h"
#include "tests/support/common/patience.h"
#include "tests/support/common/rpc_fixture.h"
#include "training.pb-c.h"

/* Sends `from` events, then ends; the run "endless" is parked instead. */
static void watch(struct rpc_call *call, const void *message, struct rpc_bytes *bytes) {
  const Weir__WatchRequest *request = message;
  assert_null(bytes);
  for (uint64_t i = 0; i < request->from; i++) {
    Weir__RunEvent event = WEIR__RUN_EVENT__INIT;
    event.number = i;
    assert_int_equal(rpc_call_send(call, &event, NULL), ERR_OK);
  }
  if (strcmp(request->run, "endless") == 0)
    rpc_fixture_park(rpc_call_context(call), call);
  else if (strcmp(request->run, "broken") == 0)
    rpc_call_fail(call, ERR_CORRUPT, "it broke");
  else
    rpc_call_finish(call, NULL);
}

static void submit(struct rpc_call *call, const void *message, struct rpc_bytes *bytes) {
  struct rpc_fixture *f = rpc_call_context(call);
  assert_null(bytes);
  rpc_call_set_user(call, f);
  pthread_mutex_lock(&f->lock);
  f->n_bytes += ((const Weir__SubmitRequest *)message)->chunk.len;
  pthread_mutex_unlock(&f->lock);
  rpc_fixture_count(f, &f->n_messages);
}

static void submit_half_closed(struct rpc_call *call) {
  struct rpc_fixture *f = rpc_call_context(call);
  Weir__SubmitReply reply = WEIR__SUBMIT_REPLY__INIT;
  reply.run = "run-000001";
  assert_ptr_equal(rpc_call_user(call), f);
  rpc_call_set_user(call, NULL);
  rpc_call_reply(call, &reply, NULL);
  rpc_fixture_count(f, &f->n_half_closed);
}

static void submit_closed(struct rpc_call *call) {
  if (rpc_call_user(call)) /* cancelled before its half-close */
    rpc_call_finish(call, NULL);
  rpc_fixture_count_closed(call);
}

/* Answers each hello with a welcome of the same name; "bye" ends the stream from here. */
static void join(struct rpc_call *call, const void *message, struct rpc_bytes *bytes) {
  const Weir__MemberMessage *member = message;
  struct rpc_fixture *f = rpc_call_context(call);
  Weir__Welcome welcome = WEIR__WELCOME__INIT;
  Weir__Order order = WEIR__ORDER__INIT;
  assert_null(bytes);
  rpc_fixture_count(f, &f->n_messages);
  if (member->body_case != WEIR__MEMBER_MESSAGE__BODY_HELLO)
    return;
  welcome.id = member->hello->host;
  order.body_case = WEIR__ORDER__BODY_WELCOME;
  order.welcome = &welcome;
  rpc_call_send(call, &order, NULL);
  if (strcmp(member->hello->host, "bye") == 0) {
    rpc_call_set_user(call, f);
    rpc_call_finish(call, NULL);
  }
}

static void join_half_closed(struct rpc_call *call) {
  struct rpc_fixture *f = rpc_call_context(call);
  rpc_call_set_user(call, f);
  rpc_call_finish(call, NULL);
  rpc_fixture_count(f, &f->n_half_closed);
}

static void join_closed(struct rpc_call *call) {
  if (!rpc_call_user(call))
    rpc_call_finish(call, NULL);
  rpc_fixture_count_closed(call);
}

static const struct rpc_method methods[] = {
    {.id = RPC_WATCH, .on_message = watch, .on_closed = rpc_fixture_count_closed},
    {.id = RPC_SUBMIT,
     .is_request_stream = true,
     .on_message = submit,
     .on_half_close = submit_half_closed,
     .on_closed = submit_closed},
    {.id = RPC_JOIN,
     .is_request_stream = true,
     .on_message = join,
     .on_half_close = join_half_closed,
     .on_closed = join_closed},
};

static int setup(void **state) {
  struct rpc_fixture *f = calloc(1, sizeof *f);
  rpc_fixture_init(f, methods, 3);
  *state = f;
  return 0;
}

static int teardown(void **state) {
  rpc_fixture_fini(*state);
  free(*state);
  return 0;
}

static struct rpc_reader *open_watch(struct rpc_fixture *f, const char *run, uint64_t from) {
  struct rpc_reader *reader = rpc_reader_open(f->channel, RPC_WATCH, patience_ms());
  Weir__WatchRequest request = WEIR__WATCH_REQUEST__INIT;
  struct err err = ERR_NONE;
  request.run = (char *)run;
  request.from = from;
  if (rpc_reader_send(reader, &request, &err))
    fail_msg("%s", err.text);
  rpc_reader_half_close(reader);
  return reader;
}

static void assert_events(struct rpc_reader *reader, uint64_t n) {
  struct err err = ERR_NONE;
  for (uint64_t i = 0; i < n; i++) {
    Weir__RunEvent *event;
    if (rpc_reader_next(reader, (void **)&event, &err))
      fail_msg("%s", err.text);
    assert_non_null(event);
    assert_int_equal(event->number, i);
    protobuf_c_message_free_unpacked(&event->base, NULL);
  }
}

static void a_server_stream_arrives_whole_and_in_order(void **state) {
  struct rpc_fixture *f = *state;
  struct rpc_reader *reader = open_watch(f, "short", 3000);
  struct err err = ERR_NONE;
  void *reply;
  assert_events(reader, 3000);
  assert_int_equal(rpc_reader_next(reader, &reply, &err), ERR_OK);
  assert_null(reply);
  rpc_reader_close(reader);
  rpc_fixture_wait(f, &f->n_closed, 1);
}

static void an_error_comes_after_what_was_sent_before_it(void **state) {
  struct rpc_fixture *f = *state;
  struct rpc_reader *reader = open_watch(f, "broken", 2);
  struct err err = ERR_NONE;
  void *reply;
  assert_events(reader, 2);
  assert_int_equal(rpc_reader_next(reader, &reply, &err), ERR_CORRUPT);
  assert_non_null(strstr(err.text, ": it broke"));
  rpc_reader_close(reader);
}

static void *cancel_reader(void *reader) {
  rpc_reader_cancel(reader);
  return NULL;
}

static void a_reader_that_waits_is_cancelled_from_another_thread(void **state) {
  struct rpc_fixture *f = *state;
  struct rpc_reader *reader = open_watch(f, "endless", 1);
  struct err err = ERR_NONE;
  pthread_t thread;
  void *reply;
  assert_events(reader, 1);
  rpc_fixture_wait(f, &f->n_parked, 1);
  pthread_create(&thread, NULL, cancel_reader, reader);
  assert_int_equal(rpc_reader_next(reader, &reply, &err), ERR_CANCELLED);
  pthread_join(thread, NULL);
  rpc_reader_close(reader);
  rpc_fixture_wait(f, &f->n_closed, 1);
  rpc_call_finish(f->parked[0], NULL);
}

/* The client reads nothing: the server's queue fills, and says so. */
static void a_client_that_does_not_read_makes_the_server_busy(void **state) {
  struct rpc_fixture *f = *state;
  struct rpc_reader *reader = open_watch(f, "endless", 0);
  Weir__RunEvent event = WEIR__RUN_EVENT__INIT;
  Weir__RunInfo info = WEIR__RUN_INFO__INIT;
  char text[4096] = {0};
  int code = ERR_OK;
  rpc_fixture_wait(f, &f->n_parked, 1);
  memset(text, 'x', sizeof text - 1);
  info.message = text;
  event.event_case = WEIR__RUN_EVENT__EVENT_INFO;
  event.info = &info;
  for (int i = 0; i < 20000 && !code; i++)
    code = rpc_call_send(f->parked[0], &event, NULL);
  assert_int_equal(code, ERR_BUSY);
  assert_true(rpc_call_waiting(f->parked[0]) >= 4096);
  rpc_reader_close(reader);
  rpc_fixture_wait(f, &f->n_closed, 1);
  rpc_call_finish(f->parked[0], NULL);
}

static void a_client_stream_is_received_whole(void **state) {
  struct rpc_fixture *f = *state;
  struct rpc_reader *reader = rpc_reader_open(f->channel, RPC_SUBMIT, patience_ms());
  Weir__SubmitRequest request = WEIR__SUBMIT_REQUEST__INIT;
  Weir__SubmitReply *reply;
  struct err err = ERR_NONE;
  request.chunk.len = RPC_CHUNK_BYTES;
  request.chunk.data = calloc(1, RPC_CHUNK_BYTES);
  for (int i = 0; i < 5; i++)
    assert_int_equal(rpc_reader_send(reader, &request, &err), ERR_OK);
  rpc_reader_half_close(reader);
  assert_int_equal(rpc_reader_next(reader, (void **)&reply, &err), ERR_OK);
  assert_string_equal(reply->run, "run-000001");
  protobuf_c_message_free_unpacked(&reply->base, NULL);
  rpc_reader_close(reader);
  rpc_fixture_wait(f, &f->n_closed, 1);
  assert_int_equal(f->n_bytes, 5 * RPC_CHUNK_BYTES);
  free(request.chunk.data);
}

static void a_client_stream_that_is_cancelled_is_closed_without_a_half_close(void **state) {
  struct rpc_fixture *f = *state;
  struct rpc_reader *reader = rpc_reader_open(f->channel, RPC_SUBMIT, patience_ms());
  Weir__SubmitRequest request = WEIR__SUBMIT_REQUEST__INIT;
  struct err err = ERR_NONE;
  assert_int_equal(rpc_reader_send(reader, &request, &err), ERR_OK);
  rpc_fixture_wait(f, &f->n_messages, 1);
  rpc_reader_close(reader);
  rpc_fixture_wait(f, &f->n_closed, 1);
  assert_int_equal(f->n_half_closed, 0);
}

static void park_half_closed(struct rpc_call *call) {
  rpc_call_set_user(call, NULL);
  rpc_fixture_park(rpc_call_context(call), call);
}

static void expect_ended(struct rpc_reader *reader) {
  struct err err = ERR_NONE;
  void *reply;
  assert_int_equal(rpc_reader_next(reader, &reply, &err), ERR_CANCELLED);
  if (!strstr(err.text, "the client sent nothing for 2 s, and not all had come"))
    fail_msg("%s", err.text);
  rpc_reader_close(reader);
}

static const struct rpc_method idle_methods[] = {{.id = RPC_SUBMIT,
                                                  .is_request_stream = true,
                                                  .on_message = submit,
                                                  .on_half_close = park_half_closed,
                                                  .on_closed = submit_closed,
                                                  .idle_ms = 2000}};

/* Of four: one has sent all and waits for its answer, two say nothing at all, one sent a message. False: this
   process stood still before all of that had come, and the server ended them for that. */
static bool silence_is_ended(void) {
  struct rpc_fixture f;
  struct rpc_reader *whole, *silent[2], *begun;
  Weir__SubmitRequest request = WEIR__SUBMIT_REQUEST__INIT;
  Weir__SubmitReply reply = WEIR__SUBMIT_REPLY__INIT, *got = NULL;
  struct err err = ERR_NONE;
  uint64_t begin_ns;
  bool is_whole_there, is_all_there;
  rpc_fixture_init(&f, idle_methods, 1);
  whole = rpc_reader_open(f.channel, RPC_SUBMIT, patience_ms());
  rpc_reader_send(whole, &request, &err);
  rpc_reader_half_close(whole);
  for (int i = 0; i < 2; i++)
    silent[i] = rpc_reader_open(f.channel, RPC_SUBMIT, patience_ms());
  begun = rpc_reader_open(f.channel, RPC_SUBMIT, patience_ms());
  begin_ns = clock_now_ns();
  rpc_reader_send(begun, &request, &err);
  expect_ended(begun);
  pthread_mutex_lock(&f.lock);
  is_whole_there = f.n_parked == 1;
  is_all_there = is_whole_there && f.n_messages == 2;
  pthread_mutex_unlock(&f.lock);
  assert_true(!is_all_there || clock_now_ns() - begin_ns >= 2000000000);
  expect_ended(silent[0]);
  expect_ended(silent[1]);
  if (is_all_there)
    rpc_fixture_wait(&f, &f.n_closed, 1); /* the owner of the one that it knew is told */
  reply.run = (char *)"late";
  if (is_whole_there) {
    rpc_call_reply(f.parked[0], &reply, NULL);
    assert_int_equal(rpc_reader_next(whole, (void **)&got, &err), ERR_OK);
    assert_string_equal(got->run, "late");
    protobuf_c_message_free_unpacked(&got->base, NULL);
  }
  rpc_reader_close(whole);
  rpc_fixture_fini(&f);
  return is_all_there;
}

static void a_client_stream_that_falls_silent_is_ended(void **state) {
  (void)state;
  while (!silence_is_ended())
    continue;
}

static void garbage_in_mid_stream_ends_the_stream_only(void **state) {
  struct rpc_fixture *f = *state;
  struct rpc_reader *reader = rpc_reader_open(f->channel, RPC_SUBMIT, patience_ms());
  Weir__SubmitRequest request = WEIR__SUBMIT_REQUEST__INIT;
  uint8_t garbage[] = {0xff, 0xff, 0x01};
  ProtobufCMessageUnknownField field = {3, 2, sizeof garbage, garbage};
  struct err err = ERR_NONE;
  void *reply;
  assert_int_equal(rpc_reader_send(reader, &request, &err), ERR_OK);
  rpc_fixture_wait(f, &f->n_messages, 1);
  request.base.n_unknown_fields = 1;
  request.base.unknown_fields = &field;
  assert_int_equal(rpc_reader_send(reader, &request, &err), ERR_OK);
  assert_int_equal(rpc_reader_next(reader, &reply, &err), ERR_INVALID);
  assert_non_null(strstr(err.text, "not a weir.SubmitRequest"));
  rpc_reader_close(reader);
  rpc_fixture_wait(f, &f->n_closed, 1);
}

static void a_stream_without_any_message_is_invalid(void **state) {
  struct rpc_fixture *f = *state;
  struct rpc_reader *reader = rpc_reader_open(f->channel, RPC_WATCH, patience_ms());
  struct err err = ERR_NONE;
  void *reply;
  rpc_reader_half_close(reader);
  assert_int_equal(rpc_reader_next(reader, &reply, &err), ERR_INVALID);
  rpc_reader_close(reader);
}

struct member {
  struct rpc_fixture *f;
  int n_welcomes, n_ends;
  char last[32];
  struct err err;
};

static void member_message(void *user, const void *message) {
  struct member *member = user;
  const Weir__Order *order = message;
  assert_int_equal(order->body_case, WEIR__ORDER__BODY_WELCOME);
  snprintf(member->last, sizeof member->last, "%s", order->welcome->id);
  rpc_fixture_count(member->f, &member->n_welcomes);
}

static void member_end(void *user, const struct err *err) {
  struct member *member = user;
  member->err = *err;
  rpc_fixture_count(member->f, &member->n_ends);
}

static struct rpc_stream *member_open(struct member *member, struct rpc_fixture *f,
                                      struct rpc_channel *channel) {
  *member = (struct member){.f = f};
  return rpc_stream_open(channel, RPC_JOIN,
                         &(struct rpc_stream_handlers){member_message, member_end, member});
}

static int member_hello(struct rpc_stream *stream, const char *host) {
  Weir__MemberMessage message = WEIR__MEMBER_MESSAGE__INIT;
  Weir__Hello hello = WEIR__HELLO__INIT;
  hello.host = (char *)host;
  message.body_case = WEIR__MEMBER_MESSAGE__BODY_HELLO;
  message.hello = &hello;
  return rpc_stream_send(stream, &message);
}

static void a_bidirectional_stream_answers_each_message(void **state) {
  struct rpc_fixture *f = *state;
  struct member member;
  struct rpc_stream *stream = member_open(&member, f, f->channel);
  for (int i = 0; i < 500; i++)
    assert_int_equal(member_hello(stream, i < 499 ? "some" : "last"), ERR_OK);
  rpc_fixture_wait(f, &member.n_welcomes, 500);
  assert_string_equal(member.last, "last");
  rpc_stream_half_close(stream);
  rpc_fixture_wait(f, &member.n_ends, 1);
  assert_int_equal(member.err.code, ERR_OK);
  rpc_stream_close(stream);
  rpc_fixture_wait(f, &f->n_closed, 1);
  assert_int_equal(f->n_half_closed, 1);
}

static void a_stream_that_the_server_ends_ends_well(void **state) {
  struct rpc_fixture *f = *state;
  struct member member;
  struct rpc_stream *stream = member_open(&member, f, f->channel);
  member_hello(stream, "bye");
  rpc_fixture_wait(f, &member.n_ends, 1);
  assert_int_equal(member.n_welcomes, 1);
  assert_int_equal(member.err.code, ERR_OK);
  assert_int_equal(member_hello(stream, "late"), ERR_CANCELLED);
  rpc_fixture_wait(f, &f->n_closed, 1);
  rpc_stream_close(stream);
}

static void a_stream_that_its_client_closes_is_closed_at_the_server(void **state) {
  struct rpc_fixture *f = *state;
  struct member member;
  struct rpc_stream *stream = member_open(&member, f, f->channel);
  member_hello(stream, "some");
  rpc_fixture_wait(f, &member.n_welcomes, 1);
  rpc_stream_close(stream);
  assert_int_equal(member.n_ends, 1);
  assert_int_equal(member.err.code, ERR_CANCELLED);
  rpc_fixture_wait(f, &f->n_closed, 1);
  assert_int_equal(f->n_half_closed, 0);
}

static void a_stream_to_a_stopped_server_ends_as_unavailable(void **state) {
  struct rpc_fixture *f = *state;
  struct member member, later;
  struct rpc_stream *stream = member_open(&member, f, f->channel);
  member_hello(stream, "some");
  rpc_fixture_wait(f, &member.n_welcomes, 1);
  rpc_server_stop(f->server);
  f->server = NULL;
  rpc_fixture_wait(f, &member.n_ends, 1);
  assert_int_equal(member.err.code, ERR_UNAVAILABLE);
  rpc_stream_close(stream);
  stream = member_open(&later, f, f->channel);
  rpc_fixture_wait(f, &later.n_ends, 1);
  assert_int_equal(later.err.code, ERR_UNAVAILABLE);
  rpc_stream_close(stream);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
  const struct CMUnitTest tests[] = {
      TEST(a_server_stream_arrives_whole_and_in_order),
      TEST(an_error_comes_after_what_was_sent_before_it),
      TEST(a_reader_that_waits_is_cancelled_from_another_thread),
      TEST(a_client_that_does_not_read_makes_the_server_busy),
      TEST(a_client_stream_is_received_whole),
      TEST(a_client_stream_that_is_cancelled_is_closed_without_a_half_close),
      TEST(a_client_stream_that_falls_silent_is_ended),
      TEST(garbage_in_mid_stream_ends_the_stream_only),
      TEST(a_stream_without_any_message_is_invalid),
      TEST(a_bidirectional_stream_answers_each_message),
      TEST(a_stream_that_the_server_ends_ends_well),
      TEST(a_stream_that_its_client_closes_is_closed_at_the_server),
      TEST(a_stream_to_a_stopped_server_ends_as_unavailable),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
