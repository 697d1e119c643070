/* The spec of a run that begins from another's checkpoint, optimizer state included. */
#ifndef WEIR_COMMON_SPECS_SPEC_FORK_H
#define WEIR_COMMON_SPECS_SPEC_FORK_H

#include "common/agree/spec.h"

/* The parent's spec with settings, PATH=VALUE as those of spec_source, and without its hold. train.steps
   takes the place of train.epochs, and the other way round. name: the fork's; NULL or "": as the settings
   say, else the parent's. *out has passed spec_check, and is freed with spec_free. Errors: INVALID: what
   spec_read and spec_check find; a key that says what a step is, as the batch, the data or the model, has
   another value than the parent's. */
int spec_fork(const Weir__RunSpec *parent, const struct spec_source *settings, const char *name,
              Weir__RunSpec **out, struct err *err);

/* Whether a fork of a run with the one spec may have the other; both have passed spec_check. Errors: INVALID,
   as of spec_fork. */
int spec_fork_check(const Weir__RunSpec *parent, const Weir__RunSpec *spec, struct err *err);

#endif
