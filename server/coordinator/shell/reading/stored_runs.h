/* The runs in the store, and what it knows of members, read when a coordinator begins to lead. */
#ifndef WEIR_SERVER_COORDINATOR_SHELL_READING_STORED_RUNS_H
#define WEIR_SERVER_COORDINATOR_SHELL_READING_STORED_RUNS_H

#include "server/coordinator/state/options.h"
#include "storage/checkpoint/checkpoint.h"

/* A run whose record is complete. Its list of checkpoints is that of the manifests that are there and, where
   the run is not over, complete. */
struct stored_run {
  Weir__RunRecord *record;
  Weir__RunEvent **events; /* by number; the newest, see stored_runs_read */
  size_t n_events;
  uint64_t *chunks; /* numbers of its records of events, ascending, also those that were not read */
  int n_chunks;
};

#define MEMBERS_RECORD "coordinator/members"

struct stored_runs {
  struct stored_run *items; /* by submission */
  int count;
  int left_out; /* older ones that are over */
};

enum { STORED_EVENTS_MAX = 100000, STORED_EVENTS_ALL_MAX = 500000 };

/* Reads all runs that are not over, the newest RUNS_KEPT others, and TRIALS_KEPT trials that are over: first
   those with a result, the newest ones. Of each at most about STORED_EVENTS_MAX of the newest events. Damaged
   records are logged and left out. Where a run's incarnation is another than its record's (a coordinator died
   between the two writes) it is written anew, under the guard. Blocks. Errors: the store's; what was read is
   freed then. */
int stored_runs_read(struct store *store, const struct store_record *guard, struct stored_runs *runs,
                     struct err *err);
void stored_runs_fini(struct stored_runs *runs);

/* Reads one of them, whether it is over or not. Freed with stored_runs_release. Errors: NOT_FOUND; CORRUPT;
   the store's. */
int stored_runs_find(struct store *store, const struct store_record *guard, const char *id,
                     struct stored_run *run, struct err *err);
void stored_runs_release(struct stored_run *run);

/* The newest record of members, freed with message_free; NULL where there is none, or a damaged one, which is
   logged. Blocks. Errors: the store's. */
int stored_members_read(struct store *store, Weir__Members **members, struct err *err);

#endif
