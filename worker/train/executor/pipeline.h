/* The order in which the stages of a team compute: one forward, one backward. A task goes forward through
   the stages from the lowest to the highest, and back from there to the lowest. A stage whose backward part
   of some task can be computed computes it first. So no stage has more tasks between its forward part and its
   backward part than there are stages from it upwards, which is what its memory is planned for.

   A worker may have some of the stages only, and other workers the stages below and above. Then a task comes
   from below and goes on above, and waits between its parts for what the others make of it.

   Pure: it knows places of tasks, not what is computed. One stage alone has one task at a time.

   Source: Narayanan et al., PipeDream: Generalized Pipeline Parallelism for DNN Training, 2019; with a flush
   after each step, Efficient Large-Scale Language Model Training on GPU Clusters, 2021. */
#ifndef WEIR_WORKER_TRAIN_EXECUTOR_PIPELINE_H
#define WEIR_WORKER_TRAIN_EXECUTOR_PIPELINE_H

#include <stdbool.h>
#include <stdint.h>

enum pipeline_part {
  PIPELINE_FREE,     /* there is no task in the slot */
  PIPELINE_FORWARD,  /* at the highest stage of a task that goes back, both parts at once */
  PIPELINE_BACKWARD, /* at any other stage */
  PIPELINE_AWAITS,   /* another worker's stage: the one above where the task goes back, else the one below */
};

/* A place for a task. Read by others, changed by the functions below. */
struct pipeline_slot {
  enum pipeline_part next;
  int stage;    /* that computes it */
  bool is_busy; /* and is at it */
  bool goes_back;
  uint64_t order; /* the task began as the order-th */
  int *contexts;  /* [n_stages] from the forward to the backward part: which of the stage's; -1 */
};

struct pipeline {
  int n_stages;                /* of the model */
  int first, last;             /* those that are computed here */
  struct pipeline_slot *slots; /* [n_stages] */
  uint64_t n_begun;
  bool is_held_up; /* no task that does not go back may be computed at the last stage: what it sends has no
                      room */
};

void pipeline_init(struct pipeline *pipeline, int n_stages, int first, int last);
void pipeline_fini(struct pipeline *pipeline);

/* How many tasks the stage may have between both parts. */
int pipeline_contexts(int n_stages, int stage);

/* Whether there is a slot for another task. */
bool pipeline_has_room(const struct pipeline *pipeline);
/* A task begins: its slot. There is room. */
int pipeline_begin(struct pipeline *pipeline, bool goes_back);

/* The slot whose part the stage is to compute now, and is at from here on; -1: none. */
int pipeline_take(struct pipeline *pipeline, int stage);

/* The part has been computed. True: so is the task as far as it is computed here, and its slot is free. */
bool pipeline_finish(struct pipeline *pipeline, int slot);

/* Computed at the last stage, a task that does not go back begins anew at the first one. */
void pipeline_repeat(struct pipeline *pipeline, int slot);

/* What the task awaits is there. */
void pipeline_resume(struct pipeline *pipeline, int slot);

/* Of a task that nobody wants any more, and nobody is at: somebody is from here on, to drop it. */
void pipeline_take_away(struct pipeline *pipeline, int slot);
/* Frees the slot, wherever the task was. */
void pipeline_drop(struct pipeline *pipeline, int slot);

#endif
