/* Which parts a worker sends for the blocks of one step, and when. A worker adds the gradients of its
   microbatches along the reduction tree (common/agree/tree.h) and sends a part as soon as it knows that it
   will not compute the rest of the part's sibling.

   Pure bookkeeping: it moves buffers but never reads them, and knows no clock, lock or network. Whoever has
   it holds one lock over every call. */
#ifndef WEIR_WORKER_TRAIN_BLOCK_REDUCER_H
#define WEIR_WORKER_TRAIN_BLOCK_REDUCER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/agree/tree.h"
#include "common/base/memory.h"

struct reducer;

struct reducer_send {
  uint32_t block;
  struct tree_node node;
  struct buffer *buffer; /* now the receiver's; NULL: nothing is owed, pull the next version instead */
  bool wait;             /* the last part owed of this block: its reply is the version that the step brings */
};

/* What a worker has to do with a block. Of those that it owns it delivers parts; those that it holds besides
   it only pulls. */
enum block_role { BLOCK_ABSENT, BLOCK_HELD, BLOCK_OWNED };

struct reducer_options {
  uint32_t microbatches;
  uint32_t blocks;
  uint32_t summed_blocks; /* the first of them are summed; of the others each microbatch is a part (a row) */
  uint32_t sum_level; /* of the tree: the sum of a node of this level, or above, is a part, never added to its
                         sibling; UINT32_MAX: there is no such level */
  const uint8_t *roles; /* enum block_role[blocks], which outlives it; NULL: this worker owns all of them */
  void (*send)(void *user, const struct reducer_send *send);
  void (*drop)(void *user, uint32_t block, struct buffer *buffer); /* of a step that is over */
  void *user;
};

struct reducer *reducer_new(const struct reducer_options *options);
void reducer_free(struct reducer *reducer); /* drops what is held; NULL is ignored */

/* A new step: nothing is delivered yet, what was held is dropped. mine: bool[microbatches], those that this
   worker will deliver; copied. brings_version: the last part of each block waits for the version that the
   step brings, and where there is no part, a pull is sent. Else nothing waits. */
void reducer_begin(struct reducer *reducer, const bool *mine, bool brings_version);

/* Other microbatches are to be delivered than were told before; those under way must be among them. Sends the
   parts that now wait in vain, and pulls of blocks of which nothing is owed and no reply is awaited. */
void reducer_assign(struct reducer *reducer, const bool *mine);

/* A delivery is take, take ... until NULL, then place, all under one hold of the lock except that the lock
   may be given up to add what take returned.

   take: *node has been summed by the caller (at first ({microbatch}, 0)). Returns the sum of its sibling, if
   that is held, now the caller's to add; *node becomes the node of both. NULL: place it. */
struct buffer *reducer_take(struct reducer *reducer, uint32_t block, struct tree_node *node);

/* Between take and place: the part of the node, as take left it, is no more, and does not come again. What
   waited for it is sent; where nothing else is owed, the next version is pulled. */
void reducer_lose(struct reducer *reducer, uint32_t block, struct tree_node node);

/* Keeps the part until its sibling comes, or says to send it. True: send as told in *send. */
bool reducer_place(struct reducer *reducer, uint32_t block, struct tree_node node, struct buffer *buffer,
                   struct reducer_send *send);

#endif
