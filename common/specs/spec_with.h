/* A spec with settings in it. */
#ifndef WEIR_COMMON_SPECS_SPEC_WITH_H
#define WEIR_COMMON_SPECS_SPEC_WITH_H

#include "common/agree/spec.h"

/* The base with settings, PATH=VALUE as those of spec_source; the source's file is for messages. train.steps
   takes the place of train.epochs, and the other way round. *out is not checked, and is freed with spec_free.
   Errors: INVALID: what spec_read finds. */
int spec_with(const Weir__RunSpec *base, const struct spec_source *settings, Weir__RunSpec **out,
              struct err *err);

#endif
