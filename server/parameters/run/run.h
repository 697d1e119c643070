/* A run on this server: what its order said, and the blocks of it that this server owns. */
#ifndef WEIR_SERVER_PARAMETERS_RUN_RUN_H
#define WEIR_SERVER_PARAMETERS_RUN_RUN_H

#include "cluster.pb-c.h"
#include "common/agree/plan.h"
#include "common/optim/optimizer.h"
#include "server/parameters/block/block.h"
#include "server/parameters/block/hosted_mode.h"
#include "server/parameters/exchange/exchange.h"
#include "server/parameters/run/report_log.h"

/* What it takes to load a run. All of it is the caller's and may go when hosted_run_new returns, but shards.
 */
struct run_setup {
  const Weir__LoadRun *order;
  const char *own_id; /* ours among order->servers */
  const void *model;  /* the ONNX file */
  size_t model_bytes;
  struct shard **shards; /* outlive the run */
  uint32_t n_shards;
  struct courier *courier; /* outlives the run; may be NULL where there is one server */
  /* Of the run's log: told of StepReport, EvalReport and RunComplete. */
  int (*tell)(void *user, uint64_t membership, const Weir__MemberMessage *message);
  void *user;
};

/* What came and went since the run was loaded; each atomic. Bytes are of f32s. */
struct traffic {
  uint64_t gradients, gradient_bytes; /* parts of parameter blocks that came */
  uint64_t weights, weight_bytes;     /* parameter blocks that went, to pushes and pulls */
};

struct hosted_run {
  char *id;
  uint64_t incarnation;
  Weir__RunSpec *spec;
  struct plan plan;
  const struct hosted_mode_def *mode;
  const struct optimizer_def *optimizer;
  struct report_log log; /* what the coordinator is told, once it was opened */

  uint32_t n_servers, self;    /* of the order; we are servers[self] */
  uint64_t base_step;          /* the version that this incarnation begins at */
  uint32_t n_blocks;           /* of the model */
  int32_t *own;                /* [n_blocks]: index into blocks, -1: another server's */
  struct hosted_block *blocks; /* ours */
  uint32_t n_own;
  uint32_t eval_row_elems;  /* of an evaluation's row */
  struct run_shard *shards; /* [n_shards]: what each shard keeps for this run */
  uint32_t n_shards;
  struct exchange exchange; /* of sums, where updates need them */

  struct traffic traffic;
  uint64_t step_ns;      /* when the last step completed; touched by the metrics block's shard alone */
  uint64_t proven_step;  /* atomic: version proven_step is complete on all servers */
  uint64_t advances;     /* atomic: versions that our blocks have made, all together */
  uint32_t n_unfinished; /* atomic: own blocks that are not yet at the end */
  char *unload_reason;   /* atomic: NULL until unloaded */
  uint32_t refs;         /* atomic */
};

/* Opens the model and makes the blocks that are ours at the version that the order says, with one reference.
   Those of a version other than 0 are to be restored before anything else. Errors: INVALID and UNSUPPORTED
   (the order, its spec or the model), NO_MEMORY. */
int hosted_run_new(const struct run_setup *setup, struct hosted_run **out, struct err *err);
struct hosted_run *hosted_run_get(struct hosted_run *run);
void hosted_run_put(struct hosted_run *run); /* NULL is ignored */

/* The block of that index in the model. Errors: INVALID if there is none or another server owns it. */
struct hosted_block *hosted_run_block(struct hosted_run *run, uint32_t index, struct err *err);

/* The lowest and the highest of the newest versions of our blocks. Without any: the identities of minimum and
   maximum, the last version and 0. Any thread. */
void hosted_run_versions(const struct hosted_run *run, uint64_t *lowest, uint64_t *highest);

/* Every block of ours is written into the snapshot at its version; the snapshot fails if one has passed it.
   Any thread, never blocks. */
void hosted_run_arm(struct hosted_run *run, struct snapshot *snapshot);

/* Counts a part that came, or with is_push false a block that goes. Any thread. */
void hosted_run_count(struct hosted_run *run, const struct hosted_block *block, bool is_push);

/* Finishes what is parked, and all that still comes, with CANCELLED and the reason, and ends its snapshot.
   Any thread, once. */
void hosted_run_unload(struct hosted_run *run, const char *reason);
bool hosted_run_is_unloaded(const struct hosted_run *run, struct err *err); /* err: what calls get */

/* For blocks and modes, on shards' threads. */
double hosted_run_lr(const struct hosted_run *run, double lr, uint64_t step); /* as scheduled */
/* A part of this step was accepted, so its worker held all of version `step`: older ones may be dropped. */
void hosted_run_prove(struct hosted_run *run, uint64_t step);
uint64_t hosted_run_proven_step(const struct hosted_run *run);
/* A block of ours has its next version; before anybody is given that version. */
void hosted_run_advance(struct hosted_run *run);
/* The version that each of our blocks has reached. They are at most one apart, since modes take no part for a
   version that another block lacks. */
uint64_t hosted_run_lowest(const struct hosted_run *run);
void hosted_run_report_step(struct hosted_run *run, uint64_t step, const struct metrics *metrics);
/* The evaluation of that version is complete. */
void hosted_run_report_eval(struct hosted_run *run, uint64_t version, const struct statistics *statistics);
/* One of our blocks has reached the end; the last one tells RunComplete. */
void hosted_run_finish_block(struct hosted_run *run);

#endif
