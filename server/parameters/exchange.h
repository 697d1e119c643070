/* The exchange of a run: sums of blocks become totals. Contributions are added in the order of blocks in the
   model, whatever server they are on and whenever they come. Touched by one shard's thread alone, but where
   said otherwise. */
#ifndef WEIR_SERVER_PARAMETERS_EXCHANGE_H
#define WEIR_SERVER_PARAMETERS_EXCHANGE_H

#include "server/parameters/exchange_plan.h"
#include "server/parameters/shard.h"

struct hosted_block;
struct hosted_run;

struct exchange {
  struct hosted_run *run;
  struct shard *shard; /* outlives the run */
  struct exchange_plan plan;
  struct collection *collections; /* [plan.n_phases] */
};

/* Of a run that knows its place among servers, but has no blocks yet. Errors: NO_MEMORY; fini is due all the
   same. */
int exchange_init(struct exchange *exchange, struct hosted_run *run, struct shard *shard,
                  const struct model *model, struct err *err);
void exchange_fini(struct exchange *exchange); /* safe on a zeroed one */

/* The sums that one of our blocks has made of the phase that it is in. hosted_block_take_totals follows, or
   hosted_block_fail_update, unless the run is unloaded. On the block's shard. */
void exchange_contribute(struct exchange *exchange, struct hosted_block *block);

/* The run is unloaded: nothing is kept back any more. */
void exchange_cancel(struct exchange *exchange, const struct err *err);

#endif
