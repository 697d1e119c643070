/* How many workers each run is given. Which pool they are of is settled as in a matching of claims to
   workers: one more for a claim may be a worker of another claim, which is given one of another pool in its
   place. */
#include "server/coordinator/shares/share.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/memory.h"

struct ranked {
  int32_t priority;
  double place;
  int claim;
};

enum { NOBODY = -1 };

/* How a pool came to be looked at: `claim` has workers of pool `from`, and may have this one's instead;
   NOBODY: the one that wants one more may. */
struct move {
  bool is_seen;
  int claim, from;
};

/* One of this kind could be given no more than `most`, after so many were served; with 0 nothing is known. */
struct limit {
  int served;
  uint32_t most;
};

struct sharing {
  const struct share_claim *claims;
  int n;
  const struct share_pool *pools;
  int n_pools;
  struct share *shares;
  struct ranked *ranks; /* [n] in the order in which they are served */
  int *holders;         /* [n_holders] claims that have some, in that order */
  int n_holders;
  struct limit *limits; /* [n_kinds] */
  uint32_t *given;      /* [n][n_pools] */
  uint32_t *left;       /* [n_pools] */
  uint32_t all_left;    /* of all pools */
  const uint64_t *budgets;
  uint64_t *spent;    /* [n_budgets] executors of workers that are given */
  bool *is_full;      /* [n] there is no more for it */
  struct move *moves; /* [n_pools] */
  int *queue;         /* [n_pools] */
};

static bool is_before(const struct ranked *a, const struct ranked *b) {
  if (a->priority != b->priority)
    return a->priority > b->priority;
  return a->place != b->place ? a->place < b->place : a->claim < b->claim;
}

/* Where the ranked ones from `begin` on end. */
static int end_of_ranked(const struct ranked *ranks, int begin, int n) {
  int end = begin + 1;
  while (end < n && is_before(&ranks[end - 1], &ranks[end]))
    end++;
  return end;
}

/* [begin, middle) and [middle, end), which are ranked, become one. spare: room for the first. */
static void merge(struct ranked *ranks, int begin, int middle, int end, struct ranked *spare) {
  int n = middle - begin, a = 0, b = middle, to = begin;
  memcpy(spare, ranks + begin, (size_t)n * sizeof *ranks);
  while (a < n && b < end)
    ranks[to++] = is_before(&ranks[b], &spare[a]) ? ranks[b++] : spare[a++];
  memcpy(ranks + to, spare + a, (size_t)(n - a) * sizeof *ranks);
}

/* Of the ranked stretches each two become one. Returns how many there are then. */
static int merge_pairs(struct ranked *ranks, int n, struct ranked *spare) {
  int count = 0;
  for (int begin = 0, end; begin < n; begin = end, count++) {
    int middle = end_of_ranked(ranks, begin, n);
    end = middle < n ? end_of_ranked(ranks, middle, n) : n;
    if (middle < end)
      merge(ranks, begin, middle, end, spare);
  }
  return count;
}

/* Most are in the order of submission, those that wait behind those that have begun: few stretches. */
static void rank_claims(struct sharing *s) {
  struct ranked *spare = mem_new((size_t)s->n * sizeof *spare);
  for (int i = 0; i < s->n; i++)
    s->ranks[i] = (struct ranked){s->claims[i].priority, s->claims[i].place, i};
  while (merge_pairs(s->ranks, s->n, spare) > 1)
    ;
  free(spare);
}

static void sharing_init(struct sharing *s, const struct share_supply *supply) {
  const int n_kinds = supply->n_kinds;
  size_t n = (size_t)s->n + 1, n_pools = (size_t)s->n_pools + 1;
  s->ranks = mem_new(n * sizeof *s->ranks);
  s->holders = mem_new(n * sizeof *s->holders);
  s->limits = mem_new(((size_t)n_kinds + 1) * sizeof *s->limits);
  s->given = mem_new(n * n_pools * sizeof *s->given);
  s->left = mem_new(n_pools * sizeof *s->left);
  s->is_full = mem_new(n * sizeof *s->is_full);
  s->moves = mem_new(n_pools * sizeof *s->moves);
  s->queue = mem_new(n_pools * sizeof *s->queue);
  s->spent = mem_new(((size_t)supply->n_budgets + 1) * sizeof *s->spent);
  s->budgets = supply->budgets;
  for (int p = 0; p < s->n_pools; p++)
    s->all_left += s->left[p] = s->pools[p].workers;
  rank_claims(s);
}

static void sharing_fini(struct sharing *s) {
  free(s->ranks);
  free(s->holders);
  free(s->limits);
  free(s->given);
  free(s->left);
  free(s->is_full);
  free(s->moves);
  free(s->queue);
  free(s->spent);
}

static bool suits(const struct sharing *s, int claim, int pool) {
  return s->pools[pool].suits[s->claims[claim].kind];
}

static uint32_t given(const struct sharing *s, int claim, int pool) {
  return s->given[claim * s->n_pools + pool];
}

/* So many of the pool's are the claim's from now on, or (below 0) not any more. */
static void give(struct sharing *s, int claim, int pool, int64_t workers) {
  int budget = s->claims[claim].budget;
  s->given[claim * s->n_pools + pool] += (uint32_t)workers;
  if (budget)
    s->spent[budget - 1] += (uint64_t)(workers * s->pools[pool].executors);
}

/* Executors that its budget still has. */
static uint64_t budget_left(const struct sharing *s, int claim) {
  int budget = s->claims[claim].budget;
  if (!budget)
    return UINT64_MAX;
  return s->spent[budget - 1] < s->budgets[budget - 1] ? s->budgets[budget - 1] - s->spent[budget - 1] : 0;
}

/* Of so many workers of the pool those that the claim's budget has: the last of them may be too large. */
static uint32_t within_budget(const struct sharing *s, int claim, int pool, uint32_t workers) {
  uint64_t left = budget_left(s, claim), executors = s->pools[pool].executors;
  if (left == UINT64_MAX || executors == 0 || left / executors >= workers)
    return workers;
  return (uint32_t)((left + (s->claims[claim].takes_whole ? 0 : executors - 1)) / executors);
}

/* Its budget has room for no worker that suits it. */
static bool is_capped(const struct sharing *s, int claim) {
  bool is_any_suited = false;
  if (!s->claims[claim].budget)
    return false;
  for (int p = 0; p < s->n_pools; p++) {
    if (suits(s, claim, p) && within_budget(s, claim, p, 1))
      return false;
    is_any_suited |= suits(s, claim, p);
  }
  return is_any_suited;
}

/* The pool has one left: it goes to whom it was looked at for, whose own goes on, and the last one to
 * `claim`. */
static void hand_over(struct sharing *s, int claim, int pool) {
  s->left[pool]--;
  s->all_left--;
  while (s->moves[pool].claim != NOBODY) {
    const struct move *move = &s->moves[pool];
    give(s, move->claim, pool, 1);
    give(s, move->claim, move->from, -1);
    pool = move->from;
  }
  give(s, claim, pool, 1);
  s->shares[claim].workers++;
}

static int see(struct sharing *s, int n_seen, int pool, struct move move) {
  if (s->moves[pool].is_seen)
    return n_seen;
  s->moves[pool] = move;
  s->queue[n_seen] = pool;
  return n_seen + 1;
}

/* Whether there is one. */
static bool give_one(struct sharing *s, int claim) {
  int n_seen = 0;
  for (int p = 0; p < s->n_pools; p++)
    s->moves[p].is_seen = false;
  for (int p = 0; p < s->n_pools && s->all_left; p++)
    if (suits(s, claim, p) && within_budget(s, claim, p, 1))
      n_seen = see(s, n_seen, p, (struct move){true, NOBODY, 0});
  for (int at = 0; at < n_seen; at++)
    if (s->left[s->queue[at]]) {
      hand_over(s, claim, s->queue[at]);
      return true;
    }
  for (int at = 0; at < n_seen; at++) {
    int from = s->queue[at];
    if (s->left[from]) {
      hand_over(s, claim, from);
      return true;
    }
    for (int i = 0; i < s->n_holders && n_seen < s->n_pools; i++)
      for (int p = 0; p < s->n_pools && given(s, s->holders[i], from); p++)
        if (suits(s, s->holders[i], p))
          n_seen = see(s, n_seen, p, (struct move){true, s->holders[i], from});
  }
  s->is_full[claim] = true;
  return false;
}

/* Of what is left, without others being given something else. */
static void give_left(struct sharing *s, int claim, uint32_t goal) {
  for (int p = 0; p < s->n_pools && s->all_left; p++) {
    uint32_t lacking = goal - s->shares[claim].workers, some = s->left[p] < lacking ? s->left[p] : lacking;
    if (!suits(s, claim, p))
      continue;
    some = within_budget(s, claim, p, some);
    s->left[p] -= some;
    s->all_left -= some;
    give(s, claim, p, some);
    s->shares[claim].workers += some;
  }
}

static void give_back(struct sharing *s, int claim) {
  for (int p = 0; p < s->n_pools; p++) {
    uint32_t workers = given(s, claim, p);
    s->left[p] += workers;
    s->all_left += workers;
    give(s, claim, p, -(int64_t)workers);
  }
  s->shares[claim].workers = 0;
}

static void give_minimum(struct sharing *s, int claim) {
  const struct share_claim *wants = &s->claims[claim];
  struct share *share = &s->shares[claim];
  struct limit *limit = &s->limits[wants->kind];
  uint32_t goal = wants->min < wants->max ? wants->min : wants->max;
  if (limit->served == s->n_holders + 1 && limit->most < wants->least) {
    share->left = limit->most < goal ? limit->most : goal;
    return;
  }
  give_left(s, claim, goal);
  while (share->workers < goal && give_one(s, claim))
    ;
  share->left = share->workers;
  share->is_capped = share->workers < goal && is_capped(s, claim);
  if (share->workers > 0 && share->workers >= wants->least) {
    s->holders[s->n_holders++] = claim;
    return;
  }
  if (share->workers < goal && !share->is_capped)
    *limit = (struct limit){s->n_holders + 1, share->workers};
  give_back(s, claim);
}

/* The first in rank of those that would have the least for their weight with one more; NOBODY wants more. */
static int neediest(const struct sharing *s) {
  int found = NOBODY;
  double least = 0;
  for (int i = 0; i < s->n_holders; i++) {
    int at = s->holders[i];
    const struct share_claim *claim = &s->claims[at];
    uint32_t has = s->shares[at].workers;
    double level = (has + 1.0) / claim->weight;
    if (has >= claim->wanted || has >= claim->max || s->is_full[at] || is_capped(s, at) ||
        (found != NOBODY && level >= least))
      continue;
    found = at;
    least = level;
  }
  return found;
}

uint32_t share_count_suited(const struct share_supply *supply, int kind) {
  uint32_t count = 0;
  for (int p = 0; p < supply->n; p++)
    count += supply->pools[p].suits[kind] ? supply->pools[p].workers : 0;
  return count;
}

void share_workers(const struct share_claim *claims, int n, const struct share_supply *supply,
                   struct share *shares) {
  struct sharing s = {
      .claims = claims, .n = n, .pools = supply->pools, .n_pools = supply->n, .shares = shares};
  int needy;
  sharing_init(&s, supply);
  for (int i = 0; i < n; i++) {
    shares[s.ranks[i].claim] = (struct share){.rank = i};
    give_minimum(&s, s.ranks[i].claim);
  }
  for (int i = 0; i < n; i++)
    s.is_full[i] = false; /* what was given back is there again */
  while (s.all_left && (needy = neediest(&s)) != NOBODY)
    give_one(&s, needy);
  for (int i = 0; i < s.n_holders; i++) {
    int at = s.holders[i];
    while (shares[at].workers < claims[at].max && give_one(&s, at))
      ;
  }
  sharing_fini(&s);
}
