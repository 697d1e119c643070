/* Spaces and histories of sweeps, for tests of searchers. */
#ifndef WEIR_TESTS_SUPPORT_COMMON_SWEEP_FIXTURE_H
#define WEIR_TESTS_SUPPORT_COMMON_SWEEP_FIXTURE_H

#include "common/sweep/searcher.h"

/* A spec whose space a line says: dimensions separated by ';', each "PATH KIND VALUES... [step STEP]
   [when PATH VALUE]..." (KIND: choice, files, uniform, log), as "lr log 0.001 0.3; name choice sgd adam; m
   uniform 0 1 when name sgd". Freed with message_free. */
Weir__SweepSpec *sweep_spec_make(const char *line);

/* Its space; fails the test where there is none. Freed with space_free. */
struct space *sweep_space_make(const char *line);

/* A sweep under way. */
struct trials {
  struct space *space;
  Weir__SweepSearch *options;
  struct sweep_observation *observations;
  int n, capacity;
};

/* Options of the row are settled defaults; fails the test where the searcher refuses the space. */
void trials_init(struct trials *trials, const char *line, const char *searcher, uint64_t seed);
void trials_fini(struct trials *trials);

/* The next trial's point; fails the test on an error. */
void trials_suggest(const struct trials *trials, double *point);

/* Adds a trial with a result, of NAN none; the point goes the way by texts. */
void trials_add(struct trials *trials, const double *point, enum sweep_state state, uint64_t steps,
                double value);
/* Adds another result to a trial. */
void trials_add_result(struct trials *trials, int trial, uint64_t steps, double value);

#endif
