/* A group: the workers of one host that reduce a run's gradients among themselves, as a view tells. This part
   is pure: it says who is in the group, which parts each member has, what they sum to, and who talks to the
   servers for which blocks. */
#ifndef WEIR_WORKER_TRAIN_RUN_GROUP_H
#define WEIR_WORKER_TRAIN_RUN_GROUP_H

#include "cluster.pb-c.h"
#include "common/agree/tree.h"
#include "worker/collective/collective.h"
#include "worker/train/block/block_map.h"
#include "worker/train/block/tasks.h"

/* number 0: none, all else is zero. */
struct group {
  uint64_t term, incarnation, view; /* view: the newest that had it */
  uint32_t number;
  int rank, size;
  struct task_range
      ranges[COLLECTIVE_SIZE_MAX]; /* of microbatches, by rank; each begins where the last ends */
};

/* The group that the view has the worker in. False if it describes one that cannot be (then there is none):
   too large, or with microbatches that do not adjoin. */
bool group_read(const Weir__View *view, const char *worker, struct group *group);

/* True if both are the same group, unchanged, and if both are none. */
bool group_is_same(const struct group *a, const struct group *b);

/* A unique name for one of the group's collectives. */
void group_name(const struct group *group, const char *run, const char *what,
                char name[COLLECTIVE_NAME_MAX + 1]);

/* A sum of a block's gradient, on its way up the tree. */
struct group_part {
  struct tree_node node;
  int index; /* whose memory it is: the caller's to say */
};

/* Adds the siblings among n parts, canonical and in the order of their microbatches, until there are none.
   add: part `from` is added to part `to`, and is no more. Returns how many are left, in order. */
int group_merge(struct group_part *parts, int n, uint32_t microbatches,
                void (*add)(void *user, int to, int from), void *user);

/* Blocks that travel together: [begin, end) of the order. */
struct bucket {
  uint32_t begin, end;
  uint32_t owner; /* the rank that adds them and talks to the servers */
};

struct bucket_plan {
  uint32_t *order; /* [n_param_blocks]: blocks as backward completes them */
  uint32_t *place; /* [n_param_blocks]: a block's bucket */
  struct bucket *buckets;
  uint32_t n_buckets;
};

/* Between devices a bucket travels so fast that the cost of starting it counts: buckets are larger there. */
enum { BUCKET_BYTES = 1 << 20, BUCKET_DEVICE_BYTES = 8 << 20, BUCKET_BLOCKS_MAX = 64 };

/* Follows from the model, the group's size and `bytes` alone: each member has the same. Buckets have at most
   that many bytes or one block; owners have about as many bytes each. */
void bucket_plan_init(struct bucket_plan *plan, const struct model *model, const struct block_map *map,
                      int size, uint32_t bytes);
void bucket_plan_fini(struct bucket_plan *plan); /* safe on a zeroed plan */

#endif
