/* A round: the parts of one block's gradient that have come for the present step. Parts are nodes of the
   reduction tree, nested or disjoint, and come in any order. Complete siblings are merged at once, so the
   bits of the sum depend on the tree alone. */
#ifndef WEIR_SERVER_PARAMETERS_ROUND_ROUND_H
#define WEIR_SERVER_PARAMETERS_ROUND_ROUND_H

#include "server/parameters/round/part.h"
#include "server/parameters/round/pool.h"

struct round {
  uint32_t microbatches, elems;
  struct pool *pool;
  struct round_part *parts; /* disjoint, canonical, no two of them siblings */
  int n_parts, capacity;
};

void round_init(struct round *round, uint32_t microbatches, uint32_t elems, struct pool *pool);
void round_fini(struct round *round);

/* Takes a part of a valid node. A part that is covered already changes nothing; one that covers others
   replaces them. Errors, after which the round is as before: INVALID when the values or a sum with them are
   not finite; BUSY when the pool's budget is spent, but never for a part that completes a sum or the first
   microbatch that is missing; NO_MEMORY. */
int round_add(struct round *round, const struct part *part, struct err *err);

/* f32[elems] summed over all microbatches, good until round_clear, the caller's to change in place; NULL
   while parts are missing. */
float *round_sum(const struct round *round);

void round_clear(struct round *round); /* for the next step */

#endif
