/* How the executors of a worker compute that work in teams, each at a stage of the model, by the counters of
   its heartbeats (TeamCounters in cluster.proto). */
#ifndef WEIR_SERVER_COORDINATOR_STATE_TEAMS_H
#define WEIR_SERVER_COORDINATOR_STATE_TEAMS_H

#include <stdint.h>

#include "cluster.pb-c.h"

struct team_stage {
  double idle; /* share of the time in which a stage of its team was at a microbatch; NAN before the first */
  uint64_t program_bytes;
};

struct teams {
  uint32_t n;
  double bubble; /* what would be idle if stages took alike; NAN before the first microbatch */
  int n_stages;
  struct team_stage stages[];
};

/* Of a worker of so many executors. On the heap; NULL for counters that cannot be: of more stages than there
   are executors, or that a spec may have, or of times that are no numbers.

   Source of the bubble: (p-1)/(m+p-1), of p stages and m microbatches of a step and team. Huang et al.,
   GPipe, 2019. */
struct teams *teams_of(const Weir__TeamCounters *counters, uint32_t executors);

#endif
