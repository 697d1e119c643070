/* A coordinator's core with many runs that share a fleet, made up as in core_crowd.h: for what it costs.
   Members load what they are told to, and the store saves, as soon as the core asks for it. */
#ifndef WEIR_TESTS_SUPPORT_COORDINATOR_CORE_FLEET_H
#define WEIR_TESTS_SUPPORT_COORDINATOR_CORE_FLEET_H

#include "server/coordinator/core/core.h"

struct fleet_answer {
  uint64_t member; /* 0: the store's */
  char run[64];
  uint64_t incarnation;
  uint32_t state;
};

struct fleet {
  struct coordinator *core;
  struct coordinator_actions actions;
  uint64_t now_ms;
  uint64_t keys; /* of members so far: the first one's is 1 */
  int submitted; /* runs so far: fleet_run() names them from 0 */
  double us;     /* CPU time of the newest event, without what it was answered with */
  struct fleet_answer *answers;
  int n_answers, answers_capacity;
};

void fleet_init(struct fleet *fleet);
void fleet_fini(struct fleet *fleet);

/* The key of the member that joins. label: "KEY=VALUE"; NULL: none. */
uint64_t fleet_server_joins(struct fleet *fleet);
uint64_t fleet_worker_joins(struct fleet *fleet, const char *label);
void fleet_leaves(struct fleet *fleet, uint64_t key);

/* more: what the spec has besides, "workers: {min: 2}\n". */
void fleet_submits(struct fleet *fleet, const char *more);
/* A fork of that run's version, which is to come: it waits for it. */
void fleet_forks(struct fleet *fleet, int parent, uint64_t step);
void fleet_cancels(struct fleet *fleet, int run);
const char *fleet_run(int run, char id[64]);

void fleet_beats(struct fleet *fleet, uint64_t key);
void fleet_ticks(struct fleet *fleet, uint64_t ms);
/* The first server reports the run's next step. */
void fleet_reports_step(struct fleet *fleet, int run);

/* In this state. */
int fleet_count_runs(struct fleet *fleet, Weir__RunState state);

#endif
