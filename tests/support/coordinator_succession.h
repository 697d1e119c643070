/* A coordinator that takes over what another had saved, and what it says of its servers. */
#ifndef WEIR_TESTS_SUPPORT_COORDINATOR_SUCCESSION_H
#define WEIR_TESTS_SUPPORT_COORDINATOR_SUCCESSION_H

#include "tests/support/coordinator_fixture.h"

/* The newest record that was to be saved. */
Weir__RunRecord *record_of(struct fixture *f);

/* What the store has of the run now, given to a coordinator of the next term. */
void coordinator_is_succeeded(struct fixture *f, const char *run, Weir__RunRecord *changed);

const char *server_message(struct fixture *f, size_t at);

#endif
