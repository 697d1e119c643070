/* Which runs are computed by the same programs from the same data. */
#ifndef WEIR_COMMON_AGREE_SPEC_PROGRAM_H
#define WEIR_COMMON_AGREE_SPEC_PROGRAM_H

#include <stdbool.h>

#include "spec.pb-c.h"

/* Whether runs of one model differ in nothing that workers go by, but for how many steps there are and which
   versions are evaluated: that is in their plans. Both specs have passed spec_check. */
bool spec_has_same_program(const Weir__RunSpec *a, const Weir__RunSpec *b);

#endif
