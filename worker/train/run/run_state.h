/* The state of a run under one lock, for the files of worker/train alone. */
#ifndef WEIR_WORKER_TRAIN_RUN_RUN_STATE_H
#define WEIR_WORKER_TRAIN_RUN_RUN_STATE_H

#include <pthread.h>

#include "common/compress/compression.h"
#include "common/modes/mode.h"
#include "model/stages/cuts.h"
#include "worker/train/block/block_map.h"
#include "worker/train/block/block_pool.h"
#include "worker/train/block/reducer.h"
#include "worker/train/block/tasks.h"
#include "worker/train/block/weights.h"
#include "worker/train/replica/replica.h"
#include "worker/train/run/extras.h"
#include "worker/train/run/group.h"
#include "worker/train/run/load.h"
#include "worker/train/run/mates.h"
#include "worker/train/run/reissues.h"
#include "worker/train/run/residuals.h"
#include "worker/train/run/run_options.h"
#include "worker/train/transfer/transfers.h"

struct relay;
struct team;
struct edges;

/* LOADING: model, data, programs. IDLE: no part in the run. JOINING: asks the servers for a version. WORKING:
   steps are computed. LEAVING: waits until nothing of it is under way, then IDLE. FAILED: said so to the
   coordinator, waits to be stopped, or for a view of a later incarnation: what failed was rolled back. */
#define RUN_PHASES(PHASE)                                                                                    \
  PHASE(LOADING, "loading")                                                                                  \
  PHASE(IDLE, "idle")                                                                                        \
  PHASE(JOINING, "joining")                                                                                  \
  PHASE(WORKING, "working")                                                                                  \
  PHASE(LEAVING, "leaving")                                                                                  \
  PHASE(FAILED, "failed")

enum run_phase {
#define PHASE(name, text) RUN_##name,
  RUN_PHASES(PHASE)
#undef PHASE
};

/* What the applied view gives us: microbatches of every step, chunks of every evaluation. follows: none of
   either, and versions all the same. */
struct share {
  struct task_range microbatches, chunks;
  bool follows;
  uint32_t executors; /* that may compute, the first of them; 0: all */
};

/* How far a worker is that follows. */
struct follow {
  bool is_told;          /* that it is ready */
  uint32_t n_unanswered; /* servers that were asked for their versions */
  uint64_t newest;       /* of those that have answered */
};

/* What has been done since the run was loaded; it only grows. */
struct totals {
  uint64_t computed; /* microbatches */
  uint64_t busy_ns;  /* of all executors, by executions that have ended or wait */
  uint64_t received_bytes;
};

/* What is computed of one step: the microbatches of its batch, and chunks, where the version of the same
   number is evaluated. */
struct step_tasks {
  uint64_t step;
  struct task_list microbatches, chunks;
  struct extras extra_microbatches, extra_chunks;
  bool is_due;   /* its gradients are computed. A hold that comes later is too late for it. */
  bool is_begun; /* what it is computed from is all here: its gradients may be pushed, by its reducer */
};

/* To whom a reducer's parts go. */
struct step_sends {
  struct run *run;
  uint64_t step; /* that the reducer is of */
};

/* Where sums of gradients go while workers of one host reduce among themselves (worker/train/group/relay.h).
 */
struct outlet {
  /* A part of this worker's: a push of a parameter block. Its buffer is the callee's. Any thread, with or
     without the run's lock; never blocks. */
  void (*give)(struct outlet *outlet, const struct transfer_item *item);
  /* Parts travel from device to device, so they are given where they are; and versions that are opened
     meanwhile are read on devices. */
  bool is_on_device;
};

struct run {
  struct run_options options;
  Weir__LoadRun *load;
  struct model_fetch fetch;
  pthread_t thread;
  int trace_number; /* of trace_run_begin */

  /* Made while LOADING, then only read. */
  struct loaded loaded;
  struct block_map map;
  uint32_t *block_elems; /* [n_blocks] */
  struct compression compression;
  struct residuals *residuals; /* of gradients that are compressed with feedback; NULL */
  struct block_pool *pool;
  struct executor *executors; /* [n_executors] */
  int n_executors;
  struct model_cuts cuts;
  struct stage_part part; /* the stages that this worker's teams compute */
  uint8_t *roles;         /* enum block_role[n_blocks]: which blocks these stages have to do with */
  struct edges *edges;    /* to the workers with the other stages; NULL: there are none */
  struct team *teams;     /* [n_teams] each of as many executors, one after another, as there are stages */
  int n_teams;
  uint64_t room_bytes;  /* of this machine's memory, that programs may take together, where they adapt */
  size_t program_bytes; /* that an executor's programs may take together, where they adapt; 0: what is free */

  pthread_mutex_t lock; /* what follows; callbacks of rpc take it, so nobody blocks under it */
  pthread_cond_t changed;
  enum run_phase phase;
  bool is_stopping, has_ended;
  bool is_data_kept;      /* when it ends: */
  struct kept_data *kept; /* what it had read */
  bool is_loaded;
  bool is_muted;              /* nobody waits for what we would say */
  bool is_crowded;            /* memory did not suffice to load beside other runs */
  uint64_t order_incarnation; /* of the newest order to load it */
  int n_prepared;             /* executors that are ready, or failed to be */
  struct err prepare_err;
  char probe_sha256[SHA256_HEX_SIZE];

  Weir__View *newest;  /* the newest view that came; NULL: none */
  Weir__View *applied; /* the view we work by; NULL: none */
  struct share newest_share, share;
  uint32_t newest_worker, worker;   /* who we are by these views: N of the id worker-N; 0: of another kind */
  struct group newest_group, group; /* ours by these views */
  struct mates newest_mates, mates; /* our team of workers by these views */
  bool is_touched;                  /* that team sent us anything, or took anything from us */
  struct group last_group;          /* the last that we opened a relay for: a group is tried once */
  struct err group_err;             /* why that group has ended */
  bool is_group_told;               /* the coordinator knows that the applied view's group has ended */
  bool is_unreached_told;           /* the coordinator knows that we do not reach all servers */
  uint64_t incarnation;             /* of the applied view */
  uint64_t hold;                    /* likewise: no step from it on becomes due; 0: there is none */
  bool must_rejoin;                 /* a server is elsewhere in the run: begin again where the servers are */
  int setbacks;                     /* rejoins in a row without a new version; the pauses before them grow */
  int drops;                        /* those of them, in a row, because dropped_version was dropped */
  uint64_t dropped_version;
  struct reissues reissues; /* ordered */
  struct totals totals;
  int n_under_way; /* tasks that have begun and not ended */

  /* While JOINING, once the servers were asked. */
  uint32_t n_unanswered;
  uint64_t lowest; /* version of those that answered */

  /* While JOINING and WORKING, and until LEAVING has ended. */
  struct relay *relay;   /* of the applied view's group; NULL: we go alone */
  struct outlet *outlet; /* the relay's; NULL without it: sums go straight to the servers */
  struct transfers *transfers;
  uint32_t *owner; /* [n_blocks]: the block's server, an index in applied->servers */
  struct weights *weights;
  struct replica *replica; /* of mode local, whose microbatches are a replica's; NULL */
  bool is_replicating;     /* there is room for one */
  struct mode mode;
  struct mode_bounds bounds; /* the mode's */
  uint64_t first_step;       /* the first that may not be over */
  uint32_t n_steps;          /* that are open from it on */
  struct step_tasks *steps;  /* [bounds.rounds + 1]: the nth step (mode_count) at n % that */
  struct reducer **reducers; /* [bounds.rounds]: likewise, of steps that are begun */
  struct step_sends *sends;  /* [bounds.rounds]: of each reducer */
  struct transfer_item
      *unsent; /* its parts that are to be sent, once an executor has copied them to the host */
  int n_unsent, unsent_capacity;
  struct follow follow;
};

/* Legal changes only; logs it. */
void run_set_phase_locked(struct run *run, enum run_phase phase);

/* Waits that long. False if there is something to do before: the run stops, or a view came. */
bool run_pause_locked(struct run *run, int pause_ms);

/* The run cannot be computed here: tells the coordinator, if one listens. */
void run_fail_locked(struct run *run, const struct err *err, bool is_bad_input);
void run_fail(struct run *run, const struct err *err, bool is_bad_input);

#endif
