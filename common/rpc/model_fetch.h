/* The download of a run's model from the coordinator, as servers and workers load it. */
#ifndef WEIR_COMMON_RPC_MODEL_FETCH_H
#define WEIR_COMMON_RPC_MODEL_FETCH_H

#include <pthread.h>
#include <stdbool.h>

#include "cluster.pb-c.h"
#include "common/rpc/client.h"

/* One download at a time, which another thread can end. */
struct model_fetch {
  pthread_mutex_t lock; /* what follows */
  pthread_cond_t changed;
  struct rpc_reader *reader; /* NULL when there is nothing to end */
  bool is_cancelled;
};

void model_fetch_init(struct model_fetch *fetch);
void model_fetch_fini(struct model_fetch *fetch);

/* Blocks. *out: the load->model_bytes bytes of the model, freed by the caller. What fails for a while is
   tried again, six times in all with growing pauses. Errors: those of the network; CORRUPT when what came is
   not what the order announced; NO_MEMORY; CANCELLED. */
int model_fetch_run(struct model_fetch *fetch, struct rpc_channel *coordinator, const Weir__LoadRun *load,
                    unsigned char **out, struct err *err);

/* True: ends the download that is under way, and every later one at its begin. False: they are possible
   again. Any thread. */
void model_fetch_cancel(struct model_fetch *fetch, bool is_cancelled);

#endif
