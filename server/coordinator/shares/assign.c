/* Who computes what. */
#include "server/coordinator/shares/assign.h"

#include <math.h>
#include <stdbool.h>

#include "common/base/err.h"
#include "server/coordinator/state/assignment.h"

/* Times that differ by less are equal: they differ by rounding. */
static const double NEAR = 1e-9;

static uint32_t executors_of(const struct assign_worker *worker) {
  return worker->executors ? worker->executors : 1;
}

static bool has_speed(const struct assign_worker *worker) {
  return isfinite(worker->speed) && worker->speed > 0;
}

static double round_seconds(const struct assign_worker *worker, bool are_all_equal) {
  return are_all_equal ? 1 : executors_of(worker) / worker->speed;
}

/* Items that the worker completes within so many seconds: those of whole rounds, at most `items` of these. */
static unsigned __int128 items_within(const struct assign_worker *worker, bool are_all_equal, double seconds,
                                      uint32_t items) {
  double rounds;
  if (!are_all_equal && !has_speed(worker))
    return 0;
  rounds = floor(seconds / round_seconds(worker, are_all_equal));
  return (unsigned __int128)(rounds < items ? (uint64_t)rounds : items) * executors_of(worker);
}

static unsigned __int128 all_within(const struct assign_worker *workers, int n, bool are_all_equal,
                                    double seconds, uint32_t items) {
  unsigned __int128 total = 0;
  for (int i = 0; i < n; i++)
    total += items_within(&workers[i], are_all_equal, seconds, items);
  return total;
}

/* The least time in which the workers together complete so many: what fits grows with the time, so halving an
   interval down to neighbouring numbers finds it. It begins with twice what one worker would take for all. */
static double least_seconds(const struct assign_worker *workers, int n, bool are_all_equal, uint32_t items) {
  double low = 0, high = INFINITY;
  for (int i = 0; i < n; i++) {
    double seconds = 2.0 * items * round_seconds(&workers[i], are_all_equal);
    if ((are_all_equal || has_speed(&workers[i])) && seconds < high)
      high = seconds;
  }
  for (;;) {
    double middle = low + (high - low) / 2;
    if (middle <= low || middle >= high)
      return high * (1 + NEAR);
    if (all_within(workers, n, are_all_equal, middle, items) >= items)
      high = middle;
    else
      low = middle;
  }
}

/* Worker i ends where a share of all work would end that is proportional to what the workers up to it could
   do in the least time. So none gets more than it can do in it. */
void assign_ranges(const struct assign_worker *workers, int n, uint32_t items, struct range *ranges) {
  unsigned __int128 total, before = 0;
  bool are_all_equal = true;
  uint32_t begin = 0;
  double seconds;
  CHECK(n > 0);
  for (int i = 0; i < n; i++)
    are_all_equal &= !has_speed(&workers[i]);
  seconds = items ? least_seconds(workers, n, are_all_equal, items) : 0;
  total = all_within(workers, n, are_all_equal, seconds, items);
  for (int i = 0; i < n; i++) {
    before += items_within(&workers[i], are_all_equal, seconds, items);
    ranges[i] = (struct range){begin, total ? (uint32_t)(before * items / total) : 0};
    begin = ranges[i].end;
  }
}

void assign_whole_groups(struct range *ranges, int n, uint32_t items, uint32_t group) {
  uint32_t busy = 0, begin = 0;
  for (int i = 0; i < n; i++)
    busy += ranges[i].end > ranges[i].begin;
  if (group <= 1 || busy > items / group + (items % group > 0))
    return;
  for (int i = 0; i < n; i++) {
    uint32_t end = ranges[i].end == items ? items : (ranges[i].end + group / 2) / group * group;
    ranges[i] = (struct range){begin, end < items ? end : items};
    begin = ranges[i].end;
  }
}

double assign_seconds(const struct assign_worker *workers, int n, const struct range *ranges) {
  bool are_all_equal = true;
  double slowest = 0;
  for (int i = 0; i < n; i++)
    are_all_equal &= !has_speed(&workers[i]);
  for (int i = 0; i < n; i++) {
    uint32_t items = ranges[i].end - ranges[i].begin, executors = executors_of(&workers[i]);
    double seconds = INFINITY;
    if (items == 0)
      continue;
    if (are_all_equal || has_speed(&workers[i]))
      seconds =
          (double)(items / executors + (items % executors > 0)) * round_seconds(&workers[i], are_all_equal);
    if (seconds > slowest)
      slowest = seconds;
  }
  return slowest;
}
