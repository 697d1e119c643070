#include "tests/support/common/patience.h"

#include <stdlib.h>
#include <unistd.h>

int patience_seconds(void) {
  const char *text = getenv("WEIR_TEST_PATIENCE");
  int seconds = text ? atoi(text) : 0;
  return seconds > 0 ? seconds : 240;
}

int patience_ms(void) {
  return 1000 * patience_seconds();
}

void patience_begin(void) {
  alarm((unsigned)patience_seconds());
}

void patience_end(void) {
  alarm(0);
}
