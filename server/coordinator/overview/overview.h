/* What a dashboard polls: what has changed since it last asked, from a snapshot of what its tenant sees. */
#ifndef WEIR_SERVER_COORDINATOR_OVERVIEW_OVERVIEW_H
#define WEIR_SERVER_COORDINATOR_OVERVIEW_OVERVIEW_H

#include <stdint.h>

#include "common/base/err.h"
#include "common/base/memory.h"
#include "overview.pb-c.h"
#include "server/coordinator/state/tenant.h"

struct coordinator;
struct overview;

enum {
  OVERVIEW_EVERY_MS = 500, /* a snapshot is made again not before */
  OVERVIEW_ROWS = 500,
  OVERVIEW_ROWS_MAX = 2000,
  OVERVIEW_SNAPSHOTS_MAX = 64, /* of tenants; the one that was asked for longest ago goes */
};

/* unix_offset_ms: of the wall clock to the clock of the calls below. */
struct overview *overview_new(const struct coordinator *coordinator, int64_t unix_offset_ms);
void overview_free(struct overview *overview); /* NULL is ignored */

/* Keeps the history of executors; as often as one likes. */
void overview_tick(struct overview *overview, const struct coordinator *coordinator, uint64_t now_ms);

/* Who asks, and when. Answers are built in the arena, with strings and rows that are good until the next step
   of the coordinator or the next call. */
struct overview_question {
  const struct coordinator *coordinator;
  const struct viewer *viewer;
  uint64_t now_ms;
  struct arena *arena;
};

/* Errors: INVALID, of too many rows. */
int overview_answer(struct overview *overview, const struct overview_question *question,
                    const Weir__OverviewRequest *request, Weir__Overview *answer, struct err *err);

#endif
