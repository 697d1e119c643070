/* Runs of one priority for which there are too few workers take turns: a run that has had workers for a turn
   goes behind the others, and all of them come to the same worker-seconds for their weight. */
#ifndef WEIR_SERVER_COORDINATOR_STATE_TURN_H
#define WEIR_SERVER_COORDINATOR_STATE_TURN_H

#include <stdbool.h>
#include <stdint.h>

struct turn {
  bool is_in_line;
  double place;         /* as `used` was when its newest turn ended */
  double used;          /* milliseconds of executors, for its weight; those that join later begin ahead */
  uint64_t began_ms;    /* the turn, */
  uint64_t stepped_ms;  /* and the newest step in it */
  uint32_t steps;       /* that it has completed since it was given workers; 2 stands for more */
  uint64_t first_ms;    /* how long the first of them took, with all that comes before it */
  uint64_t handover_ms; /* what that was more than a step takes; 0: not known */
};

/* A run comes to stand in line, at this place: lower ones come first. */
void turn_join(struct turn *turn, double place);

/* It was given its first worker. */
void turn_begin(struct turn *turn, uint64_t now_ms);

/* It had these executors for so long. weight: above 0. */
void turn_use(struct turn *turn, uint32_t executors, uint64_t for_ms, double weight);

/* It has completed a step. */
void turn_step(struct turn *turn, uint64_t now_ms);

/* Whether its turn ends now: it has completed a step just now, and has had its workers for 2 s at least, for
   20 times what it took to hand them over, and for two steps where that is not known yet. */
bool turn_is_over(const struct turn *turn, uint64_t now_ms);

/* Its next turn begins, behind those that had less. */
void turn_end(struct turn *turn, uint64_t now_ms);

#endif
