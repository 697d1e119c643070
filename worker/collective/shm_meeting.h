/* What collectives of devices need of the shm group by which their members meet. */
#ifndef WEIR_WORKER_COLLECTIVE_SHM_MEETING_H
#define WEIR_WORKER_COLLECTIVE_SHM_MEETING_H

#include "worker/collective/collective.h"

extern const struct collective_def collective_shm;

/* True if a member has closed its handle. Any thread. */
bool shm_has_anyone_left(const struct collective *meeting);

#endif
