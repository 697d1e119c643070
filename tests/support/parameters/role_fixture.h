/* A server's parameters role in this process, joined to a fake coordinator whose orders the test gives,
   and fake workers that push to it: role_init(&f); order_load(&f);
   fake_coordinator_wait_message(&f.coordinator, ...); push_version(&f.workers, 0); ... role_fini(&f).
   Orders are sent, not waited for; the run is "unit-1". */
#ifndef WEIR_TESTS_SUPPORT_PARAMETERS_ROLE_FIXTURE_H
#define WEIR_TESTS_SUPPORT_PARAMETERS_ROLE_FIXTURE_H

#include "server/parameters/parameters.h"
#include "tests/support/common/fake_coordinator.h"
#include "tests/support/parameters/restore_fixture.h"

enum { HISTORY_MAX = 64 };

/* workers: what pushes and pulls need, and the model; its server and runs are not used, the role has them. */
struct role_fixture {
  struct parameters_fixture workers;
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

/* Waits until the role has joined. FetchModel gives it the model. */
void role_init(struct role_fixture *f);

/* The same, with steps that are late after these times: a week, unless a test says otherwise. */
void role_init_paced(struct role_fixture *f, const struct pace_options *pace);

/* The same, which refuses a run soon when the server that keeps its sums is out of reach; after a week,
   otherwise. */
void role_init_impatient(struct role_fixture *f);

void role_fini(struct role_fixture *f);

/* Sends LoadRun; sets its model. */
void send_load(struct role_fixture *f, Weir__LoadRun *load);

/* Orders make_order(incarnation, 1), to begin at version `step`, restored from the checkpoint whose record
   is `manifest` (0, "": from the start). store: the identity of the store that the coordinator has, "" for
   any. */
void order_load_of(struct role_fixture *f, const char *store, uint64_t incarnation, uint64_t step,
                   const char *manifest);

/* The same with any store. order_load(): incarnation 1, from the start. */
void order_load_from(struct role_fixture *f, uint64_t incarnation, uint64_t step, const char *manifest);
void order_load(struct role_fixture *f);

void order_unload(struct role_fixture *f); /* "unit-1" */
void order_unload_of(struct role_fixture *f, const char *run);

/* Orders version `step` of incarnation 1 to be written. */
void order_write(struct role_fixture *f, uint64_t step);

/* Orders the run to be kept, and its reports to be told from this step on. */
void order_keep(struct role_fixture *f, uint64_t incarnation, uint64_t step);

/* The coordinator is away while `meanwhile` (NULL: nothing) happens; returns when the role has joined again.
 */
void lose_coordinator(struct role_fixture *f, void (*meanwhile)(struct role_fixture *f));

#endif
