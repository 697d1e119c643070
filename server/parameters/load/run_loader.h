/* Loads runs by order, one after the other, on a thread of its own. It fetches the model, makes the blocks,
   and reads them from a checkpoint where the order names one. Of a fork it reads only what the run that it
   began from has not in memory here (adopt.h). */
#ifndef WEIR_SERVER_PARAMETERS_LOAD_RUN_LOADER_H
#define WEIR_SERVER_PARAMETERS_LOAD_RUN_LOADER_H

#include "common/rpc/client.h"
#include "server/parameters/load/run_table.h"
#include "storage/store.h"

struct run_loader;

/* What became of a load. */
struct run_loaded {
  uint64_t membership; /* that the order came in */
  const Weir__LoadRun *order;
  struct hosted_run *run; /* a reference, the callee's; NULL: refused with err */
  uint64_t ordered_ns;    /* when the order came; CLOCK_MONOTONIC */
  struct err err;
  bool is_bad_input, is_lost_checkpoint, is_wrong_store; /* of a refusal */
};

struct run_loader_options {
  struct shard **shards; /* outlive the loader */
  uint32_t n_shards;
  struct run_table *runs;          /* outlives the loader: forks may find their blocks there */
  struct sums_client *sums_client; /* outlives the runs */
  struct store *store;             /* outlives the loader; may be NULL */
  const char *store_url;           /* for messages, with its password if it has one; may be NULL */
  int store_patience_ms;           /* how long a store that is away is asked again */
  int keeper_patience_ms;          /* likewise the server that keeps a run's sums */
  int (*tell)(void *user, uint64_t membership, const Weir__MemberMessage *message); /* of the runs' logs */
  /* A load that was not cancelled, nor is before the callback returns. On the loader's thread: never blocks,
     does not call the loader. */
  void (*done)(void *user, struct run_loaded *loaded);
  void *user;
};

struct run_loader *run_loader_new(const struct run_loader_options *options);
/* Cancels everything, ends the thread: waits for the store's answer if one is due. */
void run_loader_stop(struct run_loader *loader);
void run_loader_free(struct run_loader *loader); /* NULL is ignored */

/* Queues a load (the order is copied), unless the loader was stopped; models come over the channel, which
   lives until run_loader_stop. Any thread, never blocks; with no lock that `done` takes. */
void run_loader_add(struct run_loader *loader, const Weir__LoadRun *order, const char *own_id,
                    struct rpc_channel *coordinator, uint64_t membership);
/* Drops the loads of a run (NULL: all), also the one that is under way, as soon as it can be ended. Any
   thread, never blocks. */
void run_loader_cancel(struct run_loader *loader, const char *run);

#endif
