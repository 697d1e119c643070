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

static void a_line_is_neither_cut_nor_broken_in_two(void **state) {
  static char value[LONG + 1], said[2 * LONG];
  int former = dup(STDERR_FILENO), file = memfd_create("log", 0);
  ssize_t n;
  (void)state;
  memset(value, 'x', LONG);
  value[1] = '\n';
  value[LONG - 1] = 0x1b;
  assert_true(former >= 0 && file >= 0 && dup2(file, STDERR_FILENO) >= 0);
  log_event(LOG_ERROR, "test", "long", "value=\"%s\" end=%d", value, 7);
  log_event(LOG_ERROR, "test", "short", "a=1");
  fflush(stderr);
  assert_true(dup2(former, STDERR_FILENO) >= 0);
  n = pread(file, said, sizeof said - 1, 0);
  close(file);
  close(former);
  assert_true(n > LONG);
  assert_non_null(strstr(said, " error test long value=\"x?xx"));
  assert_non_null(strstr(said, "x?\" end=7\n20"));
  assert_ptr_equal(strchr(said, '\n'), strstr(said, " end=7\n") + strlen(" end=7"));
  assert_non_null(strstr(said, " error test short a=1\n"));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_line_is_neither_cut_nor_broken_in_two)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
