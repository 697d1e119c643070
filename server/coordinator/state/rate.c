/* Samples per second over the last ten seconds. */
#include "server/coordinator/state/rate.h"

void rate_add(struct rate *rate, uint64_t now_ms, uint64_t samples) {
  rate->total += samples;
  if (rate->count && now_ms - rate->marks[(rate->count - 1) % RATE_MARKS].at_ms < RATE_MARK_MS)
    return;
  rate->marks[rate->count % RATE_MARKS].at_ms = now_ms;
  rate->marks[rate->count % RATE_MARKS].total = rate->total;
  rate->count++;
}

double rate_per_second(const struct rate *rate, uint64_t now_ms) {
  uint32_t kept = rate->count < RATE_MARKS ? rate->count : RATE_MARKS;
  uint32_t oldest = 0;
  for (uint32_t back = 1; back <= kept; back++) {
    oldest = (rate->count - back) % RATE_MARKS;
    if (back >= 2 && now_ms - rate->marks[oldest].at_ms >= RATE_WINDOW_MS)
      break;
  }
  if (kept == 0 || now_ms <= rate->marks[oldest].at_ms)
    return 0;
  return (double)(rate->total - rate->marks[oldest].total) * 1000 /
         (double)(now_ms - rate->marks[oldest].at_ms);
}
