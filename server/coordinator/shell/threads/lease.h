/* The lease in the store: the coordinator that holds it leads. Its term, a number that grows with each
   holder, guards everything that it writes. */
#ifndef WEIR_SERVER_COORDINATOR_SHELL_THREADS_LEASE_H
#define WEIR_SERVER_COORDINATOR_SHELL_THREADS_LEASE_H

#include "storage/store.h"

struct lease;

/* Callbacks come on the lease's own thread, one at a time, and must not wait for the store. */
struct lease_options {
  struct store *store;
  const char *holder;  /* host and listening address: a holder of this name before us is dead. Copied */
  const char *address; /* where others reach us. Copied */
  int lease_ms; /* a lease that was not renewed for so long is free; 0: 3000. Renewed thrice as often */

  void (*on_waiting)(void *user, const char *why); /* when `why` changes: who leads, or what is wrong */
  void (*on_leading)(void *user, uint64_t term);   /* once */
  /* While we lead: what is wrong with the store, at each renewal that fails; "" when it is well again. */
  void (*on_store)(void *user, const char *message);
  void (*on_emptied)(void *user);                     /* the store had lost our term, which is there again */
  void (*on_deposed)(void *user, const char *reason); /* another leads; nothing follows */
  void *user;
};

/* Starts the thread that takes the lease as soon as it is free, and then renews it. */
struct lease *lease_start(const struct lease_options *options);

/* A member obeys `term`, higher than ours. If the store does not know of it, because it has lost what it
   had, lease_stop writes it there, so that the next leader's is higher still. Any thread. NULL is ignored. */
void lease_outlived(struct lease *lease, uint64_t term);

/* A member says that another coordinator leads. The next renewal shows whether that is true. If the store
   does not answer then, the member is believed, and we are deposed. Any thread. NULL is ignored. */
void lease_doubt(struct lease *lease);

/* Ends the thread and, if we lead, gives the lease up. Waits for a store call that is under way. NULL is
   ignored. */
void lease_stop(struct lease *lease);

/* The condition of a leader's writes. `term` is filled with the term's text, and outlives the guard. */
enum { LEASE_TERM_SIZE = 24 };
struct store_record lease_guard(uint64_t term_number, char term[LEASE_TERM_SIZE]);

#endif
