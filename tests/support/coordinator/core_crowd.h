/* A coordinator's core with a run that many workers train, made up as in core_fixture.h, but of any
   size and unchecked: for what it costs. No thread, no clock: an event is one call. */
#ifndef WEIR_TESTS_SUPPORT_COORDINATOR_CORE_CROWD_H
#define WEIR_TESTS_SUPPORT_COORDINATOR_CORE_CROWD_H

#include "server/coordinator/core/core.h"

#define CROWD_RUN "mlp-aaaaaa"

struct crowd {
  struct coordinator *core;
  struct coordinator_actions actions; /* of the newest event */
  uint64_t now_ms;
  int servers, workers;               /* their keys: 1 .. servers, then the workers' */
  uint64_t orders, views, view_bytes; /* of the newest event; bytes as they are sent */
};

/* The run trains with all of them. Workers have one executor each. */
void crowd_init(struct crowd *crowd, int servers, int workers);
void crowd_fini(struct crowd *crowd);

/* The member says so; content: the message of that body. */
void crowd_says(struct crowd *crowd, uint64_t key, Weir__MemberMessage__BodyCase body, void *content);

/* A worker's heartbeat, with these counters of the run. */
void crowd_beats(struct crowd *crowd, uint64_t key, uint64_t computed, double busy_seconds);

void crowd_ticks(struct crowd *crowd, uint64_t ms);
void crowd_reports_step(struct crowd *crowd, uint64_t step); /* the first server does */
void crowd_leaves(struct crowd *crowd, uint64_t key);

#endif
