/* How long the stages of a team compute. While any of them is at a microbatch, the pipeline is in use: what
   another stage does not compute meanwhile is idle, its part of the pipeline's bubble. When all of them wait,
   for weights or for the next step, nothing is counted. Of stages that are not all here it is not known when
   one of the others computes: then it counts while a microbatch is under way here.

   Pure: the time is the caller's, in nanoseconds that never go back. */
#ifndef WEIR_WORKER_TRAIN_EXECUTOR_TEAM_TIMES_H
#define WEIR_WORKER_TRAIN_EXECUTOR_TEAM_TIMES_H

#include <stdbool.h>
#include <stdint.h>

enum stage_work { STAGE_WAITS, STAGE_AT_MICROBATCH, STAGE_AT_CHUNK };

struct stage_time {
  enum stage_work work;
  uint64_t busy_ns; /* of the team's total_ns, in which the stage was at anything */
};

struct team_times {
  int n_stages;
  int n_at_microbatches;     /* stages */
  bool is_held;              /* while a microbatch is under way */
  struct stage_time *stages; /* [n_stages] */
  uint64_t counted_ns;       /* the time until which it is counted */
  uint64_t total_ns;         /* in which some stage was at a microbatch, or which was held */
  uint64_t microbatches;     /* that were computed */
  uint64_t steps;            /* that they are of */
  uint64_t version;          /* of the newest of these */
};

void team_times_init(struct team_times *times, int n_stages);
void team_times_fini(struct team_times *times);

/* A microbatch of the step at that version was computed. */
void team_times_add(struct team_times *times, uint64_t version);
/* What the stage does from now on. */
void team_times_set(struct team_times *times, int stage, enum stage_work work, uint64_t now_ns);
/* Microbatches that are under way count from now on, whatever the stages do; or no longer. */
void team_times_hold(struct team_times *times, bool is_held, uint64_t now_ns);
/* Counts until now. */
void team_times_count(struct team_times *times, uint64_t now_ns);

#endif
