/* The callbacks of consistency modes on the blocks of a server: one row for each row of
   common/modes/mode.def. */
#ifndef WEIR_SERVER_PARAMETERS_BLOCK_HOSTED_MODE_H
#define WEIR_SERVER_PARAMETERS_BLOCK_HOSTED_MODE_H

#include "common/base/err.h"
#include "server/parameters/round/part.h"

struct hosted_block;

struct hosted_mode_def {
  const char *name; /* the mode's */

  /* A part of a parameter block, or a row of a statistics block, of the right size and a node that exists.
     Called on the block's shard, whose thread alone touches the block; does not block. Takes the part (or
     finds that it is covered already), applies the optimizer when it is due and no hold is in the way
     (hosted_block_is_held), and says in *version which version a worker that waits shall get. Errors:
     INVALID: all is as before, or the part is sound and the update that it completes is not; NO_MEMORY: the
     part is kept or not, and may come again. */
  int (*push)(struct hosted_block *block, const struct part *part, uint64_t *version, struct err *err);
  int (*push_row)(struct hosted_block *block, const struct part *part, uint64_t *version, struct err *err);
  /* The run's hold was raised: applies what was kept until then, if that makes the next version. Called as
     push is. Errors: those of the update. */
  int (*go_on)(struct hosted_block *block, struct err *err);
};

const struct hosted_mode_def *hosted_mode_find(const char *name); /* NULL if unknown */

#endif
