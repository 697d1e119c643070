/* The state of a relay. Only the files of the relay include this. */
#ifndef WEIR_WORKER_TRAIN_GROUP_RELAY_STATE_H
#define WEIR_WORKER_TRAIN_GROUP_RELAY_STATE_H

#include "worker/backend/device_memory.h"
#include "worker/train/group/relay.h"

/* What a member has of each block in each step. */
struct member_parts {
  struct tree_node nodes[TREE_COVER_MAX];
  int n;
};

struct relay {
  struct outlet outlet; /* first: relay_give finds the relay by it */
  struct run *run;
  const struct collective_def *def;
  const struct device_memory *memory; /* parts go up from device to device; NULL: from host to host */
  int device;                         /* the first of the run's */
  struct group group;
  struct collective *up, *down; /* gradients, the gatherer's; weights, the spreader's */
  struct bucket_plan plan;
  struct member_parts parts[COLLECTIVE_SIZE_MAX]; /* by rank */
  int n_parts;                                    /* of all members together */
  bool is_reduced;                                /* the collective adds, in any order, */
  struct tree_node whole;                         /* what is this node then */

  /* With memory: the gatherer's. */
  struct device_stream *stream;
  float *arrays;       /* f32[n_parts * bucket_elems] on the device */
  size_t bucket_elems; /* of the largest bucket, rounded up so that the next array is aligned */

  uint64_t first_step;
  bool is_started;
  pthread_t gatherer, spreader;
  bool is_stopping; /* atomic; set under the run's lock */

  pthread_mutex_t lock; /* what follows; taken inside the run's */
  pthread_cond_t changed;
  struct buffer **held; /* [n_param_blocks * own parts]: of the step that is gathered; NULL: not there */
  uint32_t *n_held;     /* of each bucket */
};

static inline const struct member_parts *relay_own(const struct relay *relay) {
  return &relay->parts[relay->group.rank];
}

bool relay_is_stopping(const struct relay *relay);

/* How many elements the bucket's blocks have. */
size_t relay_bucket_elems(const struct relay *relay, const struct bucket *bucket);

void *relay_gather_main(void *argument);
void *relay_spread_main(void *argument);

#endif
