/* How many executors each run has had over the last ten minutes. */
#ifndef WEIR_SERVER_COORDINATOR_OVERVIEW_EXECUTORS_H
#define WEIR_SERVER_COORDINATOR_OVERVIEW_EXECUTORS_H

#include <stdint.h>

#include "common/base/memory.h"
#include "overview.pb-c.h"
#include "server/coordinator/state/tenant.h"

struct coordinator;
struct executors;

enum { EXECUTORS_SAMPLES = 300, EXECUTORS_EVERY_MS = 2000, EXECUTORS_RUNS_MAX = 256 };

struct executors *executors_new(void);
void executors_free(struct executors *executors); /* NULL is ignored */

/* Samples, where the newest sample is old enough. counter: its next number is the sample's. */
void executors_tick(struct executors *executors, const struct coordinator *coordinator, uint64_t now_ms,
                    int64_t now_unix_ms, uint64_t *counter);
/* Of the samples those whose numbers are above `since` and at most `upto`. */
struct executors_span {
  uint64_t since, upto;
};
/* They are as the viewer sees them; built in the arena. */
void executors_list(const struct executors *executors, const struct viewer *viewer,
                    struct executors_span span, struct arena *arena, Weir__ExecutorHistory *history);

#endif
