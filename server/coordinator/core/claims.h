/* Runs claim workers, and are given their shares of them. */
#ifndef WEIR_SERVER_COORDINATOR_CORE_CLAIMS_H
#define WEIR_SERVER_COORDINATOR_CORE_CLAIMS_H

#include "server/coordinator/state/run.h"

/* claims.c */
/* Weighs the claims of all runs (server/coordinator/shares/share.h) and reserves for each run what it has yet
   to be given: free workers, or those that others have beyond their shares, which leave them. A run lets go
   of workers with work only after a step that it completed since it last did, and to even out only of those
   that it has had for a while. A run whose turn to begin has passed waits in the queue again. */
void coordinator_weigh_claims(struct coordinator *coordinator);

/* weighed.c */
/* Whether what claims are weighed by is not as it was when this was last asked. */
bool coordinator_claims_changed(struct coordinator *coordinator);
/* Whether the run's part of that has. */
bool coordinator_claim_changed(const struct run *run);

/* claims.c */
/* The run loads with the workers that are reserved for it; one that is queued, when they are enough. */
void coordinator_take_workers(struct coordinator *coordinator, struct run *run);

#endif
