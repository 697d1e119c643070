/* What the members of a sweep's trials are to be. A sweep in virtual order has the same trials on any cluster
   because all that is computed for it has the same bits. So the first worker that loads one of its trials,
   and the first server that is given one, say of which kind (fingerprint) those of all its trials are. Trials
   whose spec says deterministic: false neither say that nor go by it. */
#ifndef WEIR_SERVER_COORDINATOR_STATE_SWEEP_KIND_H
#define WEIR_SERVER_COORDINATOR_STATE_SWEEP_KIND_H

#include <stdbool.h>

#include "store.pb-c.h"

struct coordinator;
struct member;
struct run;

struct sweep_kind {
  char *sweep;
  char *worker, *fingerprint;        /* "worker-1 (HOST)"; NULL until there is one */
  char *server, *server_fingerprint; /* likewise */
  bool has_strangers; /* by the newest weighing: some workers that may be shared are of another kind */
  struct sweep_kind *next;
};

/* NULL: the sweep has none. */
struct sweep_kind *sweep_kind_find(const struct coordinator *coordinator, const char *sweep);

/* The sweep has this kind from now on, for the runs that are there, too. What is empty of it is that of the
   sweep's runs, but for those that were over when it was reopened. kind NULL: the sweep is forgotten. */
void sweep_kind_set(struct coordinator *coordinator, const char *sweep, const Weir__SweepKind *kind);
void sweep_kinds_fini(struct coordinator *coordinator);

/* The kind that the run goes by; NULL: it may have members of any. */
struct sweep_kind *sweep_kind_of(const struct run *run);

/* The kind is that of the member, unless it is known. */
void sweep_kind_fix_worker(struct sweep_kind *kind, const struct member *worker);
void sweep_kind_fix_server(struct sweep_kind *kind, const struct member *server);

#endif
