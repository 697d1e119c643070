/* Devices in quarantine: their workers are given no work in any run. Who is put there, and the way out. */
#ifndef WEIR_SERVER_COORDINATOR_QUARANTINE_QUARANTINE_H
#define WEIR_SERVER_COORDINATOR_QUARANTINE_QUARANTINE_H

#include "cluster.pb-c.h"
#include "server/coordinator/state/quarantines.h"
#include "store.pb-c.h"

struct coordinator;
struct member;
struct run;
struct viewer;

/* From now on; workers on the device lose what they compute at once, and runs that they computed for begin
   again at their newest checkpoints. Nothing happens if it is there already. */
void coordinator_quarantine(struct coordinator *coordinator, const struct worker_identity *identity,
                            struct run *run, const char *reason);
/* Of a worker that joins. */
void coordinator_quarantine_newcomer(struct coordinator *coordinator, struct member *worker);
/* What a former coordinator knew of members: its quarantines, and which ids were used. */
void coordinator_members_restored(struct coordinator *coordinator, const Weir__Members *members);
/* name: as of coordinator_find_quarantine. One that is not in quarantine is ignored. */
void coordinator_readmit(struct coordinator *coordinator, const struct viewer *viewer, const char *name);

#endif
