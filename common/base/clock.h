/* Monotonic time. */
#ifndef WEIR_COMMON_BASE_CLOCK_H
#define WEIR_COMMON_BASE_CLOCK_H

#include <pthread.h>
#include <stdint.h>
#include <time.h>

uint64_t clock_now_ns(void); /* monotonic */
int64_t clock_unix_ms(void); /* wall clock */

/* A condition whose timed waits are by the monotonic clock, and until when to wait on it. */
void clock_condition_init(pthread_cond_t *condition);
struct timespec clock_after_ms(int ms);

static inline double clock_seconds(uint64_t ns) {
  return (double)ns * 1e-9;
}

#endif
