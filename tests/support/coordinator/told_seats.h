/* Which runs a made-up worker was told to compute, beside each other. */
#ifndef WEIR_TESTS_SUPPORT_COORDINATOR_TOLD_SEATS_H
#define WEIR_TESTS_SUPPORT_COORDINATOR_TOLD_SEATS_H

#include <stdbool.h>
#include <stdint.h>

#include "cluster.pb-c.h"

enum { TOLD_SEATS = 16, TOLD_SEATS_AT_A_TIME = 4 };

struct told_seat {
  char run[64];
  bool is_seated;          /* LoadRun came, and no UnloadRun since */
  uint64_t loads, unloads; /* orders so far */
  uint64_t view;           /* the number of the newest since it is seated; 0: none */
  uint32_t begin, end;     /* by that view */
  uint32_t executors;      /* likewise; 0: all */
};

/* Zeroed before first use. An order of any kind: it is noted where it says something of a run. Asserts that
   no more runs are computed at a time than a worker may. */
void told_seats_take(struct told_seat seats[TOLD_SEATS], const char *worker, const Weir__Order *order);

/* What it was told of the run; zeroed: nothing. */
struct told_seat told_seat_of(const struct told_seat seats[TOLD_SEATS], const char *run);
int told_seats_count(const struct told_seat seats[TOLD_SEATS]); /* that are computed now */

#endif
