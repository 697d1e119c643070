/* The lease of a store for the time of one command. A command that deletes from a store must be the only one
   that does, as a coordinator is. */
#ifndef WEIR_CLIENT_CLUSTER_STORE_LEASE_H
#define WEIR_CLIENT_CLUSTER_STORE_LEASE_H

#include "storage/store.h"

struct store_lease;

/* Takes the store: looks for a little over a second whether a coordinator renews its lease, then takes the
   next term (from then on no other's writes are let in), and renews the lease until it is released, so that
   a coordinator that is started meanwhile waits. Errors: EXISTS when a coordinator leads (its address named),
   or was faster; the store's. */
int store_lease_take(struct store *store, struct store_lease **out, struct err *err);

/* The guard of every write, and of deletions: the record of the term. Belongs to the lease. */
const struct store_record *store_lease_guard(const struct store_lease *lease);

/* Gives the lease up and frees it. NULL is ignored. */
void store_lease_release(struct store_lease *lease);

#endif
