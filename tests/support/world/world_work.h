/* What the workers of world.h do between orders: they receive versions, compute, and beat. What
   they take for it is in their process. */
#ifndef WEIR_TESTS_SUPPORT_WORLD_WORLD_WORK_H
#define WEIR_TESTS_SUPPORT_WORLD_WORLD_WORK_H

#include "tests/support/world/world.h"

/* The worker reaches server `at` of the set, which is the process that was told to load. */
bool worker_reaches(const struct world *w, const struct process *worker, const struct server_set *set,
                    int at);

/* The worker receives the version that its servers are at, says that it is ready if it follows, and computes
   what it owes and they lack, for so long. */
void worker_compute(struct world *w, struct process *worker, int run, uint64_t passed_ms);

/* Every microbatch of the step that the server is at was pushed. Its bits must be those that it has whoever
   computed it. */
bool round_is_complete(const struct world *w, int run, const struct hosted *server);

/* A heartbeat, which is not queued; a worker's names the servers that it reaches. Counters sometimes make no
   sense, until the world is calm. */
void process_beat(struct world *w, struct process *process);

#endif
