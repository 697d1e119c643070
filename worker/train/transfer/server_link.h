/* The way to one server of a run: its channels, the calls on them, and whether it is reached. For the files
   of this folder alone. */
#ifndef WEIR_WORKER_TRAIN_TRANSFER_SERVER_LINK_H
#define WEIR_WORKER_TRAIN_TRANSFER_SERVER_LINK_H

#include <pthread.h>

#include "worker/train/transfer/link_reach.h"
#include "worker/train/transfer/link_share.h"
#include "worker/train/transfer/transfer.h"

enum { LINK_CHANNELS_MIN = 2, LINK_CHANNELS_MAX = 8 };

struct transfer_list {
  struct transfer *first, *last;
};

/* Where a link may be silent, it is asked on a connection of its own: on the others the question would wait
   behind megabytes, on a slow network for longer than its deadline. */
struct link_question {
  struct rpc_request request; /* first */
  struct server_link *link;
  struct rpc_channel *channel;
};

struct server_link {
  const struct transfers_options *options;
  /* Something is to do at that time, or before. Takes a lock of its own inside the link's. */
  void (*note)(struct transfers *transfers, uint64_t due_ns);
  struct transfers *transfers;
  char *id, *address;
  struct link_share share;
  struct rpc_channel *channels[LINK_CHANNELS_MAX];
  int n_channels;

  pthread_mutex_t lock; /* what follows */
  pthread_cond_t changed;
  struct transfer_list queue;  /* wait for window space */
  struct transfer_list pulls;  /* wait until fewer calls are parked */
  struct transfer_list pauses; /* failed, will be tried again */
  struct transfer *spares;
  struct transfer **all; /* every transfer ever made, to cancel */
  int n_all, all_capacity;
  int sending, outstanding; /* outstanding: with the question */
  int parked;               /* calls that may wait for a version */
  bool is_shared;           /* as of the newest call: blocks are named, not sent */
  unsigned turn;            /* of the channels */
  bool is_stopping;
  uint64_t logged_ns; /* when a failure was last told */
  struct link_reach reach;
  struct link_question question;
};

/* options, note and transfers are set and outlive it. Opens the channels that carry blocks. */
void server_link_init(struct server_link *link, const Weir__Endpoint *server);
/* And the one that carries little, when all links have theirs for blocks: threads of the client take channels
   in turn, and none is to be left with such as these alone. */
void server_link_begin(struct server_link *link);
/* Cancels everything, waits until every item has ended, closes the channels. */
void server_link_fini(struct server_link *link);

/* Those of n items that are the server's. */
void server_link_start(struct server_link *link, uint32_t server, const struct transfer_item *items, int n,
                       const struct transfers_sender *sender);

/* For the timer: sends again what has paused long enough, looks whether the server is reached, and asks it.
   away_ns: see link_reach_look. When there is something to do again. */
uint64_t server_link_step(struct server_link *link, uint64_t now_ns, uint64_t away_ns);

/* Whether the server is not reached, and the failure of a call to it. */
bool server_link_is_unreached(struct server_link *link, struct err *failure);

/* Whether the server has answered of late, and a connection to it is open. */
bool server_link_is_reached(struct server_link *link);

#endif
