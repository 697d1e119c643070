/* What the store is told: manifests, runs, members. */
#ifndef WEIR_SERVER_COORDINATOR_MESSAGES_RECORD_H
#define WEIR_SERVER_COORDINATOR_MESSAGES_RECORD_H

#include "cluster.pb-c.h"
#include "common/base/memory.h"
#include "server/coordinator/state/run.h"
#include "store.pb-c.h"

void coordinator_commit(struct coordinator *coordinator, const struct run *run);
void coordinator_save(struct coordinator *coordinator, const struct run *run);
/* The run's record as it would be saved now, in the arena; NULL: there is no such run. */
Weir__RunRecord *coordinator_run_record(const struct coordinator *coordinator, const char *id,
                                        struct arena *arena);
void coordinator_save_members(struct coordinator *coordinator);
Weir__Plan *coordinator_plan_message(struct arena *arena, const struct run *run);
/* Copied: the run may let go of its servers in the same step. */
Weir__Endpoint **coordinator_endpoints(struct arena *arena, const struct run *run);

#endif
