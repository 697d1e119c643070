/* The shares of a run's workers: streams of those on this server's host, by which bytes are named in place of
   being sent (common/share/share.h). Any thread. */
#ifndef WEIR_SERVER_PARAMETERS_RUN_SHARES_H
#define WEIR_SERVER_PARAMETERS_RUN_SHARES_H

#include <pthread.h>

#include "common/rpc/server.h"
#include "common/share/share.h"
#include "common/share/shared_pool.h"

struct run_share;

struct run_shares {
  size_t version_bytes; /* of a segment that has a version of all our blocks */
  pthread_mutex_t lock; /* what follows */
  struct run_share **list;
  int n, capacity;
  uint64_t n_made;
  struct err *end;          /* of all that are there and to come; NULL: there is none */
  struct shared_pool *pool; /* atomic: NULL until a worker of this host was met */
};

void run_shares_init(struct run_shares *shares);
void run_shares_fini(struct run_shares *shares); /* no stream is left */

/* A stream of the worker's begins: its first answer is sent. The call is the share's then, until
   run_shares_closed. Errors: what the run's streams were ended with. */
int run_shares_open(struct run_shares *shares, struct rpc_call *rpc, uint32_t worker, struct run_share **out,
                    struct err *err);
/* A message of the stream. What is wrong with it ends the stream. */
void run_shares_take(struct run_shares *shares, struct run_share *share, const Weir__ShareMessage *message);
/* Its client has ended it. */
void run_shares_half_closed(struct run_shares *shares, struct run_share *share);
/* The stream's last callback: frees it. */
void run_shares_closed(struct run_shares *shares, struct run_share *share);
/* Ends all streams, those to come too. */
void run_shares_end(struct run_shares *shares, const struct err *err);

/* A reference to the worker's share of that name; NULL: it is none, or over. */
struct share *run_shares_find(struct run_shares *shares, uint64_t id, uint32_t worker);

/* Where versions lie that are shared; NULL: no worker of this host was met. */
struct shared_pool *run_shares_pool(const struct run_shares *shares);

#endif
