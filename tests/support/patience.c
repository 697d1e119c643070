#include "tests/support/patience.h"

#include <stdlib.h>

int patience_seconds(void) {
  const char *text = getenv("WEIR_TEST_PATIENCE");
  int seconds = text ? atoi(text) : 0;
  return seconds > 0 ? seconds : 240;
}

int patience_ms(void) {
  return 1000 * patience_seconds();
}
