/* train.local of a spec. */
#ifndef WEIR_COMMON_AGREE_SPEC_LOCAL_H
#define WEIR_COMMON_AGREE_SPEC_LOCAL_H

#include "common/base/err.h"
#include "spec.pb-c.h"

/* Of a spec that has it; what it has to do with the spec's other keys the mode checks
   (common/modes/local.c). Errors: INVALID, naming the key. */
int spec_local_check(const Weir__TrainSpec *train, struct err *err);

/* The servers' optimizer, as far as it is not given. */
void spec_local_add_outer(Weir__LocalSpec *local);

#endif
