/* Making, finding, arming and unloading the blocks of a run on this server. */
#ifndef WEIR_SERVER_PARAMETERS_LOAD_HOSTED_RUN_H
#define WEIR_SERVER_PARAMETERS_LOAD_HOSTED_RUN_H

#include "server/parameters/block/block.h"
#include "server/parameters/exchange/exchange.h"
#include "server/parameters/load/opened_models.h"
#include "server/parameters/run/run.h"

/* What it takes to load a run. All of it is the caller's, and is not needed after hosted_run_new, except for
   the shards and the sums client. */
struct run_setup {
  const Weir__LoadRun *order;
  const char *own_id;           /* ours among order->servers */
  struct opened_models *models; /* where it is opened, or is open already */
  int (*fetch)(void *user, struct fetched_model *file, struct err *err); /* as of struct model_wanted */
  void *fetch_user;
  const struct piece_source *pieces; /* that the model's outline names; NULL: none can be read */
  struct shard **shards;             /* outlive the run */
  uint32_t n_shards;
  struct sums_client *sums_client; /* outlives the run; may be NULL where there is one server */
  /* Of the run's log: told of what report_log.h has. */
  int (*tell)(void *user, uint64_t membership, const Weir__MemberMessage *message);
  void *user;
};

/* Opens the model and makes the blocks that are ours at the version that the order says, with one reference.
   Those of a version other than 0 are to be restored before anything else. Of version 0 the pieces of our
   blocks are read, and no others. Errors: INVALID and UNSUPPORTED (the order, its spec or the model),
   NO_MEMORY; those of setup->fetch and setup->pieces. */
int hosted_run_new(const struct run_setup *setup, struct hosted_run **out, struct err *err);

/* The block of that index in the model. Errors: INVALID if there is none or another server owns it. */
struct hosted_block *hosted_run_block(struct hosted_run *run, uint32_t index, struct err *err);

/* The lowest and the highest of the newest versions of our blocks. Without any: the identities of minimum and
   maximum, the last version and 0. Any thread. */
void hosted_run_versions(const struct hosted_run *run, uint64_t *lowest, uint64_t *highest);

/* Its queue at shard s of the n_shards, among which its blocks are. */
struct job_queue *hosted_run_queue(const struct hosted_run *run, uint32_t s);

/* What the run has taken of the shards' time so far. Any thread. */
uint64_t hosted_run_served_ns(struct hosted_run *run);

/* Raises the run's hold; UINT64_MAX: there is none any more. One that is no higher than the present one
   changes nothing. Any thread, never blocks. */
void hosted_run_raise_hold(struct hosted_run *run, uint64_t hold);

/* All servers of the run are at its hold, at that version: our blocks rest (hosted_block_rest). Any thread,
   never blocks. */
void hosted_run_rest(struct hosted_run *run, uint64_t hold);

/* Every block of ours is written into the snapshot at its version; the snapshot fails if one has passed it.
   Any thread, never blocks. */
void hosted_run_arm(struct hosted_run *run, struct snapshot *snapshot);

/* Finishes what is parked, and all that still comes, with CANCELLED and the reason, and ends its snapshot.
   Any thread, once. */
void hosted_run_unload(struct hosted_run *run, const char *reason);

#endif
