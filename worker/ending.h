/* Runs that the worker has given up, until they have ended. That takes a thread of its own: a run that loads
   ends only once what it is at is done, and meanwhile orders come for others. A run that is to end while one
   of its executions hangs ends the process. */
#ifndef WEIR_WORKER_ENDING_H
#define WEIR_WORKER_ENDING_H

#include <stdbool.h>

struct ending;
struct run;

struct ending *ending_new(void);
void ending_free(struct ending *ending); /* waits for all of them */

/* The run is stopped, after those that were added before it; it may not be used any more. NULL is ignored. */
void ending_add(struct ending *ending, struct run *run);

/* Waits until those have ended that were added before this run, or all of them where it was not added. False:
   there were none. Any thread, also the run's own. */
bool ending_wait(struct ending *ending, const struct run *run);

/* has_ended: what run_stop and its like returned. If it is false, this ends the process. */
void ending_check(const struct run *run, bool has_ended);

#endif
