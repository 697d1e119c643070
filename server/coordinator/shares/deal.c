/* How the executors of a worker are dealt. */
#include "server/coordinator/shares/deal.h"

#include <stdbool.h>

#include "common/base/err.h"

enum { NOBODY = -1 };

/* The first of those that come before all others. is_idle: nobody has use for it. */
static int find_neediest(const struct deal_seat *seats, int n, const uint32_t *dealt, bool is_idle) {
  int found = NOBODY;
  double least = 0;
  for (int i = 0; i < n; i++) {
    double level = (dealt[i] + 1.0) / seats[i].weight;
    if (dealt[i] >= (is_idle ? UINT32_MAX : seats[i].useful) || (seats[i].most && dealt[i] >= seats[i].most))
      continue;
    if (found != NOBODY && (seats[i].priority < seats[found].priority ||
                            (seats[i].priority == seats[found].priority && level >= least)))
      continue;
    found = i;
    least = level;
  }
  return found;
}

void deal_executors(const struct deal_seat *seats, int n, uint32_t executors, uint32_t *dealt) {
  CHECK(n > 0 && executors >= (uint32_t)n);
  for (int i = 0; i < n; i++)
    dealt[i] = 1;
  for (uint32_t left = executors - (uint32_t)n; left > 0; left--) {
    int at = find_neediest(seats, n, dealt, false);
    if (at == NOBODY)
      at = find_neediest(seats, n, dealt, true);
    if (at == NOBODY)
      return;
    dealt[at]++;
  }
}

uint32_t deal_left(const struct deal_seat *seats, int n, uint32_t executors, int32_t priority) {
  uint64_t taken = 0;
  for (int i = 0; i < n; i++)
    taken += seats[i].priority > priority && seats[i].useful ? seats[i].useful : 1;
  return taken < executors ? executors - (uint32_t)taken : 0;
}
