/* A step that is late: what it lacks is collected from the blocks, shard by shard, and told. */
#ifndef WEIR_SERVER_PARAMETERS_LOAD_LATE_H
#define WEIR_SERVER_PARAMETERS_LOAD_LATE_H

#include "server/parameters/load/hosted_run.h"

enum { LATE_RANGES_MAX = 1024 }; /* told at a time, of microbatches and of chunks */

/* Tells Late to the coordinator of now, unless nothing is missing here: a step may wait for another server's
   sums. Any thread, does not block: the shards collect, one after the other, while the run is not unloaded.
 */
void hosted_run_tell_late(struct hosted_run *run, const struct pace_late *late);

#endif
