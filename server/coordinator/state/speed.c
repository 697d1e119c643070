/* How fast a worker computes. */
#include "server/coordinator/state/speed.h"

#include <math.h>

/* What an executor may have been busy for beyond the time between two heartbeats: they are taken when they
   come, not when they were said. */
static const double LATE_SECONDS = 10;
static const double MICROBATCH_SECONDS_LEAST = 1e-6;

static const struct speed_mark *mark_back(const struct speed *speed, uint32_t back) {
  return &speed->marks[(speed->count - 1 - back) % SPEED_MARKS];
}

static void mark_add(struct speed *speed, const struct speed_mark *mark) {
  speed->marks[speed->count++ % SPEED_MARKS] = *mark;
  speed->stuck_ms = 0;
}

/* It is not stuck any more, and what happened meanwhile says nothing: the marks are as if made just before
 * now. */
static void excuse_stuck(struct speed *speed, const struct speed_mark *now) {
  struct speed_mark last = *mark_back(speed, 0);
  for (int i = 0; i < SPEED_MARKS; i++) {
    speed->marks[i].at_ms += now->at_ms - last.at_ms;
    speed->marks[i].computed += now->computed - last.computed;
    speed->marks[i].busy_seconds += now->busy_seconds - last.busy_seconds;
  }
  speed->stuck_ms = 0;
}

/* Marks are made where microbatches were completed, so that long ones are measured from end to end. */
void speed_add(struct speed *speed, uint32_t executors, uint64_t now_ms, uint64_t computed,
               double busy_seconds) {
  struct speed_mark mark = {now_ms, computed, busy_seconds}, before = speed->newest;
  double passed_s = (double)(now_ms - before.at_ms) / 1000, busy_s = busy_seconds - before.busy_seconds;
  if (!isfinite(busy_seconds) || busy_seconds < 0 || (before.at_ms && now_ms - before.at_ms < SPEED_MARK_MS))
    return;
  speed->newest = mark;
  if (!before.at_ms || computed < before.computed || busy_s < 0 ||
      busy_s > executors * (passed_s + LATE_SECONDS)) {
    speed->count = 0;
    mark_add(speed, &mark);
    return;
  }
  if (speed_is_stuck(speed) && (computed > before.computed || busy_s < passed_s / 2))
    excuse_stuck(speed, &mark);
  else if (computed > before.computed)
    mark_add(speed, &mark);
  else
    speed->stuck_ms = busy_s < passed_s / 2 ? 0 : speed->stuck_ms + (now_ms - before.at_ms);
}

/* What one microbatch takes an executor; NAN: not known. */
static double microbatch_seconds(const struct speed *speed, uint32_t executors) {
  uint32_t kept = speed->count < SPEED_MARKS ? speed->count : SPEED_MARKS;
  for (uint32_t back = 1; back < kept; back++) {
    const struct speed_mark *last = mark_back(speed, 0), *first = mark_back(speed, back);
    double computed = (double)(last->computed - first->computed), rounds = computed / executors;
    double seconds = (last->busy_seconds - first->busy_seconds) / computed;
    bool is_long = last->at_ms - first->at_ms >= SPEED_WINDOW_MS;
    if (is_long && (rounds >= SPEED_ROUNDS || (back == kept - 1 && rounds >= SPEED_ROUNDS_LEAST)))
      return seconds >= MICROBATCH_SECONDS_LEAST ? seconds : (double)NAN;
  }
  return NAN;
}

double speed_of(const struct speed *speed, uint32_t executors) {
  uint32_t several = executors ? executors : 1;
  return speed_is_stuck(speed) ? 0 : several / microbatch_seconds(speed, several);
}

bool speed_is_stuck(const struct speed *speed) {
  double usual_ms = 1000 * microbatch_seconds(speed, 1);
  double limit_ms = isnan(usual_ms) ? SPEED_STUCK_ANY_MS : SPEED_STUCK_TIMES * usual_ms;
  return speed->stuck_ms >= SPEED_STUCK_MS && (double)speed->stuck_ms >= limit_ms;
}
