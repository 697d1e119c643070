/* Workers with labels, and runs that require some, for core_fixture.h. Labels are given as --label is. */
#ifndef WEIR_TESTS_SUPPORT_COORDINATOR_CORE_LABELS_H
#define WEIR_TESTS_SUPPORT_COORDINATOR_CORE_LABELS_H

#include "tests/support/coordinator/core_fixture.h"

/* A worker with one executor. */
void labelled_joins(struct core_fixture *f, uint64_t key, const char *labels);

/* As user_submits. */
void user_submits_for(struct core_fixture *f, const char *id, const char *required, uint32_t min,
                      uint32_t max);

#endif
