/* How the executors of a worker are dealt to the runs that it computes at the same time. */
#ifndef WEIR_SERVER_COORDINATOR_SHARES_DEAL_H
#define WEIR_SERVER_COORDINATOR_SHARES_DEAL_H

#include <stdint.h>

struct deal_seat {
  int32_t priority;
  double weight;   /* finite, and above 0 */
  uint32_t useful; /* executors: more would not make its run faster */
};

/* dealt[n], of executors >= n > 0: one for each seat; then one by one to the seat that has the least for its
   weight, of those of the highest priority that have use for one more. What nobody has use for goes likewise:
   all are dealt. */
void deal_executors(const struct deal_seat *seats, int n, uint32_t executors, uint32_t *dealt);

/* How many a further seat of this priority could be given at the most: all but what seats of higher priority
   have use for, and one for each other seat. */
uint32_t deal_left(const struct deal_seat *seats, int n, uint32_t executors, int32_t priority);

#endif
