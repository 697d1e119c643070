/* Sweeps that a test plays to their end, with deaths on the way. */
#ifndef WEIR_TESTS_SUPPORT_COMMON_SWEEP_PLAY_H
#define WEIR_TESTS_SUPPORT_COMMON_SWEEP_PLAY_H

#include "common/sweep/sweep.h"

enum { RECORDS_MAX = 1000 };

/* What the tests keep of a sweep: its log as bytes. */
struct kept {
  uint8_t *records[RECORDS_MAX];
  size_t sizes[RECORDS_MAX];
  int n;
};

void kept_free(struct kept *kept);
void assert_same(const struct kept *a, const struct kept *b);

struct sweep_play {
  const char *text; /* of the spec */
  /* A function of the trial and the rung alone. */
  struct sweep_outcome (*outcome_of)(const struct sweep_trial *trial, int rung);
  uint64_t seed;  /* of the order in which results come, and of deaths */
  bool is_killed; /* at times; a successor has nothing but the log */
};

/* Runs a sweep to its end. */
struct sweep *sweep_run_of(const struct sweep_play *play, struct kept *kept);

/* For `outcome_of`: a value that is drawn by trial and rung, larger from rung to rung. */
struct sweep_outcome sweep_draw_outcome(const struct sweep_trial *trial, int rung);
/* Plays it in `orders` orders of results, with deaths in every other one: the log is the same each time. */
void sweep_check_log(const char *text, struct sweep_outcome (*outcome_of)(const struct sweep_trial *, int),
                     uint64_t orders);

/* Applies a record, and keeps it. */
void sweep_take(struct sweep *sweep, const Weir__SweepRecord *record, struct kept *kept);
/* Applies what is decided next; something is. */
void sweep_take_next(struct sweep *sweep);
/* Runs one that is under way to its end. Takes it, and returns it or a
   successor. */
struct sweep *sweep_play_on(struct sweep *sweep, const struct sweep_play *play, struct kept *kept);

#endif
