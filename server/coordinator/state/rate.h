/* Samples per second over the last ten seconds. */
#ifndef WEIR_SERVER_COORDINATOR_STATE_RATE_H
#define WEIR_SERVER_COORDINATOR_STATE_RATE_H

#include <stdint.h>

enum { RATE_MARKS = 41, RATE_MARK_MS = 250, RATE_WINDOW_MS = 10000 };

/* Marks at least RATE_MARK_MS apart, so that they reach back over the window. Zeroed before first use. */
struct rate {
  uint64_t total;
  struct {
    uint64_t at_ms, total;
  } marks[RATE_MARKS]; /* a ring */
  uint32_t count;      /* of all marks ever made */
};

void rate_add(struct rate *rate, uint64_t now_ms, uint64_t samples);
/* 0 before the second call of rate_add. Steps longer than the window count by the newest two. */
double rate_per_second(const struct rate *rate, uint64_t now_ms);

#endif
