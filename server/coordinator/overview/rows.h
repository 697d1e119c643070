/* Rows of runs and members, as a dashboard shows them. They change only when what they say does: nothing in
   them is the time since something. */
#ifndef WEIR_SERVER_COORDINATOR_OVERVIEW_ROWS_H
#define WEIR_SERVER_COORDINATOR_OVERVIEW_ROWS_H

#include <stdint.h>

#include "common/base/memory.h"
#include "overview.pb-c.h"
#include "server/coordinator/state/tenant.h"

struct coordinator;
struct member;
struct run;

/* What rows are made for. */
struct sight {
  const struct coordinator *coordinator;
  const struct viewer *viewer;
  uint64_t now_ms;
  int64_t unix_offset_ms; /* of the wall clock to now_ms */
  struct arena *arena;    /* rows and what they point to; texts may be the coordinator's */
};

Weir__RunRow *run_row(const struct sight *sight, const struct run *run);
/* Of a server or a worker that the viewer sees. */
Weir__MemberRow *member_row(const struct sight *sight, const struct member *member);
Weir__FleetInfo *fleet_info(const struct sight *sight);

#endif
