/* A server's parameters role, joined to a fake coordinator that orders it about, and fake workers that push
 * to it. */
#ifndef WEIR_TESTS_ROLE_FIXTURE_H
#define WEIR_TESTS_ROLE_FIXTURE_H

#include "server/parameters/parameters.h"
#include "tests/support/fake_coordinator.h"
#include "tests/support/restore_fixture.h"

enum { HISTORY_MAX = 64 };

/* Of fixture: client, channel and model; the runs are the role's. */
struct role_fixture {
  struct fixture workers;
  struct fake_coordinator coordinator;
  struct parameters *parameters;
  struct rpc_server *server;
  struct store_double store;
  char model_sha256[SHA256_HEX_SIZE];
  struct {
    Weir__MemberMessage__BodyCase body;
    uint64_t step;
  } history[HISTORY_MAX]; /* of reports and RunComplete; under the coordinator's lock */
  int n_history;
};

void role_init(struct role_fixture *f);

void role_fini(struct role_fixture *f);

void send_load(struct role_fixture *f, Weir__LoadRun *load);

void order_load_of(struct role_fixture *f, const char *store, uint64_t incarnation, uint64_t step,
                   const char *manifest);

void order_load_from(struct role_fixture *f, uint64_t incarnation, uint64_t step, const char *manifest);

void order_load(struct role_fixture *f);

void order_unload(struct role_fixture *f);

void order_write(struct role_fixture *f, uint64_t step);

#endif
