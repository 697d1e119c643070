/* Forks from memory: a fork's blocks that another run of this server has as the fork's checkpoint says are
   referred to where they are, and not read from the store. A short cut and no more: what is not adopted is
   restored. */
#ifndef WEIR_SERVER_PARAMETERS_LOAD_ADOPT_H
#define WEIR_SERVER_PARAMETERS_LOAD_ADOPT_H

#include "server/parameters/load/run_table.h"
#include "store.pb-c.h"

/* Gives the blocks of a new run, which no other thread knows yet, what the run that the order names has in
   memory of the manifest's version. Blocks that it lacks, has at another version, or lays out otherwise than
   the manifest says are left without weights. Blocks until the shards of that run have answered; not on a
   shard. Why nothing is adopted is logged. Returns how many blocks were adopted. */
uint32_t adopt_blocks(struct run_table *runs, struct hosted_run *run, const Weir__Manifest *manifest,
                      const Weir__ForkSource *from);

#endif
