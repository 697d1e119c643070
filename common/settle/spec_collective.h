/* What train.collective means for a run, where it says auto, too. */
#ifndef WEIR_COMMON_SETTLE_SPEC_COLLECTIVE_H
#define WEIR_COMMON_SETTLE_SPEC_COLLECTIVE_H

#include "spec.pb-c.h"

/* By what workers of the run that make a group reduce: what the spec names; of auto "shm" where the spec
   could name that, else "none". "none": its workers make no groups. Whether they make any where they could is
   the coordinator's to say (server/coordinator/shares/companions.h). The spec has passed spec_check and
   spec_settle. */
const char *spec_collective(const Weir__RunSpec *spec);

#endif
