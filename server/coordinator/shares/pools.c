/* Which workers are alike to the runs that claim some. */
#include "server/coordinator/shares/pools.h"

#include <string.h>

#include "common/base/memory.h"
#include "server/coordinator/state/candidates.h"
#include "server/coordinator/state/member.h"
#include "server/coordinator/state/run.h"

enum { ANYTHING = -1 };

/* What runs require, each once. */
struct kinds {
  const struct run **runs; /* [n] one that requires it */
  int *of;                 /* [n_runs] which it is; ANYTHING: nothing */
  int n;
};

struct pool {
  bool *meets; /* [kinds] */
  uint32_t workers;
};

static bool requires_the_same(const struct run *a, const struct run *b) {
  struct labels one = coordinator_required(a), other = coordinator_required(b);
  return one.n == other.n && labels_include(one, other);
}

static struct kinds kinds_of(const struct pooled *pooled, struct arena *arena) {
  size_t room = (size_t)pooled->n_runs;
  struct kinds kinds = {arena_new(arena, room * sizeof *kinds.runs), arena_new(arena, room * sizeof(int)), 0};
  for (int i = 0; i < pooled->n_runs; i++) {
    int kind = 0;
    kinds.of[i] = ANYTHING;
    if (coordinator_required(pooled->runs[i]).n == 0)
      continue;
    while (kind < kinds.n && !requires_the_same(kinds.runs[kind], pooled->runs[i]))
      kind++;
    if (kind == kinds.n)
      kinds.runs[kinds.n++] = pooled->runs[i];
    kinds.of[i] = kind;
  }
  return kinds;
}

/* Returns how many they are by now. */
static int pool_add(struct pool *pools, int n, const struct kinds *kinds, struct member *worker,
                    bool *meets) {
  int at = 0;
  worker->sought = 0;
  for (int kind = 0; kind < kinds->n; kind++)
    worker->sought += meets[kind] = coordinator_has_labels(kinds->runs[kind], worker);
  while (at < n && memcmp(pools[at].meets, meets, (size_t)kinds->n * sizeof *meets) != 0)
    at++;
  if (at == n)
    pools[n++].meets = meets;
  pools[at].workers++;
  return n;
}

static const bool *suits_of(const struct pool *pool, const struct kinds *kinds, int n_runs,
                            struct arena *arena) {
  bool *suits = arena_new(arena, (size_t)n_runs * sizeof *suits);
  for (int i = 0; i < n_runs; i++)
    suits[i] = kinds->of[i] == ANYTHING || pool->meets[kinds->of[i]];
  return suits;
}

struct share_supply pools_of(const struct pooled *pooled, struct arena *arena) {
  struct kinds kinds = kinds_of(pooled, arena);
  size_t room = (size_t)pooled->n_workers;
  struct pool *pools = arena_new(arena, room * sizeof *pools);
  struct share_pool *list = arena_new(arena, room * sizeof *list);
  int n = 0;
  for (int i = 0; i < pooled->n_workers; i++)
    n = pool_add(pools, n, &kinds, pooled->workers[i], arena_new(arena, (size_t)kinds.n * sizeof(bool)));
  for (int i = 0; i < n; i++)
    list[i] = (struct share_pool){pools[i].workers,
                                  kinds.n ? suits_of(&pools[i], &kinds, pooled->n_runs, arena) : NULL};
  return (struct share_supply){list, n};
}
