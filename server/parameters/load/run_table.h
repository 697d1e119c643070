/* The runs on this server, by id. Any thread. */
#ifndef WEIR_SERVER_PARAMETERS_LOAD_RUN_TABLE_H
#define WEIR_SERVER_PARAMETERS_LOAD_RUN_TABLE_H

#include <pthread.h>

#include "server/parameters/load/hosted_run.h"

struct run_table {
  pthread_mutex_t lock;
  struct hosted_run **runs;
  int n_runs, capacity;
};

void run_table_init(struct run_table *table);
void run_table_fini(struct run_table *table); /* no run is left in it */

/* Takes over the caller's reference. An older incarnation of the run is unloaded. Errors, after which the
   reference is still the caller's: EXISTS (this incarnation is there already), STALE (a newer one is). */
int run_table_add(struct run_table *table, struct hosted_run *run, struct err *err);

/* A reference to the run. Errors: NULL with NOT_FOUND, or STALE for another incarnation. */
struct hosted_run *run_table_find(struct run_table *table, const char *id, uint64_t incarnation,
                                  struct err *err);

/* Whether a call with this ticket (NULL: with none) by the holder of a certificate (its URI, or
   TICKET_SERVERS; "" without TLS) is for a run that is here. A call without a ticket is for those that have
   no key. Errors: DENIED; NOT_FOUND, or STALE for another incarnation, with the right to say so. */
int run_table_admit(struct run_table *table, const char *ticket, const char *holder, struct err *err);

/* run_table_find for a call that was admitted with this ticket. Errors: also DENIED if the ticket is not for
   that run and incarnation. */
struct hosted_run *run_table_find_for(struct run_table *table, const char *ticket, const char *id,
                                      uint64_t incarnation, struct err *err);

/* A reference to each run; their number is returned, the list is freed by the caller. */
int run_table_list(struct run_table *table, struct hosted_run ***runs);

/* Unloads what is there of a run before this incarnation. Errors: EXISTS, STALE, as above. */
int run_table_remove_older(struct run_table *table, const char *id, uint64_t incarnation, const char *reason,
                           struct err *err);

/* Unloads a run, or all where id is NULL. Unknown ones are ignored. */
void run_table_remove(struct run_table *table, const char *id, const char *reason);

#endif
