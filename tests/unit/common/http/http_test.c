/* Listeners of HTTP: what is answered, and what others may take. */
#include <arpa/inet.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/limits.h"
#include "common/http/http.h"
#include "tests/support/common/patience.h"

enum { LATE_MS = 300, BODY_MAX = 8 };

static void answer_hello(void *user, const struct http_request *request, struct http_answer *answer) {
  const char *who = http_query(request, "who");
  http_answer_text(request, answer, 200, "%s %s", (const char *)user, who ? who : "you");
}

static void answer_rest(void *user, const struct http_request *request, struct http_answer *answer) {
  (void)user;
  http_answer_text(request, answer, 200, "rest=%s", request->rest);
}

static void answer_body(void *user, const struct http_request *request, struct http_answer *answer) {
  (void)user;
  http_answer_text(request, answer, 201, "%.*s", (int)request->body_bytes, (const char *)request->body);
  answer->headers[0] = (struct http_field){"X-Page", http_header(request, "X-Page")};
}

static const struct http_route routes[] = {
    {.method = "GET", .path = "/hello", .answer = answer_hello},
    {.method = "GET", .path = "/runs/", .answer = answer_rest, .is_prefix = true},
    {.method = "POST", .path = "/body", .answer = answer_body, .body_max_bytes = BODY_MAX},
};

static struct http *listener_new(int late_ms) {
  struct http *http;
  struct err err = ERR_NONE;
  const struct http_options options = {.listen = "127.0.0.1:0",
                                       .routes = routes,
                                       .n_routes = sizeof routes / sizeof *routes,
                                       .user = "hello",
                                       .late_ms = late_ms};
  assert_int_equal(http_open(&options, &http, &err), 0);
  return http;
}

static int caller_new(const struct http *http) {
  struct sockaddr_in address = {.sin_family = AF_INET,
                                .sin_port = htons((uint16_t)http_port(http)),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
  return fd;
}

/* What is sent until the other end hangs up, as a text. */
static char *read_all(int fd) {
  static char text[65536];
  size_t length = 0;
  for (;;) {
    struct pollfd readable = {.fd = fd, .events = POLLIN};
    ssize_t got;
    assert_int_equal(poll(&readable, 1, patience_ms()), 1);
    got = read(fd, text + length, sizeof text - 1 - length);
    if (got <= 0)
      break;
    length += (size_t)got;
  }
  text[length] = '\0';
  close(fd);
  return text;
}

static char *ask(const struct http *http, const char *request) {
  int fd = caller_new(http);
  assert_int_equal(send(fd, request, strlen(request), MSG_NOSIGNAL), strlen(request));
  return read_all(fd);
}

#define END "\r\nHost: localhost\r\nConnection: close\r\n\r\n"

/* On a slow machine a listener may cut what it should answer, as late: that is asked again. */
static void assert_answers(const struct http *http, const char *request, int status, const char *text) {
  const char *answer;
  char begin[32];
  do
    answer = ask(http, request);
  while (!*answer);
  snprintf(begin, sizeof begin, "HTTP/1.1 %d ", status);
  assert_memory_equal(answer, begin, strlen(begin));
  assert_non_null(strstr(answer, text));
}

static void a_request_is_answered_by_the_route_of_its_method_and_path(void **state) {
  struct http *http = listener_new(0);
  (void)state;
  assert_answers(http, "GET /hello?who=all%20of%20you HTTP/1.1" END, 200, "\r\n\r\nhello all of you\n");
  assert_answers(http, "GET /runs/a/b HTTP/1.1" END, 200, "rest=a/b");
  assert_answers(http, "GET /hello/ HTTP/1.1" END, 404, "nothing at this path");
  assert_answers(http, "GET / HTTP/1.1" END, 404, "nothing at this path");
  assert_answers(http, "POST /hello HTTP/1.1" END, 405, "Allow: GET");
  assert_answers(http, "DELETE /body HTTP/1.1" END, 405, "Allow: POST");
  assert_null(strstr(ask(http, "HEAD /hello HTTP/1.1" END), "hello you"));
  http_close(http);
}

static void a_body_comes_whole_or_is_refused(void **state) {
  struct http *http = listener_new(0);
  (void)state;
  assert_answers(http, "POST /body HTTP/1.1\r\nX-Page: 7\r\nContent-Length: 8" END "12345678", 201,
                 "12345678");
  assert_answers(http, "POST /body HTTP/1.1\r\nX-Page: 7\r\nContent-Length: 8" END "12345678", 201,
                 "X-Page: 7");
  assert_answers(http, "POST /body HTTP/1.1\r\nContent-Length: 9" END "123456789", 413, "8 bytes");
  assert_answers(http, "GET /hello HTTP/1.1\r\nContent-Length: 1" END "1", 413, "0 bytes");
  assert_string_equal(
      ask(http, "POST /body HTTP/1.1\r\nTransfer-Encoding: chunked" END "9\r\n123456789\r\n0\r\n\r\n"), "");
  http_close(http);
}

static void a_port_of_this_machine_has_no_other_name(void **state) {
  struct http *http = listener_new(0);
  (void)state;
  assert_answers(http, "GET /hello HTTP/1.1\r\nHost: weir.example:80\r\nConnection: close\r\n\r\n", 421,
                 "alone");
  assert_answers(http, "GET /hello HTTP/1.1\r\nHost: 127.0.0.1.weir.example\r\nConnection: close\r\n\r\n",
                 421, "alone");
  assert_answers(http, "GET /hello HTTP/1.1\r\nHost: [::1]:80\r\nConnection: close\r\n\r\n", 200, "hello");
  assert_answers(http, "GET /hello HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n", 200, "hello");
  http_close(http);
}

static void garbage_is_refused_and_takes_nothing_from_others(void **state) {
  static char headers[4 * LIMIT_HTTP_HEADER_BYTES];
  struct http *http = listener_new(LATE_MS);
  (void)state;
  memset(headers, 'a', sizeof headers - 1);
  memcpy(headers, "GET /hello HTTP/1.1\r\nA: ", 24);
  assert_answers(http, headers, 431, "");
  ask(http, "\x16\x03\x01\x02\x01\x01\xfc\r\n\r\n");
  ask(http, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
  for (int i = 0; i < 2 * LIMIT_HTTP_CONNECTIONS; i++)
    close(caller_new(http));
  assert_answers(http, "GET /hello HTTP/1.1" END, 200, "hello");
  http_close(http);
}

static void connections_beyond_the_bound_wait_until_late_ones_are_cut(void **state) {
  struct http *http = listener_new(LATE_MS);
  int callers[LIMIT_HTTP_CONNECTIONS];
  (void)state;
  for (int i = 0; i < LIMIT_HTTP_CONNECTIONS; i++) {
    callers[i] = caller_new(http);
    assert_int_equal(send(callers[i], "GET /hello HTTP/1.1\r\nA", 22, MSG_NOSIGNAL), 22);
  }
  assert_answers(http, "GET /hello HTTP/1.1" END, 200, "hello");
  for (int i = 0; i < LIMIT_HTTP_CONNECTIONS; i++)
    assert_string_equal(read_all(callers[i]), "");
  http_close(http);
}

static void a_late_request_is_cut_though_it_goes_on_and_on(void **state) {
  struct http *http = listener_new(LATE_MS);
  int fd = caller_new(http), sent = 0;
  (void)state;
  while (send(fd, "G", 1, MSG_NOSIGNAL) == 1 && sent++ < patience_ms() / 10)
    usleep(10000);
  assert_true(sent < patience_ms() / 10);
  close(fd);
  http_close(http);
}

static void an_address_is_checked_by_the_rule_of_all_ports(void **state) {
  struct http *http;
  struct err err = ERR_NONE;
  (void)state;
  assert_int_equal(http_open(&(struct http_options){.listen = "0.0.0.0:0"}, &http, &err), ERR_INVALID);
  assert_non_null(strstr(err.text, "beyond this machine"));
  assert_int_equal(http_open(&(struct http_options){.listen = "nothing"}, &http, &err), ERR_INVALID);
  assert_int_equal(http_open(&(struct http_options){.listen = "unix:/tmp/a"}, &http, &err), ERR_INVALID);
  assert_int_equal(http_open(&(struct http_options){.listen = "localhost:0", .threads = 2}, &http, &err), 0);
  http_close(http);
  assert_int_equal(http_open(&(struct http_options){.listen = "0.0.0.0:0", .is_insecure = true}, &http, &err),
                   0);
  http_close(http);
  http_close(NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_request_is_answered_by_the_route_of_its_method_and_path),
      cmocka_unit_test(a_body_comes_whole_or_is_refused),
      cmocka_unit_test(a_port_of_this_machine_has_no_other_name),
      cmocka_unit_test(garbage_is_refused_and_takes_nothing_from_others),
      cmocka_unit_test(connections_beyond_the_bound_wait_until_late_ones_are_cut),
      cmocka_unit_test(a_late_request_is_cut_though_it_goes_on_and_on),
      cmocka_unit_test(an_address_is_checked_by_the_rule_of_all_ports),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
