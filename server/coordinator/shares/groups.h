/* Groups of a run's workers: the workers of one host reduce among themselves (train.collective), and each
   block is pushed once a host. */
#ifndef WEIR_SERVER_COORDINATOR_SHARES_GROUPS_H
#define WEIR_SERVER_COORDINATOR_SHARES_GROUPS_H

#include <stdbool.h>
#include <stdint.h>

#include "server/coordinator/state/assignment.h"

enum { GROUP_SIZE_MAX = 64 }; /* as of worker/collective */

/* A worker, as groups see it. */
struct group_worker {
  const char *host; /* NULL: it cannot be in a group */
  struct range microbatches;
  struct grouping grouping; /* of the view before; then of this one */
};

/* order[n]: the workers, such that those of a host are neighbours. A host's workers come where its first one
   was; otherwise the order stays. hosts[i] NULL: alone on its host. */
void groups_order(const char *const *hosts, int n, int *order);

/* Workers in the order of their microbatches. Neighbours of one host with microbatches make groups of at
   most GROUP_SIZE_MAX; one that is alone is in none. A group of which nothing has changed keeps its number;
   others get numbers above *seen, which is raised. */
void groups_number(struct group_worker *workers, int n, uint32_t *seen);

#endif
