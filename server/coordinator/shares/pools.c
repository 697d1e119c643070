/* Which workers are alike to the runs that claim some. */
#include "server/coordinator/shares/pools.h"

#include <string.h>

#include "common/base/memory.h"
#include "server/coordinator/state/candidates.h"
#include "server/coordinator/state/member.h"
#include "server/coordinator/state/run.h"
#include "server/coordinator/state/sweep_kind.h"

enum { ANYTHING = 0 };

/* What runs require, each once. */
struct kinds {
  const struct run **runs; /* [n] one that requires it; the first is none: ANYTHING */
  int n;
};

struct pool {
  bool *suits; /* [kinds] */
  uint32_t workers;
  uint32_t executors; /* of each, where they are counted; else 0 */
};

static bool requires_the_same(const struct run *a, const struct run *b) {
  struct labels one = coordinator_required(a), other = coordinator_required(b);
  return one.n == other.n && labels_include(one, other) && sweep_kind_of(a) == sweep_kind_of(b) &&
         coordinator_admits_foreign(a) == coordinator_admits_foreign(b) && strcmp(a->tenant, b->tenant) == 0;
}

static struct kinds kinds_of(const struct pooled *pooled, int *of, struct arena *arena) {
  struct kinds kinds = {arena_new(arena, ((size_t)pooled->n_runs + 1) * sizeof *kinds.runs), 1};
  for (int i = 0; i < pooled->n_runs; i++) {
    of[i] = ANYTHING;
    if (!coordinator_is_choosy(pooled->coordinator, pooled->runs[i]))
      continue;
    of[i]++;
    while (of[i] < kinds.n && !requires_the_same(kinds.runs[of[i]], pooled->runs[i]))
      of[i]++;
    if (of[i] == kinds.n)
      kinds.runs[kinds.n++] = pooled->runs[i];
  }
  return kinds;
}

/* Returns how many they are by now. */
static int pool_add(struct pool *pools, int n, const struct kinds *kinds, struct member *worker,
                    struct pool like) {
  bool *suits = like.suits;
  int at = 0;
  worker->sought = 0;
  suits[ANYTHING] = true;
  for (int kind = 1; kind < kinds->n; kind++)
    worker->sought += suits[kind] = coordinator_may_have(kinds->runs[kind], worker);
  while (at < n && (memcmp(pools[at].suits, suits, (size_t)kinds->n * sizeof *suits) != 0 ||
                    pools[at].executors != like.executors))
    at++;
  if (at == n)
    pools[n++] = like;
  pools[at].workers++;
  return n;
}

struct share_supply pools_of(const struct pooled *pooled, int *kinds_of_runs, struct arena *arena) {
  struct kinds kinds = kinds_of(pooled, kinds_of_runs, arena);
  size_t room = (size_t)pooled->n_workers;
  struct pool *pools = arena_new(arena, room * sizeof *pools);
  struct share_pool *list = arena_new(arena, room * sizeof *list);
  int n = 0;
  for (int i = 0; i < pooled->n_workers; i++)
    n = pool_add(pools, n, &kinds, pooled->workers[i],
                 (struct pool){.suits = arena_new(arena, (size_t)kinds.n * sizeof(bool)),
                               .executors = pooled->are_counted ? pooled->workers[i]->executors : 0});
  for (int i = 0; i < n; i++)
    list[i] = (struct share_pool){pools[i].workers, pools[i].suits, pools[i].executors};
  return (struct share_supply){.pools = list, .n = n, .n_kinds = kinds.n};
}
