/* Which members serve which run; what members found when they loaded it. */
#ifndef WEIR_SERVER_COORDINATOR_CORE_SETTLE_H
#define WEIR_SERVER_COORDINATOR_CORE_SETTLE_H

#include "cluster.pb-c.h"
#include "server/coordinator/state/run.h"

/* settle.c */
/* The worker is told to load the run. loaded: the stages of it that it has; empty: none, or all. */
struct seat *coordinator_join_run(struct coordinator *coordinator, struct member *worker, struct run *run,
                                  struct range loaded);
/* After every event: gives free workers and servers to runs, moves runs on, sends the views that are due.
   Claims are weighed where what they are weighed by has changed. Runs that wait are told what they wait for
   after that, EXPLAINED_MAX at a time. reported: the only run that the event says something of, by its id:
   the others are looked at only if claims are weighed; NULL: it may be of all. */
enum { EXPLAINED_MAX = 16 };
void coordinator_settle(struct coordinator *coordinator, const char *reported);

/* load.c */
/* A member has loaded the run: it is compared with the first that had. */
void coordinator_loaded(struct coordinator *coordinator, struct member *member,
                        const Weir__RunLoaded *loaded);
/* A member cannot, or will not, take part in the run. */
void coordinator_refused(struct coordinator *coordinator, struct member *member,
                         const Weir__RunRefused *refused);

/* lack.c */
/* How many workers have the labels that the run requires, and what others have in their place; NULL where
   `needed` have them, or the run requires none. Freed by the caller. */
char *coordinator_missing_labels(const struct coordinator *coordinator, const struct run *run,
                                 uint32_t needed);

/* How many workers are of the kind of the run's sweep, and how one that is not differs; NULL where `needed`
   are. Freed by the caller. */
char *coordinator_missing_kind(const struct coordinator *coordinator, const struct run *run, uint32_t needed);

/* explain.c */
/* The run's message says what it waits for. */
void coordinator_explain(struct coordinator *coordinator, struct run *run);

#endif
