/* Consistency modes: rows of mode.def. server/parameters/block/hosted_mode.h says what a mode does to the
   blocks of a server. */
#ifndef WEIR_COMMON_MODES_MODE_H
#define WEIR_COMMON_MODES_MODE_H

#include "common/base/err.h"
#include "spec.pb-c.h"

struct mode_def {
  const char *name;
  /* The mode's own options. Errors: INVALID naming the key by its path. May be NULL. */
  int (*check)(const Weir__RunSpec *spec, struct err *err);
};

/* The name is known and the mode accepts the spec. Errors: INVALID, for an unknown name with those known. */
int mode_check(const Weir__RunSpec *spec, struct err *err);

#endif
