/* Replay: steps of a program's forward part are run again just before the backward steps that read what they
   wrote, so that it need not be kept from forward to backward. The same steps on the same bytes give the same
   bits. Pure: it knows which bytes steps read and write, not what they compute.

   A root is a range of bytes that a program plans memory for; names of the same bytes are one root. A step
   that computes in place reads and writes one root, by two uses: in the plan the two may be different roots.
   What a program holds anyhow, as weights, are roots that are not planned.

   Source: Chen et al., Training Deep Nets with Sublinear Memory Cost, 2016; Korthikanti et al., Reducing
   Activation Recomputation in Large Transformer Models, 2022, for replaying only what is cheap to compute. */
#ifndef WEIR_WORKER_BACKEND_REPLAY_REPLAY_H
#define WEIR_WORKER_BACKEND_REPLAY_REPLAY_H

#include <stdbool.h>

#include "common/base/err.h"
#include "common/base/memory.h"
#include "model/graph/memory_plan.h"

enum replay_mode {
  REPLAY_NONE,   /* everything is kept until it is read last */
  REPLAY_AUTO,   /* as little is replayed as makes the program fit */
  REPLAY_FULL,   /* as much is replayed as makes the program smallest */
  REPLAY_ALWAYS, /* all that may be, whatever memory it takes: for tests of what is replayed */
};

/* By a name of workers.recompute: none, auto or full. False for any other name. */
bool replay_mode_find(const char *name, enum replay_mode *out);

/* An argument of a step. */
struct replay_use {
  int root;
  bool is_written; /* else it is only read */
};

struct replay_root {
  size_t size_bytes; /* as they are allocated, not 0 where a planned root has no bytes */
  bool is_planned;   /* false: the bytes are there as long as the program, and count all that time */
};

/* A planned root that is read before a step writes it is there from the start: an input. One that is written
   again by a step that does not read it, and steps that read it before that, are run once only. */
struct replay_step {
  const struct replay_use *uses;
  int n_uses;
  bool is_once; /* it has effects elsewhere, or changes with what no root holds: never run again */
  double cost;  /* how long it takes, in whatever unit */
  int until;    /* of one that reads on while others run: the last of these; 0: none */
};

struct replay_program {
  const struct replay_step *steps; /* in the order in which they run */
  int n_steps;
  int n_forward; /* the steps before the first one of the backward part */
  const struct replay_root *roots;
  int n_roots;
};

struct replay_wish {
  enum replay_mode mode;
  size_t most_bytes; /* of AUTO: that the program may take */
  int n_contexts;    /* executions between forward and backward part at a time (split.h); 0: one */
};

/* A step of the plan. Steps that are not replays come in the program's order, each once. */
struct replay_item {
  int step;
  bool is_replay;   /* the step again, with other roots */
  const int *roots; /* [n_uses of the step] of the plan */
};

struct replay_plan {
  struct arena memory; /* all of the below */
  const struct replay_item *items;
  int n_items;
  int n_forward; /* the items before the backward part: what lives on both sides is saved */
  /* [n_roots] when each root lives, by items; those of size 0 are not used. offset is not set: memory_plan
     does. Roots that are not planned live always. */
  struct memory_span *spans;
  const int *origins; /* [n_roots] the program's root whose size and kind it has; its own number if it
                         is one of the program's */
  int n_roots;
  int n_replays;
  double cost, replay_cost; /* of all steps once; of the replays */
  size_t size_bytes;        /* as split_plan lays it out */
  size_t unreplayed_bytes;  /* the same if nothing were replayed */
};

/* Plans the program; the plan holds nothing of it. Never larger than unreplayed_bytes but for ALWAYS. Errors:
   NO_MEMORY when AUTO finds nothing that fits, with what is needed and what there is; *out is NULL then. */
int replay_plan_new(const struct replay_program *program, const struct replay_wish *wish,
                    struct replay_plan **out, struct err *err);
void replay_plan_free(struct replay_plan *plan); /* NULL is ignored */

#endif
