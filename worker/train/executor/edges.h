/* The edges of a worker's stages: what crosses to and from the workers beside it in the run's team. Messages
   of neighbours come into inboxes, and tasks wait for them there; what leaves waits in the queues of senders.

   Nothing leaves before this worker holds every block of the task's version that its stages read. So does
   each worker below by then, since the task came through it; and whatever is pushed comes behind a message
   from above. So a push proves that the whole team holds the version that it was computed from.

   A message says of which run, incarnation, term and team it is, and of which step and task: others are
   refused. A member leaves and joins the run again by itself only while nothing has crossed its edges since
   the team got its number (run->is_touched). Otherwise the team is over: a task of which a message has
   crossed may wait at a neighbour for one that would not come any more. */
#ifndef WEIR_WORKER_TRAIN_EXECUTOR_EDGES_H
#define WEIR_WORKER_TRAIN_EXECUTOR_EDGES_H

#include "peers.pb-c.h"
#include "worker/train/boundary/sender.h"
#include "worker/train/executor/executor.h"
#include "worker/train/executor/riders.h"

/* Once the programs of the run's executors are prepared; nothing for a worker that has all stages. */
void edges_new(struct run *run);
void edges_free(struct run *run);

/* To the neighbours that the applied view names: the run begins to work in the team. The run's lock. */
void edges_open_locked(struct run *run);
/* Nothing is under way; gives the lock up meanwhile. What has come is forgotten. */
void edges_close_locked(struct run *run);

/* Fills counters->unreached_mates: the neighbours to which messages do not get; all of it is in the arena.
   The run's lock. */
void edges_fill_unreached_locked(struct run *run, Weir__RunCounters *counters, struct arena *arena);

/* Takes in a piece of a neighbour's message; bytes stay the caller's. Any thread; takes the run's lock.
   Errors: DROPPED for a step that is over here; BUSY when the piece is to be sent again; INVALID. */
int edges_take(struct run *run, const Weir__BoundaryPiece *piece, const struct rpc_bytes *bytes,
               struct err *err);

/* The following need the run's lock. Whether what the task awaits has come. */
bool edges_has_locked(struct run *run, const struct task *task);
/* A task that has come from below, and has not begun; work says which. False: none has. */
bool edges_next_locked(struct run *run, struct work *work);
/* It begins, or is not to. */
void edges_begin_locked(struct run *run, const struct work *work, bool is_begun);
/* Nothing that has come for that execution of the task is read any more. */
void edges_forget_locked(struct run *run, const struct task *task, uint32_t execution);
/* Whether as much waits to be sent to the stage above as may. */
bool edges_are_full(const struct run *run);

/* For the executor of the stage at the edge, which is at its task: backend_run.receive and .send. */
void edges_receive(struct executor *executor, enum backend_part part, const void **pieces);
void edges_send(struct executor *executor, enum backend_part part, const void *const *pieces);
/* Behind edges_send for a backward part, once the part has ended: a device may hand over its last gradients
   behind `send`. They are added to the message, and it leaves. */
void edges_send_riders(struct executor *executor);
/* What rides with the message from above goes to where the task has such things. */
void edges_take_riders(struct executor *executor);

/* Where the pieces lie of what the executor's train program receives for the part across an edge, or sends.
 */
const struct message_layout *edges_train_layout(const struct executor *executor, enum backend_part part,
                                                bool is_sent);

#endif
