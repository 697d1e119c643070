/* A round: the parts of one block's gradient that have come for the present step. Parts are nodes of the
   reduction tree, nested or disjoint, and come in any order. Complete siblings are merged at once, so the
   bits of the sum depend on the tree alone. Where the run's gradients are compressed, a part of the wire
   level comes so, and the sum of lower ones is made the same there. */
#ifndef WEIR_SERVER_PARAMETERS_ROUND_ROUND_H
#define WEIR_SERVER_PARAMETERS_ROUND_ROUND_H

#include "common/compress/compression.h"
#include "server/parameters/round/doubts.h"
#include "server/parameters/round/part.h"
#include "server/parameters/round/pool.h"

/* Told within round_add; what they are given ends with the callback. */
struct round_listener {
  /* The sum of these n parts overflows f32, though each of them is finite. The round has let go of them:
     their microbatches are to come again. */
  void (*on_doubted)(void *user, const struct accepted *parts, int n);
  /* They have come again. If the sum overflows again, on_doubted follows. */
  void (*on_judged)(void *user, const struct judgement *judgement);
  void *user;
};

struct round {
  uint32_t microbatches, elems;
  uint32_t block;                        /* whose parts they are */
  const struct compression *compression; /* which outlives it */
  struct pool *pool;
  struct round_part *parts; /* disjoint, canonical, no two of them siblings */
  int n_parts, capacity;
  /* What `parts` are the sums of: disjoint, in the order in which they came. */
  struct accepted *accepted;
  int n_accepted, accepted_capacity;
  struct doubts doubts;
  struct round_listener listener; /* zeroed: nobody listens */
};

/* All is f32, unless `compression` and `block` are set then. */
void round_init(struct round *round, uint32_t microbatches, uint32_t elems, struct pool *pool);
void round_fini(struct round *round);

/* Takes a part of a valid node, in the form in which that is sent. A part that is covered already changes
   nothing; one that covers others replaces them. One that would hide what is to be compared with doubts
   changes nothing, either. A part that overflows the sum with its siblings is taken, and the listener told.
   Errors, after which the round is as before: INVALID when the values are not finite, or no compressor makes
   them; BUSY when the pool's budget is spent, but never for a part that completes a sum or the first
   microbatch that is missing; NO_MEMORY. */
int round_add(struct round *round, const struct part *part, struct err *err);

/* f32[elems] summed over all microbatches, good until round_clear, the caller's to change in place; NULL
   while parts are missing. */
float *round_sum(const struct round *round);

/* Marks the microbatches of which there is no part (marks.h); the others' marks stay. */
void round_missing(const struct round *round, uint64_t *microbatches);

void round_clear(struct round *round); /* for the next step */

#endif
