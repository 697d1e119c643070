/* Which workers are alike to the runs that claim some. */
#ifndef WEIR_SERVER_COORDINATOR_SHARES_POOLS_H
#define WEIR_SERVER_COORDINATOR_SHARES_POOLS_H

#include "server/coordinator/shares/share.h"

struct arena;
struct coordinator;
struct member;
struct run;

struct pooled {
  const struct coordinator *coordinator;
  bool are_counted; /* their executors: those of a pool have as many */
  struct member *const *workers;
  int n_workers;
  struct run *const *runs;
  int n_runs;
};

/* The workers by what the runs require of them. kinds: [n_runs] of their claims; 0: it requires nothing. Says
 * in each worker's `sought` how many different requirements it meets. In the arena. */
struct share_supply pools_of(const struct pooled *pooled, int *kinds, struct arena *arena);

#endif
