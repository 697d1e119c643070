/* Stages: a program cut into parts, each of which a member of a pipeline runs. Pure: it knows which bytes
   steps read and write (worker/backend/replay/replay.h), not what they compute.

   A cut is a place between forward nodes: the nodes before it lie below the cut, the others above it. Cuts
   p1 < p2 < ... make stages 0, 1, ... of the nodes between them. A step belongs to the stage of its nodes: a
   backward step to that of the forward nodes that it differentiates. A stage runs its forward steps, and
   later its backward steps, each in the program's order. So the parts of all stages follow each other as

     forward 0, forward 1, ... forward n, backward n, ... backward 1, backward 0

   What is made in one part and read in another one crosses the edges between them: in the forward part from
   stage i to i + 1 only, in the backward part from i + 1 to i only. What a stage further on needs is relayed
   by every stage between. A forward result that a lower stage's backward part reads goes down with gradients.

   Steps of nobody (fetches of weights, reorders) have no node. Each stage that reads what such a step makes,
   itself or by another step of nobody, runs the step itself; what the step reads crosses, its result does
   not. The step runs in the stage's forward part if it is a forward step and what it reads is there by then,
   else in the backward part. A step of nobody whose results nobody reads belongs to no stage.

   Inputs (planned roots that are read before a step writes them) are there in every stage that reads them,
   and never cross. Roots that are not planned never cross. Steps of nobody write them, from other such roots,
   alike for all microbatches: each stage that reads one has its own. Each weight is a root of its own, which
   its fetch writes. A root that is not planned and that a step with nodes writes is each microbatch's own.

   Steps that the above leaves no choice are kept together, at the price of cuts:
   - All steps that write one content, and the steps that read it before the last of these, are in one stage.
   - All steps that use a root that is not planned, and that a step with nodes writes, are in one stage; a
   step of nobody that reads such a root belongs to that stage, and its results cross.
   - A step of nobody that writes a content which another step writes, too, and one that writes a root that is
   not planned from planned ones, lie in all stages: no cut is valid. */
#ifndef WEIR_WORKER_BACKEND_STAGES_STAGES_H
#define WEIR_WORKER_BACKEND_STAGES_STAGES_H

#include "model/graph/graph.h"
#include "worker/backend/replay/replay.h"

/* Forward nodes that a step belongs to. */
struct stage_span {
  int first, last; /* first -1: the step is nobody's */
};

/* What is cut. The caller's, until the functions below return. */
struct staged_program {
  const struct replay_program *program;
  const struct stage_span *spans; /* [n_steps] */
  int n_nodes;                    /* forward nodes */
};

/* is_valid[n_nodes + 1]: whether the program can be cut before that node. Never before the first one, nor
   behind the last one. Any set of valid cuts can be made together (places.c has the proof). */
void stages_find_places(const struct staged_program *staged, bool *is_valid);
/* That the graph, whose program it is, can be cut before the nodes cuts[n_cuts] together. Errors: INVALID,
   which names the first node before which it cannot, or that does not lie behind the one before it. */
int stages_check_cuts(const struct staged_program *staged, const struct graph *graph, const int *cuts,
                      int n_cuts, struct err *err);

/* What the cuts at each place are chosen by. Bytes are those of roots, without gaps. */
struct stage_measures {
  struct arena memory; /* all of the below: [n_nodes + 1], by place */
  double *cost; /* of all steps of the nodes before it; of a step of nobody, as if its first reader ran it */
  size_t *saved_bytes;    /* that forward steps of the nodes before it make and backward steps read */
  size_t *forward_bytes;  /* that cross a valid cut there, whatever other cuts there are: from below, */
  size_t *backward_bytes; /* and from above */
};
void stages_measure(const struct staged_program *staged, struct stage_measures *out);
void stage_measures_fini(struct stage_measures *measures);

/* A step of a stage. */
struct stage_item {
  int step;
  const int *roots; /* [n_uses of the step] of the stage */
};

/* When a root of a stage lives: from the event `first` to the event `last`. Events are, in their order:
     0                    what comes from the stage below arrives
     1 + i                item i of the forward part
     n_forward + 1        what the stage above needs of the forward part leaves
     n_forward + 2        what comes from the stage above arrives
     i + 3                item i of the backward part
     n_items + 3          what the stage below needs leaves
   What lives on both sides of n_forward + 1 and n_forward + 2 is saved. */
struct stage_root {
  int origin; /* the program's root whose size and kind it has; its own number if it is one of the program's
               */
  int first, last; /* first -1: the stage does not use it. All events, of inputs the first ones and of roots
                      that are not planned */
};

struct stage {
  const struct stage_item *items;
  int n_items;
  int n_forward;                  /* the items before the backward part */
  const struct stage_root *roots; /* the program's, then more of their kind */
  int n_roots;
};

/* A content on its way across an edge. */
struct stage_crossing {
  int origin;       /* the program's root that holds it there */
  int lower, upper; /* the root that holds it in the stage below, and above */
  size_t size_bytes;
};

/* Between stage i and i + 1: what crosses for each microbatch, each content once, in the order in which the
   program makes them. */
struct stage_edge {
  const struct stage_crossing *forward, *backward;
  int n_forward, n_backward;
};

struct stage_slices {
  struct arena memory; /* all of the below */
  const struct stage *stages;
  int n_stages;
  const struct stage_edge *edges; /* [n_stages - 1] */
};

/* Cuts the program before the nodes cuts[n_cuts], which are valid and ascending (CHECKed); none: one stage. A
   stage that writes in place over what it still has to send writes to a root of its own instead. */
struct stage_slices *stage_slices_new(const struct staged_program *staged, const int *cuts, int n_cuts);
void stage_slices_free(struct stage_slices *slices); /* NULL is ignored */

#endif
