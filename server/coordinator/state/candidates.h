/* Which members a run may be given. */
#ifndef WEIR_SERVER_COORDINATOR_STATE_CANDIDATES_H
#define WEIR_SERVER_COORDINATOR_STATE_CANDIDATES_H

#include <stdbool.h>
#include <stdint.h>

#include "common/agree/labels.h"

struct coordinator;
struct member;
struct run;

/* candidates.c */
/* Whether the worker is free, and suits the run. */
bool coordinator_may_serve(const struct run *run, const struct member *worker);
/* Whether the worker has the labels that the run requires, is of the kind of its sweep and of its tenant or
   of none, and has not refused the run. */
bool coordinator_suits(const struct run *run, const struct member *worker);
bool coordinator_has_labels(const struct run *run, const struct member *worker);
/* All but that: whether the run could be given the worker if it had not refused it. */
bool coordinator_may_have(const struct run *run, const struct member *worker);
struct labels coordinator_required(const struct run *run);
/* The workers that the run might be given. */
uint32_t coordinator_count_free(const struct coordinator *coordinator, const struct run *run);
/* Whether the member is a server that a run may be given. has_others: there are other servers to choose from.
 */
bool coordinator_may_own_blocks(const struct coordinator *coordinator, const struct member *member,
                                bool has_others);
/* Whether there is a server that the run may be given, of the run's kind. */
bool coordinator_has_server(const struct coordinator *coordinator, const struct run *run);

/* kind.c */
/* Whether the run may have the server: its kind is that of the run's first server, or the run is not
   deterministic. */
bool coordinator_server_fits(const struct run *run, const struct member *server);
/* Why the run may not have it, with both named; NULL if it may. Freed by the caller. */
char *coordinator_server_mismatch(const struct run *run, const struct member *server);
/* Unless the run has a kind, it is the server's from now on. */
void coordinator_server_set_kind(struct run *run, const struct member *server);
/* Whether workers that are other programs than weir-worker may compute the run. */
bool coordinator_admits_foreign(const struct run *run);
/* Whether the worker is of the kind of the run's sweep, where it has one, and weir-worker where it must be.
 */
bool coordinator_worker_fits(const struct run *run, const struct member *worker);
/* As coordinator_server_mismatch. */
char *coordinator_worker_mismatch(const struct run *run, const struct member *worker);
/* Finds out for which sweeps some of the workers are of another kind. */
void coordinator_find_strangers(struct coordinator *coordinator, struct member *const *workers, int n);
/* Whether some workers might not do for the run: it requires labels, or there are some of another kind, of
   one tenant, or of another program. */
bool coordinator_is_choosy(const struct coordinator *coordinator, const struct run *run);

#endif
