/* How many workers each run is given, of those that there are. */
#ifndef WEIR_SERVER_COORDINATOR_SHARES_SHARE_H
#define WEIR_SERVER_COORDINATOR_SHARES_SHARE_H

#include <stdbool.h>
#include <stdint.h>

/* What a run claims, in workers. least <= min. */
struct share_claim {
  int32_t priority; /* a higher one is served first */
  double place;     /* of one priority, a lower one is served first; finite, or infinity */
  uint32_t least;   /* with fewer it cannot begin, or go on: it is given none */
  uint32_t min;     /* what it is given before others get more than theirs */
  uint32_t wanted;  /* more would not make it faster */
  uint32_t max;     /* it is never given more */
  double weight;    /* finite, and above 0 */
  int kind;         /* claims of one kind, from 0 on, suit the same workers */
  int budget;       /* N: the supply's Nth, which claims share; 0: none */
  bool takes_whole; /* a worker counts in its budget with all executors, which it must have left */
};

/* Workers that are alike: a claim may be given all of them, or none. */
struct share_pool {
  uint32_t workers;
  const bool *suits;  /* [n_kinds] */
  uint32_t executors; /* of each of them; for budgets */
};

struct share_supply {
  const struct share_pool *pools;
  int n, n_kinds;
  const uint64_t *budgets; /* [n_budgets] executors. A worker more is given while some are left */
  int n_budgets;
};

/* How many workers suit claims of the kind. */
uint32_t share_count_suited(const struct share_supply *supply, int kind);

struct share {
  uint32_t workers;
  int rank;       /* its place in the order of 1 below */
  uint32_t left;  /* of its min, when its turn came */
  bool is_capped; /* its budget was spent before it had its min */
};

/* shares[n], of the claims in the order of their submission:
   1. By priority, then by their places in line, then in their order, claims are given their min; where fewer
   are left, but not fewer than their least, what is left.
   2. The rest goes one by one, to the one that has the least for its weight of those that have some and want
   more.
   3. What nobody wants goes to those that have some, in the order of 1: spares.
   All of them can be met at once: each claim by workers that suit it. What it takes grows with the claims and
   with those that are given something, not with their product. */
void share_workers(const struct share_claim *claims, int n, const struct share_supply *supply,
                   struct share *shares);

#endif
