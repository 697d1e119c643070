/* Who computes what: contiguous ranges of work, such that the slowest worker is done as early as can be. */
#ifndef WEIR_SERVER_COORDINATOR_SHARES_ASSIGN_H
#define WEIR_SERVER_COORDINATOR_SHARES_ASSIGN_H

#include <stdint.h>

#include "server/coordinator/state/assignment.h"

/* A worker computes in rounds, in each of which every executor computes one item: ceil(items / executors)
   rounds of executors / speed seconds. */
struct assign_worker {
  uint32_t executors; /* 0 counts as 1 */
  double speed; /* items a second, of all executors together; unless finite and above 0 it gets nothing */
};

/* Cuts [0, items) into one range for each of n > 0 workers, in their order. Every item is in exactly one
   range, and no other cut has a slowest worker that is done earlier. Among the cuts of which that is true the
   ranges are as near as whole items can be to what each worker could do in that time. A worker may get an
   empty range. If no worker has a speed, all executors count as equally fast. */
void assign_ranges(const struct assign_worker *workers, int n, uint32_t items, struct range *ranges);

/* Moves the borders of such ranges to the nearest ones between groups of so many items (the last may be
   smaller): a worker's items are whole groups then. Where there are fewer groups than workers with items:
   nothing. */
void assign_whole_groups(struct range *ranges, int n, uint32_t items, uint32_t group);

/* When the slowest worker is done with its range, in seconds; infinity if one without a speed has work. */
double assign_seconds(const struct assign_worker *workers, int n, const struct range *ranges);

#endif
