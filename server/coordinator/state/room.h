/* The memory of servers that say how much they may take, and what runs take of it. */
#ifndef WEIR_SERVER_COORDINATOR_STATE_ROOM_H
#define WEIR_SERVER_COORDINATOR_STATE_ROOM_H

#include <stdbool.h>

#include "spec.pb-c.h"

struct coordinator;
struct member;
struct run;

/* Bytes that servers take together for a run of so many weights: of each weight the newest version, the one
   before and the next, eight values of gradients, and twice what the optimizer and the average keep, for a
   checkpoint may still refer to what was. spec: settled. A fork that begins with references to its parent's
   memory counts in full all the same: it will have its own of everything after a step or two, and its parent
   may go before. */
uint64_t room_of_weights(const Weir__RunSpec *spec, uint64_t weights);

/* The same of a run of these blocks. */
uint64_t room_of_blocks(const Weir__RunSpec *spec, const uint32_t *block_elems, uint32_t n_blocks);

/* A server on which there is no room. */
struct room_lack {
  const struct member *server;
  uint64_t needed; /* by the run, of this server */
  uint64_t taken;  /* by others, of the server's */
  int runs;        /* these others */
  bool spills;     /* without those that may be spilled */
};

/* Whether the run is held with all that servers have of it in the store, and nothing is to be done with it,
   or is a fork that stands at its base without workers: its blocks may be dropped. */
bool coordinator_may_spill(const struct run *run);
/* Whether the run would fit if all runs that may be spilled were. */
bool coordinator_could_make_room(const struct coordinator *coordinator, const struct run *run);

/* Whether the run, which waits, fits beside those that load or train on each of the servers that it would be
   given. lack: if not, the first one where it does not; may be NULL. */
bool coordinator_has_room(const struct coordinator *coordinator, const struct run *run,
                          struct room_lack *lack);

/* Whether the run, which is to be given servers, fits on these n > 0 alone beside all others. */
bool coordinator_has_room_on(const struct coordinator *coordinator, const struct run *run,
                             struct member *const *servers, int n);

/* The same of a run of so many bytes, of any kind, if there were no others. */
bool coordinator_could_have_room(const struct coordinator *coordinator, uint64_t bytes,
                                 struct room_lack *lack);

#endif
