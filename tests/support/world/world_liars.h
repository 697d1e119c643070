/* A worker of world.h that lies: some of its parts have other bits than honest ones, and overflow
   the sum with their sibling's. What servers and workers do about that and about late microbatches, and what
   must not come of it: that an honest device goes into quarantine, or a lie into a sum. */
#ifndef WEIR_TESTS_SUPPORT_WORLD_WORLD_LIARS_H
#define WEIR_TESTS_SUPPORT_WORLD_WORLD_LIARS_H

#include "tests/support/world/world.h"

/* The process in the slot lies; -1: none does. liars_end() frees what is kept. */
void liars_begin(struct world *w, int slot);
void liars_end(struct world *w);

/* The worker's device, by which it is known; good until the next call. */
char *liars_device(const struct process *process);

/* The worker's next microbatch of the round: of its share what it has not pushed yet, then what it was told
   to compute besides; MICROBATCHES: none. */
uint32_t liars_next(struct world *w, const struct process *worker, int run);

/* Pushes it. The servers compare it if it was doubted, and let go of it if the sum with its sibling
 * overflows. */
void liars_push(struct world *w, const struct process *worker, int run, uint32_t microbatch);

/* An order to a worker. */
void liars_reissue(struct world *w, const struct process *worker, const Weir__Reissue *order);

/* A server tells what it lacks of a step that has taken long. */
void liars_tell_late(struct world *w, struct process *server, int run);

/* What the store has of members, for who begins to lead; NULL: nothing. */
void liars_save(struct world *w, const Weir__Members *members);
const Weir__Members *liars_saved(const struct world *w);

/* People end quarantines: of honest devices, or of any. */
void liars_readmit(struct world *w, bool is_any);

/* The list of workers, after each event. */
void liars_check(struct world *w);

#endif
