/* Version 0 of what the model has in pieces. */
#ifndef WEIR_SERVER_PARAMETERS_LOAD_INITIAL_H
#define WEIR_SERVER_PARAMETERS_LOAD_INITIAL_H

#include "server/parameters/block/block.h"
#include "server/parameters/run/run.h"

/* Reads the pieces of the run's own blocks, which nobody else sees yet. Blocks that the model's file holds
   are left alone. pieces may be NULL where there are none of the others. Errors: INVALID for weights that are
   not finite; NOT_FOUND; those of pieces. */
int initial_blocks(struct hosted_run *run, const struct model *model, const struct piece_source *pieces,
                   struct err *err);

#endif
