/* Monotonic time. */
#ifndef WEIR_COMMON_CLOCK_H
#define WEIR_COMMON_CLOCK_H

#include <stdint.h>

uint64_t clock_now_ns(void); /* monotonic */
int64_t clock_unix_ms(void); /* wall clock */

static inline double clock_seconds(uint64_t ns) {
  return (double)ns * 1e-9;
}

#endif
