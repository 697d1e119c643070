/* A block that this server owns: its versions, optimizer slots, the round of its present step and the calls
   that wait for its next version. Touched by its shard's thread alone, but where said otherwise. */
#ifndef WEIR_SERVER_PARAMETERS_BLOCK_H
#define WEIR_SERVER_PARAMETERS_BLOCK_H

#include "server/parameters/call.h"
#include "server/parameters/round.h"
#include "server/parameters/statistics.h"

struct hosted_block {
  struct hosted_run *run; /* which owns the block */
  struct shard *shard;
  struct pool *pool; /* the shard's for this run */
  uint32_t index;    /* in the model */
  uint32_t elems;
  enum block_kind kind;
  bool has_metrics;

  uint64_t version; /* the newest; written atomically, other threads may load it so */
  /* f32[elems] each, immutable and shared with replies. Two versions at most: the one before stays until a
     push proves that the newest is complete everywhere. */
  struct buffer *current, *previous; /* previous: NULL once dropped */
  struct buffer *next;               /* reserved for version + 1, not shared */
  struct buffer *spare;              /* a dropped version's, reused once no reply refers to it */
  float *slots;                      /* f32[n_slots][elems], updated in place; NULL without */
  uint32_t n_slots;

  struct round round;           /* of a parameter block */
  struct statistics statistics; /* of a statistics block */

  struct parameters_call *parked;
  int n_parked;
};

/* Version 0 of a block of the model. The memory is the caller's (zeroed). Errors: NO_MEMORY; fini is due all
   the same. */
int hosted_block_init(struct hosted_block *block, struct hosted_run *run, const struct model *model,
                      uint32_t index, struct err *err);
void hosted_block_fini(struct hosted_block *block); /* any thread; nothing is parked any more */

/* What calls do. Each of them is answered or parked. */
void hosted_block_push(struct hosted_block *block, struct parameters_call *call);
void hosted_block_pull(struct hosted_block *block, struct parameters_call *call);
/* Its client has gone: a parked call is finished. */
void hosted_block_forget(struct hosted_block *block, struct parameters_call *call);
/* Finishes all that is parked with an error. */
void hosted_block_cancel(struct hosted_block *block, const struct err *err);

/* What modes do. */
/* Makes sure that there is memory for the next version, and drops what nobody needs any more. Errors:
   NO_MEMORY. */
int hosted_block_reserve(struct hosted_block *block, struct err *err);
/* Writes the next version of a parameter block: one update by the run's optimizer. grad f32[elems]. */
void hosted_block_update(struct hosted_block *block, const float *grad);
/* The next version becomes the newest; who waited for it is answered. */
void hosted_block_advance(struct hosted_block *block);
/* True if the present version waits for an evaluation's rows here. */
bool hosted_block_evaluates(const struct hosted_block *block);

/* What a checkpoint holds of the block: weights or state, then slots. */
size_t hosted_block_content_bytes(const struct hosted_block *block);
/* Copies it. Errors: INVALID if the block is not at this version. */
int hosted_block_read_content(const struct hosted_block *block, uint64_t version, void *out, struct err *err);

#endif
