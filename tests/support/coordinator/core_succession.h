/* A coordinator of the core's tests that takes over what another had saved: change what record_of() gave,
   then coordinator_is_succeeded() with it. */
#ifndef WEIR_TESTS_SUPPORT_COORDINATOR_CORE_SUCCESSION_H
#define WEIR_TESTS_SUPPORT_COORDINATOR_CORE_SUCCESSION_H

#include "tests/support/coordinator/core_fixture.h"

/* The newest record that the core wants saved; asserts that there is one. The core is told that the store
   lost everything, so that it saves now. Freed by coordinator_is_succeeded(), or with message_free(). */
Weir__RunRecord *record_of(struct core_fixture *f);

/* The record that the core wants saved of this run, which is not over. */
Weir__RunRecord *record_of_run(struct core_fixture *f, const char *run);

/* Replaces f->coordinator by a successor that restores the run from this record, which is freed, and from
   the run's events. Every member's stream has ended; joins_again() opens new ones. */
void coordinator_is_succeeded(struct core_fixture *f, const char *run, Weir__RunRecord *changed);

/* The message of row `at` in ListServers, which must be there; good until the next call. */
const char *server_message(struct core_fixture *f, size_t at);

#endif
