/* The download of a run's model from the coordinator, as servers and workers load it. */
#ifndef WEIR_COMMON_RPC_MODEL_FETCH_H
#define WEIR_COMMON_RPC_MODEL_FETCH_H

#include <pthread.h>
#include <stdbool.h>

#include "cluster.pb-c.h"
#include "common/rpc/client.h"
#include "model/graph/pieces.h"

/* One download at a time, which another thread can end. */
struct model_fetch {
  pthread_mutex_t lock; /* what follows */
  pthread_cond_t changed;
  struct rpc_reader *reader; /* NULL when there is nothing to end */
  bool is_cancelled;
};

void model_fetch_init(struct model_fetch *fetch);
void model_fetch_fini(struct model_fetch *fetch);

/* A run's model as members get it: its outline, or the whole file. bytes: freed by the caller. */
struct fetched_model {
  unsigned char *bytes;
  size_t size_bytes;
};

/* Blocks. What fails for a while is tried again a few times, with growing pauses. Errors: those of the
   network; CORRUPT when what came is not what the order announced; NO_MEMORY; CANCELLED. */
int model_fetch_run(struct model_fetch *fetch, struct rpc_channel *coordinator, const Weir__LoadRun *load,
                    struct fetched_model *out, struct err *err);

/* Pieces of its tensors. A struct piece_source's read; user is this. Blocks; tries again as above. Errors: as
   above, and NOT_FOUND for pieces that are not the model's. */
struct piece_fetch {
  struct model_fetch *fetch;
  struct rpc_channel *coordinator;
  const char *run;
  const char *ticket; /* of the order to load it */
};
int piece_fetch_read(void *user, const struct piece_read *reads, int n, struct err *err);

/* True: ends the download that is under way, and every later one at its begin. False: they are possible
   again. Any thread. */
void model_fetch_cancel(struct model_fetch *fetch, bool is_cancelled);

#endif
