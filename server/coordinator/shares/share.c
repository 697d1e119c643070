/* How many workers each run is given. */
#include "server/coordinator/shares/share.h"

#include <stdlib.h>

#include "common/base/memory.h"

struct ranked {
  int32_t priority;
  int claim;
};

static int compare_ranks(const void *left, const void *right) {
  const struct ranked *a = left, *b = right;
  if (a->priority != b->priority)
    return a->priority > b->priority ? -1 : 1;
  return a->claim - b->claim;
}

/* [n] in the order in which they are served; freed by the caller. */
static struct ranked *rank_claims(const struct share_claim *claims, int n) {
  struct ranked *ranks = mem_new(((size_t)n + 1) * sizeof *ranks);
  for (int i = 0; i < n; i++)
    ranks[i] = (struct ranked){claims[i].priority, i};
  qsort(ranks, (size_t)n, sizeof *ranks, compare_ranks);
  return ranks;
}

static uint32_t least_of(uint32_t a, uint32_t b) {
  return a < b ? a : b;
}

static uint32_t minimum_of(const struct share_claim *claim, uint32_t left) {
  uint32_t given = least_of(least_of(claim->min, claim->max), left);
  return given < claim->least ? 0 : given;
}

/* The first in rank of those that would have the least for their weight with one more; -1: nobody wants more.
 */
static int neediest(const struct share_claim *claims, const struct ranked *ranks, int n,
                    const struct share *shares) {
  int found = -1;
  double least = 0;
  for (int i = 0; i < n; i++) {
    const struct share_claim *claim = &claims[ranks[i].claim];
    uint32_t has = shares[ranks[i].claim].workers;
    double level = (has + 1.0) / claim->weight;
    if (has == 0 || has >= claim->wanted || has >= claim->max || (found >= 0 && level >= least))
      continue;
    found = ranks[i].claim;
    least = level;
  }
  return found;
}

void share_workers(const struct share_claim *claims, int n, uint32_t workers, struct share *shares) {
  struct ranked *ranks = rank_claims(claims, n);
  int needy;
  for (int i = 0; i < n; i++) {
    struct share *share = &shares[ranks[i].claim];
    share->turn = i;
    share->left = workers;
    share->workers = minimum_of(&claims[ranks[i].claim], workers);
    workers -= share->workers;
  }
  while (workers && (needy = neediest(claims, ranks, n, shares)) >= 0) {
    shares[needy].workers++;
    workers--;
  }
  for (int i = 0; i < n; i++) {
    struct share *share = &shares[ranks[i].claim];
    uint32_t spares = share->workers ? least_of(claims[ranks[i].claim].max - share->workers, workers) : 0;
    share->workers += spares;
    workers -= spares;
  }
  free(ranks);
}
