/* The shm collective, for its own files: a handle, its queue of operations, and the steps of one.

   An operation is walked in chunks. In a board operation each member writes its contribution to chunk c on
   slot c of its board (written), may reduce a share of it (reduced), and takes its results from the others'
   boards (done). A slot is used anew when all members are done with what it held. The three go on
   independently, as far as the other members' counters allow: a member that is ahead fills up to SHM_SLOTS
   slots. Chunks are numbered through the group's life, equally at each member. Bytes are copied once into
   shared memory and once out of it, and are reduced where they lie. */
#ifndef WEIR_WORKER_COLLECTIVE_SHM_H
#define WEIR_WORKER_COLLECTIVE_SHM_H

#include "worker/collective/shm_segment.h"

struct collective_work {
  struct collective *collective;
  struct collective_call call;
  struct collective_work *next, *previous; /* in the queue, among those that are finished, or free */
  bool is_begun, is_done, is_cancelled;
  /* Of board operations. */
  bool is_sliced;     /* each reduces a share of each chunk; else who needs it reduces all */
  size_t chunk_elems; /* of out, or of each part */
  uint64_t base;      /* the first chunk's number */
  uint64_t n_chunks;
  uint64_t written, reduced, done; /* chunks so far */
  /* Of send and receive. */
  size_t moved_bytes;
};

struct collective {
  struct shm_segment segment;
  int rank, size;
  unsigned spins;                       /* looks at a counter before a wait sleeps */
  uint64_t chunks;                      /* of all board operations that have begun */
  uint64_t placed;                      /* bytes that this member has put into its ring */
  int blocker;                          /* for whom the operation at the queue's head waits */
  struct shm_event *awaited;            /* and for what of it */
  struct collective_work *first, **end; /* not done, in their order */
  struct collective_work *finished;     /* done, and not waited for; with free ones, so that starting an */
  struct collective_work *free;         /* operation allocates only when more are under way than ever */
};

/* Goes on with the operation as far as it can without waiting. True when it is done; else collective->blocker
   and awaited are set. */
bool shm_board_step(struct collective *collective, struct collective_work *work);
bool shm_pair_step(struct collective *collective, struct collective_work *work);

#endif
