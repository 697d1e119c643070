/* A run as one worker takes part in it. It is loaded on a thread of its own, joined when a view gives it
   work, and computed by executors. A run outlives the link to the coordinator: it goes on by the view that it
   has. */
#ifndef WEIR_WORKER_TRAIN_RUN_H
#define WEIR_WORKER_TRAIN_RUN_H

#include "cluster.pb-c.h"
#include "common/certs/ticket.h"
#include "peers.pb-c.h"
#include "worker/train/run/run_options.h"

struct run;

/* Begins to load and returns at once. RunLoaded or RunRefused follows through `send`; RunRefused also later,
   when the run cannot be computed here. The message is copied. */
struct run *run_start(const struct run_options *options, const Weir__LoadRun *load);

const char *run_id(const struct run *run);

/* The membership in which the run was ordered has ended: nothing is said before run_tell_again. This and the
   following, but for run_rest and run_become, may be called by any thread, and never block. */
void run_mute(struct run *run);

/* It is not this worker's for now: it leaves the run, says nothing more, and keeps what it has loaded until
   run_tell_again. Blocks until no execution is under way. False: it is of no use any more, for it has failed,
   or has not loaded yet, or an execution has not ended within end_ms of the run_options. */
bool run_rest(struct run *run);

/* It was ordered again, whatever the incarnation: RunLoaded is said again, or once it has loaded. False: it
   has failed, or loads from another coordinator than this one, or other stages are wanted, or data below
   another folder, and it is to be started anew. */
bool run_tell_again(struct run *run, const Weir__LoadRun *load, struct rpc_channel *coordinator);

/* Whether what has been loaded is what another order would load: the same programs of the same model, and
   data that has not changed since, which the order's tenant may read. The run rests. */
bool run_fits(struct run *run, const Weir__LoadRun *load, const struct data_root *data_root);

/* The run, which rests and fits the order, is the one that is ordered from now on; RunLoaded follows. False:
   it does not fit, and is of no use. */
bool run_become(struct run *run, const Weir__LoadRun *load, struct rpc_channel *coordinator);

/* False if it has failed. *incarnation: of the view that it works by. */
bool run_is_alive(struct run *run, uint64_t *incarnation);

/* It has failed and could not say so, so that nobody knows of it. */
bool run_is_lost(struct run *run);

/* The stages [begin, end) that it was ordered with; empty: all of them. */
void run_stages(const struct run *run, uint32_t *begin, uint32_t *end);

/* Takes in a view of this run; the highest number wins. worker: our id, as this view names it. */
void run_view(struct run *run, const Weir__View *view, const char *worker);

/* Takes in an order to compute more of a step than our share; the newest wins. */
void run_reissue(struct run *run, const Weir__Reissue *order);

/* Whether other workers need a ticket to send; else its coordinator gives none. */
bool run_has_peer_key(struct run *run);
/* Whether the holder of a certificate may send by this ticket, which is of this run. Errors: DENIED. */
int run_check_peer(struct run *run, const struct ticket *ticket, const char *holder, struct err *err);

/* Takes in a piece of a message from another worker of the run's team; bytes stay the caller's. Errors: BUSY
   when it is to be sent again; DROPPED for a step that is over here; INVALID. */
int run_take_boundary(struct run *run, const Weir__BoundaryPiece *piece, const struct rpc_bytes *bytes,
                      struct err *err);

/* Ends everything, waits for it, frees; blocks. NULL is ignored. False: an execution has not ended within
   end_ms of the run_options, so that thread and memory of the run are in use for good; then only the end of
   the process ends it, or another call, if it comes back. */
bool run_stop(struct run *run);

/* As run_stop, for a run that is to be started again by this order. *kept: what it had read of its data, for
   run_options.kept; NULL: nothing, or the order is not the same but for the stages. */
bool run_stop_but_data(struct run *run, const Weir__LoadRun *next, struct kept_data **kept);

#endif
