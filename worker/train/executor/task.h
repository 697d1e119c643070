/* A task under way: a microbatch or an evaluation chunk, from its begin until its results are handed over or
   dropped. Here is what belongs to the task wherever it is computed; what belongs to a thread, its programs
   and its device is the executor's.

   The executor that is at the task is the only one that touches it, and needs no lock for that; it is handed
   on under the run's lock. Only `work` is read by others: it changes under that lock, while the task is not
   under way. */
#ifndef WEIR_WORKER_TRAIN_EXECUTOR_TASK_H
#define WEIR_WORKER_TRAIN_EXECUTOR_TASK_H

#include "common/base/sha256.h"
#include "worker/data/loader.h"
#include "worker/train/run/run_state.h"
#include "worker/train/run/steps.h"

/* A block that several small parameters share, or into which a device copies, while they arrive. */
struct gather {
  struct buffer *buffer; /* NULL: none has come */
  uint32_t n_come;
};

/* Hashes of gradients. Each has its own, since stages deliver theirs in whatever order. */
struct probe {
  char (*gradients)[SHA256_HEX_SIZE]; /* [n_params] */
  /* Of a worker that has some of the stages, by part: what comes from other workers, and what goes there. */
  unsigned char *drawn[BACKEND_BACKWARD + 1];
  char sent[BACKEND_BACKWARD + 1][SHA256_HEX_SIZE];
};

struct task {
  struct run *run;
  struct work work;
  struct replica *replica; /* that the microbatch is of, and whose its results are; NULL: they are pushed */
  uint32_t execution;      /* of a chunk, which one follows or is under way; else 0 */
  struct loader_batch *batch;    /* the samples that are computed; NULL: none now */
  bool is_dropped;               /* its results are no longer wanted: every callback returns at once */
  bool is_current;               /* seen: its parts may be pushed */
  float *row;                    /* f32[row_elems]: a microbatch's statistics */
  int n_left;                    /* taps of the train program that have not delivered */
  struct gather *gathers;        /* [n_param_blocks] */
  struct evaluation *evaluation; /* a chunk's; NULL */
  struct probe *probe;           /* not NULL: gradients are hashed instead of pushed */
};

/* With memory for any task of the run, one after another. Nothing is under way. */
struct task *task_new(struct run *run);
void task_free(struct task *task);

/* It is under way. The run's lock. */
void task_begin(struct task *task, const struct work *work);

/* True once its results are no longer wanted; drops it. Takes the run's lock. */
bool task_is_cancelled(struct task *task);

/* Ends the run with what is wrong about this task: "WHAT of microbatch 3 of step 17 ...". Drops the task. */
void task_fail(struct task *task, const char *what);
void task_fail_err(struct task *task, const struct err *err);
/* With what is wrong with the data, which may be samples that were read ahead for another task. */
void task_fail_data(struct task *task, const struct err *err);
/* For want of memory for its gradient. */
void task_fail_memory(struct task *task);

/* Drops the task if its step is over: nothing may be added to its sums any more. The run's lock. */
void task_check_current_locked(struct task *task);

/* Where its parts are added. The run's lock. */
struct reducer *task_reducer(const struct task *task);
/* f32s of a part of the block. */
uint32_t task_part_elems(const struct task *task, uint32_t block);

/* A push of a sum that has the task's part of the block; its buffer is to be set. */
struct transfer_item task_sum_item(const struct task *task, uint32_t block, const struct reducer_send *send);
/* A push of an extra task's part by itself; its buffer is to be set. */
struct transfer_item task_extra_item(const struct task *task, uint32_t block);
/* Sends parts of the task's, at most SENT_TOGETHER_MAX: of an extra one straight to the servers, of a
   replica's to the replica. */
void task_send(const struct task *task, const struct transfer_item *items, int n);

/* A sum of finite siblings is not finite. True: it is lost, and the microbatches of the node will be computed
   again; the caller gives the sum back. False: the group's gatherer will find it. Drops the task if its step
   is over. Where other workers have the other stages the run fails: nobody computes a microbatch alone. */
bool task_lose_sum(struct task *task, uint32_t block, struct tree_node node);

#endif
