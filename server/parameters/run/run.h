/* A run on this server: its order, and what its blocks share. server/parameters/load/hosted_run.h makes it
   and ends it. */
#ifndef WEIR_SERVER_PARAMETERS_RUN_RUN_H
#define WEIR_SERVER_PARAMETERS_RUN_RUN_H

#include "cluster.pb-c.h"
#include "common/agree/plan.h"
#include "common/compress/compression.h"
#include "common/modes/mode.h"
#include "common/optim/update_rule.h"
#include "server/parameters/round/statistics.h"
#include "server/parameters/run/exchange_plan.h"
#include "server/parameters/run/pace.h"
#include "server/parameters/run/report_log.h"
#include "server/parameters/run/shares.h"
#include "server/parameters/run/tickets.h"

struct exchange;
struct hosted_block;
struct run_shard;

/* What came and went since the run was loaded; each atomic. Bytes are the blocks' own, as they were sent. */
struct traffic {
  uint64_t gradients, gradient_bytes;        /* parts of parameter blocks that came */
  uint64_t weights, weight_bytes;            /* parameter blocks that went, to pushes and pulls */
  uint64_t shared_gradients, shared_weights; /* of either, what was named in shared memory */
};

struct hosted_run {
  char *id;
  int trace_number; /* of trace_run_begin */
  uint64_t incarnation;
  Weir__RunSpec *spec;
  struct plan plan;
  struct mode mode;
  struct mode_bounds bounds; /* the mode's */
  struct compression compression;
  struct update_rule rule;
  const struct optimizer_def *optimizer; /* the rule's */
  struct report_log log;                 /* what the coordinator is told, once it was opened */
  struct run_tickets tickets;
  struct run_shares shares;

  uint32_t n_servers, self;    /* of the order; we are servers[self] */
  uint64_t base_step;          /* the version that this incarnation begins at */
  uint64_t slots_step;         /* and that at which the optimizer began */
  uint32_t n_blocks;           /* of the model */
  uint64_t cut_hash;           /* runs that have it in common are of one model, which is cut alike */
  int32_t *own;                /* [n_blocks]: index into blocks, -1: another server's */
  struct hosted_block *blocks; /* ours */
  uint32_t n_own;
  uint32_t eval_row_elems;  /* of an evaluation's row */
  struct run_shard *shards; /* [n_shards]: what each shard keeps for this run */
  uint32_t n_shards;
  /* Sums over blocks that updates need. contribute: those that one of our blocks has made of the phase that
     it is in, on the block's shard; its totals follow, or a fault, unless the run is unloaded. */
  struct exchange_plan sums;
  struct exchange *exchange;
  void (*contribute)(struct exchange *exchange, struct hosted_block *block);

  struct traffic traffic;
  struct pace pace;
  uint64_t step_ns;        /* when the last step completed; touched by the metrics block's shard alone */
  uint64_t proven_version; /* atomic: it is complete on all servers */
  uint64_t lowest;         /* atomic: the version that each of our blocks has reached */
  /* [bounds.rounds + 1] atomic: how many of our blocks have reached a version after `lowest`; the nth version
     at n % (bounds.rounds + 1) */
  uint32_t *n_reached;
  uint64_t hold;         /* atomic: the last version that is computed for now; UINT64_MAX: there is no hold */
  uint32_t n_unfinished; /* atomic: own blocks that are not yet at the end */
  char *unload_reason;   /* atomic: NULL until unloaded */
  uint32_t refs;         /* atomic */
  void (*dispose)(struct hosted_run *run); /* ends blocks, shards and exchange, with the last reference */
};

struct hosted_run *hosted_run_get(struct hosted_run *run);
void hosted_run_put(struct hosted_run *run); /* NULL is ignored */

bool hosted_run_is_unloaded(const struct hosted_run *run, struct err *err); /* err: what calls get */

/* For blocks and modes, on shards' threads. */
/* A part was accepted, so its worker held all of the version that it was computed from: what nobody needs
   once that is complete everywhere may be dropped. */
void hosted_run_prove(struct hosted_run *run, uint64_t version, const struct part *part);
uint64_t hosted_run_proven_version(const struct hosted_run *run);
/* A block of ours has come to that version, its next; before anybody is given it. */
void hosted_run_advance(struct hosted_run *run, uint64_t version);
/* The version that each of our blocks has reached. The others are at most bounds.rounds ahead, since no part
   is taken that was computed from a version which another block lacks. */
uint64_t hosted_run_lowest(const struct hosted_run *run);
/* The highest version that a block whose newest is `newest` may give away, and take parts of: none from an
   evaluated one on before that one is there. */
uint64_t hosted_run_horizon(const struct hosted_run *run, uint64_t newest);
uint64_t hosted_run_hold(const struct hosted_run *run);
/* Tells RunHeld if each of our blocks has reached the hold. Any thread. */
void hosted_run_tell_held(struct hosted_run *run);
/* n_left: that and the following steps are of one update, and share the time since the one before. */
void hosted_run_report_step(struct hosted_run *run, uint64_t step, uint32_t n_left,
                            const struct metrics *metrics);
/* The evaluation of that version is complete. */
void hosted_run_report_eval(struct hosted_run *run, uint64_t version, const struct statistics *statistics);
/* One of our blocks has reached the end; the last one tells RunComplete. */
void hosted_run_finish_block(struct hosted_run *run);
bool hosted_run_is_finished(const struct hosted_run *run); /* all of them have. Any thread */

#endif
