/* How fast a worker computes, by the counters of its heartbeats (Heartbeat in cluster.proto). */
#ifndef WEIR_SERVER_COORDINATOR_STATE_SPEED_H
#define WEIR_SERVER_COORDINATOR_STATE_SPEED_H

#include <stdbool.h>
#include <stdint.h>

enum {
  SPEED_MARKS = 64,
  SPEED_MARK_MS = 250,       /* heartbeats that come sooner than that after another say nothing more */
  SPEED_WINDOW_MS = 3000,    /* a speed is that of the last 3 s, */
  SPEED_ROUNDS = 8,          /* or of longer, where they saw fewer microbatches an executor, */
  SPEED_ROUNDS_LEAST = 2,    /* of at least so many; else it is not known */
  SPEED_STUCK_MS = 3000,     /* busy for so long without completing any, and for at least */
  SPEED_STUCK_TIMES = 4,     /* four times as long as one usually takes, a worker is stuck; */
  SPEED_STUCK_ANY_MS = 60000 /* where that is not known, after a minute */
};

/* What a heartbeat said. */
struct speed_mark {
  uint64_t at_ms, computed;
  double busy_seconds;
};

/* Zeroed before first use: nothing is known. */
struct speed {
  struct speed_mark newest;             /* at_ms 0: none */
  struct speed_mark marks[SPEED_MARKS]; /* a ring of those that had computed more than the one before */
  uint32_t count;                       /* of all marks ever made */
  uint64_t stuck_ms;                    /* how long it has been busy without computing any */
};

/* Takes the counters of a worker of so many executors. now_ms > 0 never goes back. Counters that go back, or
   further than they can, begin anew; those that are no numbers are ignored. */
void speed_add(struct speed *speed, uint32_t executors, uint64_t now_ms, uint64_t computed,
               double busy_seconds);

/* Microbatches a second of all its executors together while they compute; 0 of one that is stuck, NAN if it
   is not known. */
double speed_of(const struct speed *speed, uint32_t executors);

/* It has been busy for long without completing a microbatch. */
bool speed_is_stuck(const struct speed *speed);

#endif
