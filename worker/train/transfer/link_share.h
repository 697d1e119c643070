/* The shared memory of a link, where its server is on this host: the stream on which segments are offered,
   which is opened again when it breaks. For the files of this folder alone. */
#ifndef WEIR_WORKER_TRAIN_TRANSFER_LINK_SHARE_H
#define WEIR_WORKER_TRAIN_TRANSFER_LINK_SHARE_H

#include <pthread.h>

#include "common/share/share.h"
#include "worker/train/transfer/transfers.h"

struct link_share {
  const struct transfers_options *options;
  struct rpc_channel *channel;
  void (*note)(struct transfers *transfers, uint64_t due_ns); /* see server_link */
  struct transfers *transfers;

  pthread_mutex_t lock; /* what follows; nothing of a link's is locked inside */
  struct rpc_stream *stream;
  struct share *share;
  uint64_t id;        /* the server's name for it; 0: it has not told */
  uint32_t parts_max; /* that a push to it may bring; 0: it has not told */
  bool is_over;
  bool is_barred; /* for good: the server is elsewhere, or shares nothing */
  bool is_told;
  int attempt;
  uint64_t due_ns; /* once it is over, and not barred: when it is opened again */
};

/* The fields above the lock are set, and outlive it. */
void link_share_begin(struct link_share *share);
/* Ends the stream, and waits until it has ended. Shares that are held go on. */
void link_share_end(struct link_share *share);

/* For the timer: opens the stream again. When there is something to do again. */
uint64_t link_share_step(struct link_share *share, uint64_t now_ns);

/* What a call may name bytes in. */
struct shared_with {
  struct share *share; /* a reference; NULL: bytes go by socket */
  uint64_t id;         /* the server's name for it */
  uint32_t parts_max;  /* that a push may bring together */
};
struct shared_with link_share_get(struct link_share *share);

#endif
