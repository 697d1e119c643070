/* The log: an event is a line. */
#include "common/base/log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

enum { LONG = 10000 };

/* What the events that `say` logs are on stderr. */
static char *said_by(void (*say)(void)) {
  static char said[4 * LONG];
  int former = dup(STDERR_FILENO), file = memfd_create("log", 0);
  ssize_t n;
  assert_true(former >= 0 && file >= 0 && dup2(file, STDERR_FILENO) >= 0);
  say();
  fflush(stderr);
  assert_true(dup2(former, STDERR_FILENO) >= 0);
  n = pread(file, said, sizeof said - 1, 0);
  close(file);
  close(former);
  assert_true(n >= 0);
  said[n] = '\0';
  return said;
}

static void say_long(void) {
  static char value[LONG + 1];
  memset(value, 'x', LONG);
  value[1] = '\n';
  value[LONG - 1] = 0x1b;
  log_event(LOG_ERROR, "test", "long", "value=\"%s\" end=%d", value, 7);
  log_event(LOG_ERROR, "test", "short", "a=1");
}

static void a_line_is_neither_cut_nor_broken_in_two(void **state) {
  const char *said = said_by(say_long);
  (void)state;
  assert_non_null(strstr(said, " error test long value=\"x?xx"));
  assert_non_null(strstr(said, "x?\" end=7\n20"));
  assert_ptr_equal(strchr(said, '\n'), strstr(said, " end=7\n") + strlen(" end=7"));
  assert_non_null(strstr(said, " error test short a=1\n"));
}

static void say_fields(void) {
  log_event(LOG_INFO, "test", "numbers", "i=%d u=%u l=%lu ll=%llu z=%zu r=%.2f n=%g x=%016llx", -1, 2u, 3ul,
            18446744073709551615ull, (size_t)5, 6.5, 1.0 / 0.0, 255ull);
  log_event(LOG_INFO, "test", "texts", "a=%s b=\"%s\" c=%.3s d=%.*s e=fixed f=\"of %s, %d\" g=%u..%u",
            "x y=1", "\"\\\n\x1b\xc3\xa9\xff", "abcdef", 2, "abcdef", "two", 3, 4u, 5u);
  log_event(LOG_INFO, "test", "prose", "run=%s step=%llu: no such %s", "r", 7ull, "checkpoint");
  log_event(LOG_INFO, "test", "keys", "%s=%u %s=\"%s\"", "k", 1u, "q", "");
  log_event(LOG_INFO, "test", "nothing", "%s", "");
}

static void say_json(void) {
  log_set_format(LOG_JSON);
  say_fields();
  say_long();
  log_set_format(LOG_TEXT);
}

static void json_has_the_fields_by_their_types(void **state) {
  const char *said = said_by(say_json), *line = said;
  (void)state;
  assert_memory_equal(said, "{\"time\":\"20", 11);
  assert_non_null(strstr(said, "Z\",\"level\":\"info\",\"subsystem\":\"test\",\"event\":\"numbers\",\"i\":-1,"
                               "\"u\":2,\"l\":3,\"ll\":18446744073709551615,\"z\":5,\"r\":6.50,\"n\":null,"
                               "\"x\":\"00000000000000ff\"}\n"));
  assert_non_null(strstr(said, "\"texts\",\"a\":\"x y=1\",\"b\":\"\\\"\\\\\\u000a\\u001b\xc3\xa9?\","
                               "\"c\":\"abc\",\"d\":\"ab\",\"e\":\"fixed\",\"f\":\"of two, 3\","
                               "\"g\":\"4..5\"}\n"));
  assert_non_null(strstr(said, "\"prose\",\"run\":\"r\",\"step\":7,\"text\":\"no such checkpoint\"}\n"));
  assert_non_null(strstr(said, "\"keys\",\"k\":1,\"q\":\"\"}\n"));
  assert_non_null(strstr(said, "\"event\":\"nothing\"}\n"));
  assert_non_null(strstr(said, "xxx\\u001b\",\"end\":7}\n"));
  for (int i = 0; i < 6; i++)
    line = strchr(line, '\n') + 1;
  assert_true(strlen(line) < 200 && strstr(line, "\"short\",\"a\":\"1\"}"));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_line_is_neither_cut_nor_broken_in_two),
                                     cmocka_unit_test(json_has_the_fields_by_their_types)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
