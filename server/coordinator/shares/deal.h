/* How the executors of a worker are dealt to the runs that it computes at the same time. */
#ifndef WEIR_SERVER_COORDINATOR_SHARES_DEAL_H
#define WEIR_SERVER_COORDINATOR_SHARES_DEAL_H

#include <stdint.h>

struct deal_seat {
  int32_t priority;
  double weight;   /* finite, and above 0 */
  uint32_t useful; /* executors that its run has use for */
  uint32_t most;   /* that it may have; 0: any number */
};

/* Fills dealt[n]; executors >= n > 0. Each seat gets one executor. The others go one by one to seats that
   have use for one more: the highest priority first, then the seat with the fewest for its weight. Those that
   no seat has use for are dealt in the same way, so all are dealt that may be. */
void deal_executors(const struct deal_seat *seats, int n, uint32_t executors, uint32_t *dealt);

/* The most executors that a further seat of this priority could get: all but those that seats of higher
   priority have use for, and one for each other seat. */
uint32_t deal_left(const struct deal_seat *seats, int n, uint32_t executors, int32_t priority);

#endif
