/* A run's steps without a network, a group or a loader: what a test has in the places of these is in
   steps_doubles.h. */
#ifndef WEIR_TESTS_SUPPORT_WORKER_STEPS_FIXTURE_H
#define WEIR_TESTS_SUPPORT_WORKER_STEPS_FIXTURE_H

#include "worker/train/run/steps.h"

enum { MICROBATCHES = 4, STEPS = 3, BLOCKS = 2, SENT_MAX = 64 };

/* One block of parameters, one of statistics. */
struct fixture {
  struct graph train, eval;
  struct param params[1];
  struct block blocks[BLOCKS];
  struct model model;
  struct block_map map;
  Weir__LoadRun load;
  uint32_t owner[BLOCKS];
  struct run run;
  struct transfer_item sent[SENT_MAX], given[SENT_MAX]; /* to servers; to the group */
  int n_sent, n_given;
};

/* A run of `steps` steps in that mode. */
struct fixture *steps_fixture_new(const struct mode *mode, uint64_t steps);
void steps_fixture_free(struct fixture *f);

/* What is sent: of the double of transfers_start. */
void steps_fixture_send(const struct transfer_item *item);
/* An outlet's: what is given to a group. */
void steps_fixture_give(struct outlet *outlet, const struct transfer_item *item);

void assign(struct fixture *f, uint32_t begin, uint32_t end);
void join(struct fixture *f, uint64_t step, struct task_range share);
void arrive(struct fixture *f, uint64_t version);                    /* every block of the version comes */
struct work begin(struct fixture *f, uint64_t step, uint32_t index); /* that is the next task */
/* Hands over what a microbatch adds to block 0; one that is to be sent at once is counted among the sent. */
void deliver(struct fixture *f, const struct work *work);
/* The parts of block 0 sent for the step, of the microbatches of the node. */
int sent_parts(const struct fixture *f, uint64_t step, uint32_t first, uint32_t level);

#endif
