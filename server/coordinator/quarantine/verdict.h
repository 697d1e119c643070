/* Whose part was wrong: the worker that pushed it or, since of a part that a group pushed no one member can
   be told, all of the group. */
#ifndef WEIR_SERVER_COORDINATOR_QUARANTINE_VERDICT_H
#define WEIR_SERVER_COORDINATOR_QUARANTINE_VERDICT_H

#include "cluster.pb-c.h"
#include "server/coordinator/state/run.h"

/* The sum is finite now: who pushed a part that has changed is put into quarantine, or named where it may be
   another that is wrong. */
void coordinator_convict(struct coordinator *coordinator, struct run *run, const Weir__Judged *judged);

#endif
