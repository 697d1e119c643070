/* What runs are still to come to. */
#ifndef WEIR_SERVER_COORDINATOR_MESSAGES_TO_COME_H
#define WEIR_SERVER_COORDINATOR_MESSAGES_TO_COME_H

#include <stdbool.h>
#include <stdint.h>

struct coordinator;

/* The version of the run that it has come to, and whose checkpoint is being made or is made next: that of its
   hold, the last one, or one that is being written. wanted: that one alone; NULL: the newest. False: there is
   none, or it is in the store. */
bool coordinator_checkpoint_is_coming(const struct coordinator *coordinator, const char *id,
                                      const uint64_t *wanted, uint64_t *step);
/* Whether the run has yet to come to the version: a fork may wait for it. */
bool coordinator_version_is_to_come(const struct coordinator *coordinator, const char *id, uint64_t step);
/* Whether the fork still needs its parent as it is: its base is to come, or its servers have yet to load it
   from the memory of the parent's. A sweep's forks need it from the beginning. */
bool coordinator_needs_parent(const struct coordinator *coordinator, const char *id);
/* How many steps it has is not known before its first worker has loaded its data. */
bool coordinator_plan_is_to_come(const struct coordinator *coordinator, const char *id);
/* Whether a checkpoint that was coming is still to come: a run that was rolled back since reaches the version
   again. */
bool coordinator_checkpoint_comes_again(const struct coordinator *coordinator, const char *id, uint64_t step);

/* A version before which the run does not end early: its evaluations up to there cannot use up the patience
   that is left. UINT64_MAX: it never ends early. 0: the data is not known yet, or there is no such run. */
uint64_t coordinator_earliest_end(const struct coordinator *coordinator, const char *id);

#endif
