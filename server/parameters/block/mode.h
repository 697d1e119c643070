/* Consistency modes: rows of mode.def. A mode decides what a part that arrives does to its block. */
#ifndef WEIR_SERVER_PARAMETERS_BLOCK_MODE_H
#define WEIR_SERVER_PARAMETERS_BLOCK_MODE_H

#include "server/parameters/round/part.h"
#include "spec.pb-c.h"

struct hosted_block;

struct mode_def {
  const char *name;
  /* The mode's own options. Errors: INVALID naming the key by its path. May be NULL. */
  int (*check)(const Weir__RunSpec *spec, struct err *err);

  /* A part of a parameter block, or a row of a statistics block, of the right size and a node that exists.
     Called on the block's shard, whose thread alone touches the block; does not block. Takes the part (or
     finds that it is covered already), applies the optimizer when it is due, and says in *version which
     version a worker that waits shall get. Errors: INVALID: all is as before, or the part is sound and the
     update that it completes is not; NO_MEMORY: the part is kept or not, and may come again. */
  int (*push)(struct hosted_block *block, const struct part *part, uint64_t *version, struct err *err);
  int (*push_row)(struct hosted_block *block, const struct part *part, uint64_t *version, struct err *err);
};

const struct mode_def *mode_find(const char *name); /* NULL if unknown */

/* The name is known and the mode accepts the spec. Errors: INVALID, for an unknown name with those known. */
int mode_check(const Weir__RunSpec *spec, struct err *err);

#endif
