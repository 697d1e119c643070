/* Which workers of a run make groups: those of one node reduce among themselves (train.collective), and each
   block is pushed once a node. */
#ifndef WEIR_SERVER_COORDINATOR_CORE_GROUPS_H
#define WEIR_SERVER_COORDINATOR_CORE_GROUPS_H

#include <stdbool.h>
#include <stdint.h>

#include "server/coordinator/core/assign.h"

enum { GROUP_SIZE_MAX = 64 }; /* as of worker/collective */

/* A worker's place in a group. */
struct grouping {
  uint32_t number;   /* 0: in none */
  uint32_t size;     /* of the group */
  struct range part; /* its microbatches when the group was numbered */
};

/* A worker, as groups see it. */
struct group_worker {
  const char *node; /* NULL: it cannot be in a group */
  struct range microbatches;
  struct grouping grouping; /* of the view before; then of this one */
};

/* order[n]: the workers such that those of a node are neighbours, else as they were: a node's come where its
   first was. nodes[i] NULL: alone on its node. */
void groups_order(const char *const *nodes, int n, int *order);

/* Workers in the order of their microbatches. Neighbours of one node with microbatches make groups of at
   most GROUP_SIZE_MAX; one that is alone is in none. A group of which nothing has changed keeps its number;
   others get numbers above *seen, which is raised. */
void groups_number(struct group_worker *workers, int n, uint32_t *seen);

#endif
