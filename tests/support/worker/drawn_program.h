/* Programs that are drawn, whose steps hash the bytes that they read into those that they write: for tests of
   what is done with programs. */
#ifndef WEIR_TESTS_SUPPORT_WORKER_DRAWN_PROGRAM_H
#define WEIR_TESTS_SUPPORT_WORKER_DRAWN_PROGRAM_H

#include "worker/backend/stages/stages.h"

enum { DRAWN_STEPS_MAX = 600, DRAWN_USES_MAX = 6, DRAWN_ROOTS_MAX = 1200, DRAWN_CONTENTS_MAX = 2400 };

struct drawn_content {
  int root;
  int maker;      /* the last step that writes it; -1: an input */
  bool is_shared; /* several steps write it, or an input is written */
};

struct drawn_program {
  struct replay_program program;
  struct staged_program staged;
  struct replay_step steps[DRAWN_STEPS_MAX];
  struct replay_use uses[DRAWN_STEPS_MAX][DRAWN_USES_MAX];
  struct stage_span spans[DRAWN_STEPS_MAX];
  struct replay_root roots[DRAWN_ROOTS_MAX];
  uint64_t state; /* of the draws */

  /* What follows of the steps, by drawn_program_settle. */
  int contents_of[DRAWN_STEPS_MAX][DRAWN_USES_MAX];  /* -1: of a root that is not planned */
  struct drawn_content contents[DRAWN_CONTENTS_MAX]; /* in the order in which the program makes them */
  int n_contents;
  bool is_added[DRAWN_STEPS_MAX][DRAWN_USES_MAX]; /* written without being read, where something was before */
  bool is_input[DRAWN_ROOTS_MAX];
  bool is_written[DRAWN_ROOTS_MAX];    /* by any step */
  bool is_of_context[DRAWN_ROOTS_MAX]; /* planned, or written by a step with nodes: each microbatch has its
                                          own */
};

int drawn_below(struct drawn_program *drawn, int n); /* 0 to n - 1 */

/* By hand: an empty program, and what it is made of. drawn_forward_end: the next step is of the backward
 * part. */
void drawn_program_begin(struct drawn_program *drawn, uint64_t seed, int n_nodes);
int drawn_root(struct drawn_program *drawn, size_t size_bytes, bool is_planned);
int drawn_step(struct drawn_program *drawn, int first, int last); /* first -1: nobody's */
void drawn_use(struct drawn_program *drawn, int step, int root, bool is_written);
void drawn_forward_end(struct drawn_program *drawn);
/* A step that reads a root (and another one, unless that is -1) and writes a new one of size_bytes. Returns
 * that. */
struct drawn_reads {
  int root, also;
};
int drawn_step_of(struct drawn_program *drawn, int node, struct drawn_reads reads, size_t size_bytes);
void drawn_program_settle(struct drawn_program *drawn);

/* Draws one: weights and what fetches them, steps that are in place, fused, out of order, of nobody,
   deliveries that read on, and a backward part. Plain: no step adds to what others made, nor to roots that
   are not planned. */
void drawn_program_draw(struct drawn_program *drawn, uint64_t seed, bool is_plain);

/* Runs a step on data[n_uses]. Returns the hash of what it reads. */
uint64_t drawn_step_run(const struct drawn_program *drawn, int step, unsigned char *const *data);
uint64_t drawn_step_hash(const struct drawn_program *drawn, int step, unsigned char *const *data);
/* What the root holds at first: of an input, by microbatch. */
void drawn_root_fill(const struct drawn_program *drawn, int root, int microbatch, unsigned char *data);
/* The whole program. seen[n_steps]: the hash of what each step reads. */
void drawn_program_run(const struct drawn_program *drawn, int microbatch, uint64_t *seen);

#endif
