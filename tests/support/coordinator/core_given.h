/* What the views of a run give its workers, in core_fixture.h. */
#ifndef WEIR_TESTS_SUPPORT_COORDINATOR_CORE_GIVEN_H
#define WEIR_TESTS_SUPPORT_COORDINATOR_CORE_GIVEN_H

#include "tests/support/coordinator/core_fixture.h"

/* All views of a number together give each microbatch once, or they give nothing: to who is cut off, or
   follows. */
void given_check(struct core_fixture *f);

#endif
