/* A checkpoint of a parameter server's run in a store in memory, and runs that are loaded from it:
   restore_fixture_init(&f, 1); restore_run(&f, 2, "server-1", &run, &err). */
#ifndef WEIR_TESTS_SUPPORT_PARAMETERS_RESTORE_FIXTURE_H
#define WEIR_TESTS_SUPPORT_PARAMETERS_RESTORE_FIXTURE_H

#include "common/base/sha256.h"
#include "server/parameters/load/restore.h"
#include "tests/support/parameters/snapshot_fixture.h"

/* Writes the manifest of these blocks, as the coordinator does with the answer of a run's only server.
   Returns the record's name, freed by the caller. */
char *commit_version(struct store *store, const Weir__BlocksWritten *written, const char *model_sha256);
/* The same of a run of the order's spec and plan, whose blocks hold so many versions before their own. */
char *commit_version_of(struct store *store, const Weir__LoadRun *order, const Weir__BlocksWritten *written,
                        uint32_t versions_before);

/* Version `version` of a run that pushed its way there, committed in f->snapshots' store. */
struct restore_fixture {
  struct snapshot_fixture snapshots;
  char model_sha256[SHA256_HEX_SIZE];
  char *manifest; /* the record's name */
  uint64_t version;
  int patience_ms;          /* for a store that does not answer; a week, unless a test says 0: none */
  int n_pauses, pauses_max; /* of what waits for the store; the last one says that the run is not wanted */
};

/* Pushes `version` steps, writes that version and commits it. The run is that of make_order(1, 1), or of an
   order that differs in what its optimizer does. */
void restore_fixture_init(struct restore_fixture *f, uint64_t version);
void restore_fixture_init_order(struct restore_fixture *f, const Weir__LoadRun *run, uint64_t version);

void restore_fixture_fini(struct restore_fixture *f);

/* Loads the checkpoint as the server `own_id` among `servers` does, in incarnation 2. *run is the caller's
   (hosted_run_put). Returns the error, after which there is no run. Pauses take no time. */
int restore_run(struct restore_fixture *f, size_t servers, const char *own_id, struct hosted_run **run,
                struct err *err);

#endif
