/* What a coordinator is told when it begins. */
#ifndef WEIR_SERVER_COORDINATOR_STATE_OPTIONS_H
#define WEIR_SERVER_COORDINATOR_STATE_OPTIONS_H

#include <stddef.h>
#include <stdint.h>

#include "common/certs/ticket.h"

struct quotas;

/* So many runs that are over are known, and so many trials of sweeps that are. The store has the others, and
   their sweeps' logs say what became of them. */
enum { RUNS_KEPT = 1000, TRIALS_KEPT = 1000 };
enum { EVENTS_OLD_BYTES = 256 << 20 }; /* of runs that are over, about */

struct coordinator_options {
  uint64_t term;             /* in every order; views and events are numbered from term << 32 on */
  uint64_t missing_after_ms; /* a member not heard of for longer is gone */
  uint64_t server_grace_ms;  /* how long a run waits for a lost server before it goes on without it: since the
                                loss or, within a minute of it, since a worker reached it */
  uint64_t follow_ms; /* a worker that follows a run for longer without catching up is named; 0: workers
                         compute as soon as they have loaded */
  unsigned char secret[TICKET_KEY_BYTES]; /* from which the keys of new runs are derived */
  const struct quotas *quotas;            /* of tenants; outlives the coordinator, and may change between
                                             its steps (EVENT_QUOTAS); NULL: none */
  size_t events_old_bytes;    /* about, of the events of runs that are over; 0: EVENTS_OLD_BYTES */
  const char *store_identity; /* that servers' stores must have; outlives the coordinator; NULL: any */
};

#endif
