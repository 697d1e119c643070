/* What a view gives a worker: ranges of work, and a place in a group. */
#ifndef WEIR_SERVER_COORDINATOR_STATE_ASSIGNMENT_H
#define WEIR_SERVER_COORDINATOR_STATE_ASSIGNMENT_H

#include <stdint.h>

struct range {
  uint32_t begin, end; /* [begin, end); empty when equal */
};

/* A worker's place in a group. */
struct grouping {
  uint32_t number;   /* 0: in none */
  uint32_t size;     /* of the group */
  struct range part; /* its microbatches when the group was numbered */
};

#endif
