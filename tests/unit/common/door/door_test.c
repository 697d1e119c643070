/* What is watched of a client's frames, and how many connections each address may have. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>

#include <cmocka.h>

#include "common/base/limits.h"
#include "common/door/header_watch.h"
#include "common/door/visitors.h"

enum {
  DATA = 0,
  HEADERS = 1,
  RESET = 3,
  SETTINGS = 4,
  CONTINUATION = 9,
  END_HEADERS = 4,
  STREAM_MAX = 1 << 20
};

/* What a client sends. */
struct stream {
  uint8_t bytes[STREAM_MAX];
  size_t size;
};

static void begin(struct stream *stream) {
  static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  memcpy(stream->bytes, preface, sizeof preface - 1);
  stream->size = sizeof preface - 1;
}

/* A frame whose payload looks like heads of HEADERS frames. */
static void add(struct stream *stream, int type, int flags, size_t payload) {
  uint8_t head[9] = {(uint8_t)(payload >> 16),
                     (uint8_t)(payload >> 8),
                     (uint8_t)payload,
                     (uint8_t)type,
                     (uint8_t)flags,
                     0,
                     0,
                     0,
                     1};
  assert_true(stream->size + sizeof head + payload <= STREAM_MAX);
  memcpy(stream->bytes + stream->size, head, sizeof head);
  memset(stream->bytes + stream->size + sizeof head, HEADERS, payload);
  stream->size += sizeof head + payload;
}

/* In pieces of that size; where it was refused, or the whole size. */
static size_t feed(const struct stream *stream, size_t piece) {
  struct header_watch watch = {0};
  for (size_t at = 0; at < stream->size; at += piece)
    if (!header_watch_feed(&watch, stream->bytes + at,
                           piece < stream->size - at ? piece : stream->size - at)) {
      assert_false(header_watch_feed(&watch, stream->bytes, 1)); /* for good */
      return at;
    }
  return stream->size;
}

static void expect(const struct stream *stream, bool is_refused) {
  static const size_t pieces[] = {1, 2, 7, 9, 1000, 16384, STREAM_MAX};
  for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++)
    if ((feed(stream, pieces[i]) < stream->size) != is_refused)
      fail_msg("in pieces of %zu: %s", pieces[i], is_refused ? "taken" : "refused");
}

static struct stream stream;

static void what_a_client_sends_is_taken_whatever_its_payloads_are(void **state) {
  (void)state;
  begin(&stream);
  add(&stream, SETTINGS, 0, 36);
  for (int call = 0; call < 100; call++) {
    add(&stream, HEADERS, END_HEADERS, 200);
    add(&stream, DATA, 0, 5000);
    add(&stream, 77, 0, 3);
    add(&stream, DATA, 1, 0);
    add(&stream, RESET, 0, 4);
  }
  for (int call = 0; call < 5; call++) {
    add(&stream, HEADERS, 0, LIMIT_HEADER_BYTES / 2);
    for (int i = 2; i < LIMIT_HEADER_FRAMES; i++)
      add(&stream, CONTINUATION, 0, 100);
    add(&stream, CONTINUATION, END_HEADERS, 100);
  }
  add(&stream, HEADERS, END_HEADERS, LIMIT_HEADER_BYTES);
  expect(&stream, false);
}

static void headers_of_too_many_bytes_are_refused_before_they_have_come(void **state) {
  (void)state;
  begin(&stream);
  add(&stream, HEADERS, END_HEADERS, LIMIT_HEADER_BYTES + 1);
  expect(&stream, true);
  assert_true(feed(&stream, 1) < 24 + 9);
  begin(&stream);
  add(&stream, HEADERS, 0, LIMIT_HEADER_BYTES);
  add(&stream, CONTINUATION, END_HEADERS, 1);
  expect(&stream, true);
}

static void headers_of_too_many_frames_are_refused(void **state) {
  (void)state;
  begin(&stream);
  add(&stream, HEADERS, 0, 0);
  for (int i = 1; i <= LIMIT_HEADER_FRAMES; i++)
    add(&stream, CONTINUATION, 0, 0);
  expect(&stream, true);
}

static void what_is_no_http2_is_not_watched(void **state) {
  (void)state;
  begin(&stream);
  stream.bytes[20] ^= 1;
  add(&stream, HEADERS, 0, 10 * LIMIT_HEADER_BYTES);
  expect(&stream, false);
}

static int enter(struct visitors *visitors, const char *text, struct visitor **visitor, struct err *err) {
  struct sockaddr_in four = {.sin_family = AF_INET};
  struct sockaddr_in6 six = {.sin6_family = AF_INET6};
  struct sockaddr_un local = {.sun_family = AF_UNIX};
  bool is_four = inet_pton(AF_INET, text, &four.sin_addr) == 1;
  bool is_six = !is_four && inet_pton(AF_INET6, text, &six.sin6_addr) == 1;
  *err = ERR_NONE;
  return visitors_enter(visitors,
                        is_four  ? (void *)&four
                        : is_six ? (void *)&six
                                 : (void *)&local,
                        visitor, err);
}

static void an_address_has_its_share_and_no_more(void **state) {
  struct visitors *visitors = visitors_new(80); /* 60 connections, 30 of an address */
  struct visitor *first[30], *one, *v4mapped;
  struct err err;
  (void)state;
  for (int i = 0; i < 30; i++)
    assert_int_equal(enter(visitors, i % 2 ? "10.0.0.7" : "::ffff:10.0.0.7", &first[i], &err), 0);
  assert_int_equal(enter(visitors, "10.0.0.7", &one, &err), ERR_BUSY);
  assert_non_null(strstr(err.text, "10.0.0.7: it has 30 open"));
  assert_int_equal(enter(visitors, "::ffff:10.0.0.7", &v4mapped, &err), ERR_BUSY);
  assert_int_equal(enter(visitors, "10.0.0.8", &one, &err), 0);
  visitors_leave(visitors, one);
  visitors_leave(visitors, first[0]);
  assert_int_equal(enter(visitors, "10.0.0.7", &first[0], &err), 0);
  for (int i = 0; i < 30; i++)
    visitors_leave(visitors, first[i]);
  assert_int_equal(visitors_count(visitors), 0);
  visitors_free(visitors);
}

static void all_addresses_of_a_network_of_ipv6_share(void **state) {
  struct visitors *visitors = visitors_new(80);
  struct visitor *visitor;
  struct err err;
  char text[64];
  (void)state;
  for (int i = 0; i < 30; i++) {
    snprintf(text, sizeof text, "2001:db8:1:2:%x::1", i);
    assert_int_equal(enter(visitors, text, &visitor, &err), 0);
  }
  assert_int_equal(enter(visitors, "2001:db8:1:2::9", &visitor, &err), ERR_BUSY);
  assert_int_equal(enter(visitors, "2001:db8:1:3::9", &visitor, &err), 0);
  visitors_free(visitors);
}

static void all_together_leave_descriptors_to_the_process(void **state) {
  struct visitors *visitors = visitors_new(80);
  struct visitor *visitor;
  struct err err;
  char text[64];
  (void)state;
  for (int i = 0; i < 60; i++) {
    snprintf(text, sizeof text, "10.0.0.%d", i);
    assert_int_equal(enter(visitors, i % 3 ? text : "unix", &visitor, &err), 0);
    assert_true(!visitor == !(i % 3));
  }
  assert_int_equal(enter(visitors, "10.1.1.1", &visitor, &err), ERR_BUSY);
  assert_non_null(strstr(err.text, "60 are open"));
  assert_int_equal(enter(visitors, "unix", &visitor, &err), ERR_BUSY);
  visitors_free(visitors);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_a_client_sends_is_taken_whatever_its_payloads_are),
      cmocka_unit_test(headers_of_too_many_bytes_are_refused_before_they_have_come),
      cmocka_unit_test(headers_of_too_many_frames_are_refused),
      cmocka_unit_test(what_is_no_http2_is_not_watched),
      cmocka_unit_test(an_address_has_its_share_and_no_more),
      cmocka_unit_test(all_addresses_of_a_network_of_ipv6_share),
      cmocka_unit_test(all_together_leave_descriptors_to_the_process),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
