/* The best cuts of a model into stages: those in whose pipeline the slowest stage takes the least time, each
   stage within its device's memory. Pure: what a stage takes is the caller's to estimate. */
#ifndef WEIR_MODEL_STAGES_CHOOSE_H
#define WEIR_MODEL_STAGES_CHOOSE_H

#include <stdint.h>

#include "common/base/err.h"

/* A stage between two places: 0 is the model's beginning, 1 to n_places are those where it can be cut, and
   n_places + 1 is its end. */
struct stage_range {
  int stage, n_stages;
  int begin, end;
};

struct stage_estimate {
  double cost; /* of a microbatch: computing, and moving what crosses its edges, in whatever unit; not
                  negative */
  uint64_t memory_bytes;
};

struct stage_question {
  int n_places; /* fewer than can be are given where cuts are wanted by name */
  int n_stages; /* 0: as few as fit, and at most most_stages */
  int most_stages;
  const uint64_t *most_bytes; /* of each stage's memory, [n_stages or most_stages]; NULL: no limit */
  void (*estimate)(void *user, const struct stage_range *range, struct stage_estimate *out);
  void *user;
};

/* Of several best ways the one whose stages differ least: the least sum of squared costs. The same question
   has the same answer. */
struct stage_choice {
  int n_stages;
  int *cuts;   /* [n_stages - 1] ascending places; freed by the caller */
  double cost; /* of the slowest stage */
};

/* Asks for about n_stages * n_places^2 estimates. Errors, of one line, which leave cuts NULL: INVALID when
   there are too few places, with how many stages there can be; NO_MEMORY when no way fits, with what would.
 */
int stages_choose(const struct stage_question *question, struct stage_choice *out, struct err *err);

#endif
