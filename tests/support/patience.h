/* How long tests wait for what must happen. A wait that succeeds costs nothing, so it is long: no test
   depends on how fast the machine is. */
#ifndef WEIR_TESTS_PATIENCE_H
#define WEIR_TESTS_PATIENCE_H

#include <stdlib.h>

/* WEIR_TEST_PATIENCE, or 240: as in tests/integration/harness.py. */
static inline int patience_seconds(void) {
  const char *text = getenv("WEIR_TEST_PATIENCE");
  int seconds = text ? atoi(text) : 0;
  return seconds > 0 ? seconds : 240;
}

/* The same as a call's deadline. */
static inline int patience_ms(void) {
  return 1000 * patience_seconds();
}

#endif
