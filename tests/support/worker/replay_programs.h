/* Programs in the terms of worker/backend/replay/replay.h, for tests of what plans them: drawn by chance, or
   stacks of layers. */
#ifndef WEIR_TESTS_SUPPORT_WORKER_REPLAY_PROGRAMS_H
#define WEIR_TESTS_SUPPORT_WORKER_REPLAY_PROGRAMS_H

#include <stdint.h>

#include "worker/backend/replay/replay.h"

enum { STEPS_MAX = 12000, USES_MAX = 6, ROOTS_MAX = 40000 };

struct program {
  struct replay_program plan_of;
  struct replay_step steps[STEPS_MAX];
  struct replay_use uses[STEPS_MAX][USES_MAX];
  struct replay_root roots[ROOTS_MAX];
  uint64_t state;
};

extern struct program program; /* the one there is */

/* Empties it. */
void program_begin(uint64_t seed);

/* Up to 120 steps in two parts that read, write over and add to roots, some of which are inputs or weights,
   and some steps that run once. */
void program_draw(uint64_t seed);

/* A stack of layers, each of a few steps, whose gradients read what they made; the first ones keep more.
   After program_begin(). */
void program_layers(int n_layers);

#endif
