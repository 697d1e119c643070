/* An executor: a thread that computes one task at a time with programs of its own, the whole task or its
   team's stage of it. It is single-threaded, so that the same task gives the same bits on any executor. What
   a task has gathered so far lies in the task (worker/train/executor/task.h). */
#ifndef WEIR_WORKER_TRAIN_EXECUTOR_EXECUTOR_H
#define WEIR_WORKER_TRAIN_EXECUTOR_EXECUTOR_H

#include "worker/backend/device_memory.h"
#include "worker/train/executor/executor_times.h"
#include "worker/train/executor/outbox.h"
#include "worker/train/executor/team.h"
#include "worker/train/run/sending.h"

/* What a watched value of the train graph is for. Two parameters may share one gradient: taps of the same
   value form a list. */
enum tap_kind { TAP_GRADIENT, TAP_STATISTIC, TAP_METRIC };

struct tap {
  enum tap_kind kind;
  int index; /* of the parameter, the statistic or the metric */
  int next;  /* another tap of the value, -1: none */
};

/* Values of the eval graph that are watched: loss_sum, of losses with classes correct, scored, denominator,
   and last the output, where metrics read it. */
enum { EVAL_WATCHED_MAX = 5, EVAL_WATCH_OUTPUT = -1 };

/* The part of a parameter that lies in a block: its length, and where it begins in each. */
struct overlap {
  size_t elems, in_param, in_block;
};

/* A block of the task's, put together in a buffer, on its way through the reducer. */
struct part {
  uint32_t block;
  struct tree_node node;  /* what `sum` is the sum of */
  struct buffer *sum;     /* NULL: the reducer holds it */
  struct buffer *sibling; /* to be added to it; NULL */
  struct buffer *landed;  /* a copy in host memory, to be sent; NULL */
  bool is_to_send;
  struct transfer_item item;
};

/* Parts that have come in this execution and were not yet handed over; none between executions. */
struct parts {
  struct part *list;
  struct device_sum *sums; /* to be added next */
  int n, n_sums, capacity, sums_capacity;
};

/* Only its own thread touches it, but for `thread` and for what is under the run's lock. */
struct executor {
  struct run *run;
  int index;
  pthread_t thread;
  struct team *team;
  int stage; /* of the model's, which its programs compute */
  /* The task that it is at, or was at last, and what it does of it. Change under the run's lock. */
  struct task *task;
  struct task *inner; /* of a replica, for its microbatches; NULL: none are computed here */
  struct turn turn;
  /* Under the run's lock: whether it is at its task, and since when that counts as busy. */
  bool is_executing;      /* begun, not ended, and not waiting for weights or for another step */
  uint64_t busy_since_ns; /* 0: not at all */
  uint64_t void_since_ns; /* since when nobody wants the task, as a beat found; 0: it is wanted */
  bool is_told_to_hang;
  struct backend_program *train, *eval; /* eval: NULL without an eval set */
  struct outbox up, down, eval_up;      /* what they send to the stages above and below */
  int device;                           /* where the programs are, where a backend has several */
  const struct device_memory *memory;   /* NULL: the host's */
  struct device_stream *stream;         /* of the device, for its parts of gradients; NULL without memory */

  int *watched; /* [n_watched] values of the train graph */
  int *taps_of; /* [n_watched] first tap */
  struct tap *taps;
  int n_watched, n_taps;
  int n_taps_here;                    /* of values that the stages make which are here */
  int eval_watches[EVAL_WATCHED_MAX]; /* metric of each watched value of the eval graph, or OUTPUT */

  struct executor_times times;
  uint64_t n_dropped; /* executions that may have read weights which were not there */
  struct parts parts;
  struct {
    struct transfer_item items[SENT_TOGETHER_MAX];
    int n;
  } leaving; /* parts of the task's that are sent next */
};

/* cut.c: cuts the run's model into the stages of its teams: as the spec says, or into as few as fit. Errors:
   INVALID for cuts that cannot be, and fewer executors than stages; NO_MEMORY where nothing fits, with what
   would.
 */
int executors_cut(struct run *run, struct err *err);
/* Which blocks the programs of the run's executors read, and which of them this worker pushes: run->roles,
   for versions of the weights, too. They are prepared, and no version is open. */
void executors_share_blocks(struct run *run);
/* Has the loader read only what the programs do. */
void executors_share_inputs(struct run *run);
/* How many teams there are of so many stages each. */
int executors_teams(const struct run *run, int n_stages);

/* Starts the run's executors in teams of run->n_stages. Each of them prepares its programs; run->n_prepared
   counts those that are done, run->prepare_err has the first failure. */
void executors_start(struct run *run);
void executors_join(
    struct run *run); /* run->is_stopping or prepare_err is set; waits for the threads, frees */

/* Nanoseconds that the run's executors have been busy, those that they are at included: with microbatches,
   and with whatever they do not come back from though nobody wants it any more. The run's lock; the run has
   loaded. */
uint64_t executors_busy_ns_locked(struct run *run);

/* What an executor takes. */
struct stage_bytes {
  uint64_t programs;
  uint64_t others; /* of a device besides: sums of its stage's gradients, a group's versions of the weights */
};
/* For one stage of the team, of the cuts that the run has now. As little as can be where programs adapt to
   the memory that there is. Allocates none of it. The backend has `measure`. Errors: as executor_prepare. */
int executor_measure(struct team *team, int stage, struct stage_bytes *out, struct err *err);

/* Before which nodes the backend can cut the graphs of the run's programs, as backend_def.find_places. eval
   NULL: there is no eval set. */
int executor_find_places(struct run *run, bool *train, bool *eval, struct err *err);

/* On which device the index-th executor is; 0 where the backend has none. */
int executor_device(const struct run *run, int index);

/* Its programs, outboxes and stream. Errors: those of backends. */
int executor_prepare(struct executor *executor, struct err *err);
void executor_taps_free(struct executor *executor);
/* The gradients of the first microbatch at the weights of the probe, hashed into the run: machines that do
   not agree on them do not agree on anything. By the first of a team, while nothing is under way. */
int executor_probe(struct executor *executor, struct err *err);

/* The executor's turn at a microbatch. Hands over what comes of it. */
void executor_train(struct executor *executor);
/* The executor's turn at a replica: all its inner steps, with the help of others. Hands over what it moved
 * by. */
void executor_replicate(struct executor *executor);
/* Helps with the replica that is under way. False: there is nothing to help with. Gives the lock up
 * meanwhile.
 */
bool executor_help_locked(struct executor *executor);
/* It is at its task from here on, or waits. */
void executor_go_locked(struct executor *executor);
void executor_halt_locked(struct executor *executor);
/* What a dropped task still has is given back. */
void executor_let_go(struct executor *executor);
/* The executor's turn at a chunk. Hands its results over at the end of the last execution. True: another one
   follows, behind this one's last stage. */
bool executor_evaluate(struct executor *executor);
/* The chunk has ended: by its results, or dropped. */
void evaluation_free(struct task *task);
bool executor_is_last(const struct executor *executor); /* its stage is the model's highest */
/* Whether what its stage is sent for a part, or sends after it, is another worker's, if there is any. */
bool executor_is_at_edge(const struct executor *executor, enum backend_part part, bool is_sent);

/* An execution's numbers for the backend. */
uint64_t executor_weights_version(const struct executor *executor);

/* Waits until what its task has may be pushed. False: it was dropped. Takes the run's lock. */
bool executor_wait_current(struct executor *executor);

/* Callbacks for backend_run of both programs; user is the executor, which is at the task. */
void executor_before_train_weight(void *user, int value);
void executor_before_eval_weight(void *user, int value);
bool executor_is_cancelled(void *user);

/* Hands over a parameter's gradient (f32[elems of param]), block by block, and at the end the row. */
void executor_deliver_gradient(struct executor *executor, int param, const float *grad);
void executor_deliver_row(struct executor *executor);
/* Hands over a block's part that is in host memory, f32 of as many as are pushed. It may be sent later, by
   executor_send_leaving at the latest. what: for errors. */
void executor_deliver_block(struct executor *executor, uint32_t block, const float *data, const char *what);
/* Where the bytes of a parameter's gradient are wanted, for backend_run.place. Once they are there,
   executor_deliver_placed, which fails the task if they are not finite; after the last of those that came
   together, executor_deliver_parts. */
int executor_place_gradient(struct executor *executor, int param, struct backend_piece *pieces, int max);
void executor_deliver_placed(struct executor *executor, int param, bool is_finite);
/* A parameter's share of a block that it does not have alone (f32[elems of both]), by whichever way it came.
 */
void executor_gather_piece(struct executor *executor, uint32_t block, int param, const float *piece);
/* A parameter's share, which is finite, has been copied into the block's gather buffer. */
void executor_part_come(struct executor *executor, uint32_t block);
/* Sends the part with those that leave at the same time; executor_send_leaving sends what is left of them. */
void executor_leave(struct executor *executor, const struct transfer_item *item);
void executor_send_leaving(struct executor *executor);
/* Adds all that have come to their siblings, until they are sent or wait for more. */
void executor_deliver_parts(struct executor *executor);
/* Sends a part that the reducer gave up while it was on a device. False: there is none. Gives the lock up
   meanwhile. Asked by every executor before it waits. */
bool executor_land_locked(struct executor *executor);
struct overlap overlap_of(const struct model *model, uint32_t block, const struct param *param);
/* The task is dropped: gives back what has come of its gradients. */
void executor_drop_gathers(struct executor *executor);

#endif
