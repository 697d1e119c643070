/* The run that most tests of the coordinator's core have: two servers and two workers. core_run_begin() or
   core_run_start() is a test's first line. */
#ifndef WEIR_TESTS_SUPPORT_COORDINATOR_CORE_RUN_H
#define WEIR_TESTS_SUPPORT_COORDINATOR_CORE_RUN_H

#include "tests/support/coordinator/core_fixture.h"

#define RUN "mlp-aaaaaa"
enum { S1 = 1, S2 = 2, W1 = 3, W2 = 4 }; /* the members' keys */

/* Servers S1 and S2 and workers W1 (one executor) and W2 (as many as given) join; RUN is submitted and
   loaded. Asserts that it trains. */
void core_run_begin(struct core_fixture *f, uint32_t executors);

/* The same with one executor each, a checkpoint every four steps of ten, of which the newest `keep` are kept.
   The spec is f->every. */
void core_run_start(struct core_fixture *f, uint32_t keep);

/* S1 and S2 write what they were told to, and the store commits it. */
void core_run_checkpoint(struct core_fixture *f);

/* The step of the run's newest checkpoint. */
uint64_t core_run_newest(struct core_fixture *f);

/* A process that was no member before joins as member `key`, at the address of server `former`, on this host.
 */
void server_replaces(struct core_fixture *f, uint64_t former, uint64_t key, const char *host,
                     const char *fingerprint);

#endif
