/* Runs claim workers, and are given their shares of them. */
#include "server/coordinator/core/claims.h"

#include "common/base/log.h"
#include "common/base/memory.h"
#include "server/coordinator/core/beside.h"
#include "server/coordinator/core/lending.h"
#include "server/coordinator/core/line.h"
#include "server/coordinator/core/settle.h"
#include "server/coordinator/messages/orders.h"
#include "server/coordinator/quotas/budget.h"
#include "server/coordinator/recovery/recovery.h"
#include "server/coordinator/runs/runs.h"
#include "server/coordinator/shares/companions.h"
#include "server/coordinator/shares/pools.h"
#include "server/coordinator/shares/share.h"
#include "server/coordinator/shares/shares.h"
#include "server/coordinator/state/candidates.h"
#include "server/coordinator/state/seat.h"
#include "server/coordinator/state/reissuing.h"
#include "server/coordinator/state/room.h"
#include "server/coordinator/state/speed.h"
#include "server/coordinator/state/state.h"

/* The runs that claim, in the order of submission, and the workers that there are to share. Of the step's
   arena. */
struct claims {
  struct run **runs;
  struct share_claim *list;
  struct share *shares;
  int n;
  struct member **workers;
  int n_workers;
  struct share_supply supply;
};

/* One that is at its hold has nothing for workers to do; nor has a fork whose base is to come. */
static bool is_claiming(const struct coordinator *coordinator, const struct run *run) {
  if (run->origin.is_to_come)
    return false;
  if (run->state != WEIR__RUN_STATE__RUNNING && coordinator_is_at_hold(run))
    return false;
  if (run->state == WEIR__RUN_STATE__QUEUED)
    return coordinator_has_server(coordinator, run) && coordinator_has_room(coordinator, run, NULL);
  return run->state == WEIR__RUN_STATE__LOADING || run->state == WEIR__RUN_STATE__RUNNING;
}

/* Of the run that has the worker as its own. NULL: the worker is free, or reserved for another. */
static struct seat *seat_in(const struct member *worker) {
  return worker->n_seats && !worker->reserved_for ? worker->seats[0] : NULL;
}

static void put_first(struct seat *seat) {
  struct member *worker = seat->worker;
  int at = 0;
  while (worker->seats[at] != seat)
    at++;
  worker->seats[at] = worker->seats[0];
  worker->seats[0] = seat;
}

/* What is of use comes before what is not. */
static void choose_owner(const struct coordinator *coordinator, const struct member *worker) {
  for (int i = 1; i < worker->n_seats && !lending_is_of_use(coordinator, worker->seats[0]); i++)
    if (lending_is_of_use(coordinator, worker->seats[i]))
      put_first(worker->seats[i]);
}

/* Free, or with a run that claims. */
static bool is_shared(const struct coordinator *coordinator, const struct member *member) {
  const struct seat *seat = seat_in(member);
  return member->role == WEIR__ROLE__WORKER && coordinator_is_usable(member) &&
         (!seat || lending_is_of_use(coordinator, seat));
}

/* Says what each run holds. */
static void find_workers(struct coordinator *coordinator, struct claims *claims) {
  for (int i = 0; i < coordinator->n_runs; i++)
    coordinator->runs[i]->claim = (struct claim){.is_made = is_claiming(coordinator, coordinator->runs[i])};
  for (int i = 0; i < coordinator->n_members; i++) {
    struct member *member = coordinator->members[i];
    member->reserved_for = NULL;
    member->n_beside = 0;
    choose_owner(coordinator, member);
    if (is_shared(coordinator, member))
      claims->workers[claims->n_workers++] = member;
    for (int at = 0; at < member->n_seats; at++) {
      struct seat *seat = member->seats[at];
      seat->is_lent = false;
      if (!lending_is_held(coordinator, seat))
        continue;
      seat->run->claim.held++;
      seat->run->claim.owned += at == 0;
      seat->run->claim.executors += seat->executors;
      seat->run->claim.all += member->executors;
    }
  }
  coordinator_find_strangers(coordinator, claims->workers, claims->n_workers);
}

static uint32_t count_suited(const struct claims *claims, const struct run *run, int kind) {
  uint32_t count = 0;
  if (run->n_refused == 0)
    return share_count_suited(&claims->supply, kind);
  for (int i = 0; i < claims->n_workers; i++)
    count += coordinator_suits(run, claims->workers[i]);
  return count;
}

static uint32_t times(uint32_t a, uint32_t b) {
  uint64_t product = (uint64_t)a * b;
  return product < UINT32_MAX ? (uint32_t)product : UINT32_MAX;
}

/* useful: how many workers suit the run. */
static struct share_claim claim_of(const struct coordinator *coordinator, const struct run *run,
                                   uint32_t useful) {
  const Weir__WorkersSpec *spec = run->spec->workers;
  bool is_begun = run->is_begun && run->state != WEIR__RUN_STATE__QUEUED;
  uint32_t team = coordinator_team_size(coordinator, run);
  uint32_t max = spec->has_max ? spec->max : UINT32_MAX;
  struct share_claim claim = {.priority = line_priority(run), .weight = spec->weight};
  team = team < max ? team : max;
  claim.min = spec->min > team ? spec->min : team;
  claim.least = is_begun ? team : claim.min;
  claim.min += claim.min == 1 && line_needs_another(run);
  claim.wanted = line_only_evaluates(run) ? claim.min : times(run->spec->train->microbatches, team);
  claim.max = max < useful ? max : useful;
  return claim;
}

/* With how many others a run that has begun takes turns: where one of its priority has workers and another
   has none. */
static uint32_t count_mates(const struct claims *claims, int32_t priority) {
  uint32_t with = 0, without = 0;
  for (int i = 0; i < claims->n; i++)
    if (claims->runs[i]->state != WEIR__RUN_STATE__QUEUED && claims->list[i].priority == priority) {
      with += claims->runs[i]->claim.share > 0;
      without += claims->runs[i]->claim.share == 0;
    }
  return with > 0 && without > 0 ? with + without - 1 : 0;
}

static void count_all_mates(const struct claims *claims) {
  uint32_t mates = 0;
  for (int i = 0; i < claims->n; i++) {
    if (i == 0 || claims->list[i].priority != claims->list[i - 1].priority)
      mates = count_mates(claims, claims->list[i].priority);
    claims->runs[i]->claim.mates = mates;
  }
}

static void take_shares(const struct claims *claims) {
  for (int i = 0; i < claims->n; i++) {
    struct claim *claim = &claims->runs[i]->claim;
    claim->share = claim->whole = claims->shares[i].workers;
    claim->left = claims->shares[i].left;
    claim->is_capped = claims->shares[i].is_capped;
    claim->least = claims->list[i].least;
  }
}

static void budgets_supply(struct share_supply *supply, const struct budgets *budgets, struct arena *arena) {
  uint64_t *limits = arena_new(arena, (size_t)budgets->n * sizeof *limits + 1);
  for (int i = 0; i < budgets->n; i++)
    limits[i] = budgets->list[i].limit;
  supply->budgets = limits;
  supply->n_budgets = budgets->n;
}

static struct claims weigh(struct coordinator *coordinator) {
  struct arena *arena = &coordinator->actions->arena;
  size_t most = (size_t)coordinator->n_runs;
  struct claims claims = {.runs = arena_new(arena, most * sizeof *claims.runs),
                          .list = arena_new(arena, most * sizeof *claims.list),
                          .shares = arena_new(arena, most * sizeof *claims.shares),
                          .workers =
                              arena_new(arena, (size_t)coordinator->n_members * sizeof *claims.workers)};
  int *kinds = arena_new(arena, most * sizeof *kinds);
  struct line line = {0};
  struct budgets budgets = budgets_of(coordinator, arena);
  find_workers(coordinator, &claims);
  line_count_turns(coordinator);
  for (int i = 0; i < coordinator->n_runs; i++)
    if (coordinator->runs[i]->claim.is_made)
      claims.runs[claims.n++] = coordinator->runs[i];
  claims.supply = pools_of(&(struct pooled){.coordinator = coordinator,
                                            .are_counted = budgets.n > 0,
                                            .workers = claims.workers,
                                            .n_workers = claims.n_workers,
                                            .runs = claims.runs,
                                            .n_runs = claims.n},
                           kinds, arena);
  budgets_supply(&claims.supply, &budgets, arena);
  for (int i = 0; i < claims.n; i++) {
    struct run *run = claims.runs[i];
    if (!line.is_known || line.priority != line_priority(run))
      line = line_of(coordinator, line_priority(run));
    claims.list[i] = claim_of(coordinator, run, count_suited(&claims, run, kinds[i]));
    claims.list[i].place = line_place(run, &line, (uint32_t)claims.n_workers);
    claims.list[i].kind = kinds[i];
    claims.list[i].budget = budgets_find(&budgets, run->tenant);
    claims.list[i].takes_whole = run->spec->workers->stages > 1;
  }
  share_workers(claims.list, claims.n, &claims.supply, claims.shares);
  take_shares(&claims);
  return claims;
}

static bool is_wanting(const struct claims *claims, const struct run *but) {
  for (int i = 0; i < claims->n; i++)
    if (claims->runs[i] != but && claims->runs[i]->claim.owned < claims->runs[i]->claim.whole)
      return true;
  return false;
}

/* Too few for its first start, because some were lost or others come first: those take what it has, or runs
   might wait for each other for ever. A fork without workers has only memory, which is taken where it is
   needed (coordinator_may_spill). */
static void yield_workers(struct coordinator *coordinator, const struct claims *claims, struct run *run) {
  bool has_least = run->claim.owned == 0 && run->claim.held >= run->claim.least;
  if (run->state != WEIR__RUN_STATE__LOADING || run->is_begun || run->claim.whole > 0 || has_least ||
      run->is_adopting || coordinator_may_spill(run) || !coordinator_has_server(coordinator, run) ||
      !is_wanting(claims, run))
    return;
  coordinator_new_incarnation(coordinator, run, run->base_step); /* servers may have been told of this one */
  coordinator_run_set_state(coordinator, run, WEIR__RUN_STATE__QUEUED);
  run->claim.held = run->claim.owned = 0;
}

/* Of those that the fewest others require one that has the run loaded, or else as few others as may be. */
static bool is_freer(const struct run *run, const struct member *worker, const struct member *than) {
  bool a = loaded_has(&worker->loaded, run), b = loaded_has(&than->loaded, run);
  if (worker->sought != than->sought)
    return worker->sought < than->sought;
  return a != b ? a : !a && worker->loaded.n < than->loaded.n;
}

/* The first of the best free ones that the run may be given; NULL: there is none. */
static struct member *find_free(const struct coordinator *coordinator, const struct run *run) {
  struct member *found = NULL;
  for (int i = 0; i < coordinator->n_members; i++) {
    struct member *member = coordinator->members[i];
    if (coordinator_may_serve(run, member) && (!found || is_freer(run, member, found)))
      found = member;
  }
  return found;
}

/* One that no run has, nor is about to have, whichever may be given it. */
static bool is_any_free(const struct coordinator *coordinator) {
  for (int i = 0; i < coordinator->n_members; i++) {
    const struct member *member = coordinator->members[i];
    if (member->n_seats == 0 && !member->reserved_for && member->role == WEIR__ROLE__WORKER &&
        coordinator_is_usable(member))
      return true;
  }
  return false;
}

/* How gladly its run lets the worker go. */
static int looseness(const struct seat *seat) {
  if (seat->state == SEAT_LOADING)
    return 3;
  if (!lending_has_work(seat))
    return 2;
  return !coordinator_is_staged(seat);
}

/* One that has the run loaded comes before all that do not. */
static bool is_looser(const struct run *run, const struct seat *seat, const struct seat *than) {
  const struct member *worker = seat->worker, *other = than->worker;
  int a = looseness(seat), b = looseness(than);
  if (loaded_has(&worker->loaded, run) != loaded_has(&other->loaded, run))
    return loaded_has(&worker->loaded, run);
  return a > b || (a == b && worker->sought < other->sought);
}

/* Whether there is another worker for it: a free one, or one of a run that has more than its share or for
   which there is another. */
static bool is_replaceable(struct coordinator *coordinator, struct run *run) {
  if (find_free(coordinator, run))
    return true;
  run->claim.is_asked = true;
  for (int i = 0; i < coordinator->n_members; i++) {
    const struct member *member = coordinator->members[i];
    const struct seat *seat = seat_in(member);
    struct run *lender = seat ? seat->run : NULL;
    if (seat && lending_is_held(coordinator, seat) && lender->claim.is_made && !lender->claim.is_asked &&
        coordinator_suits(run, member) && (!lending_has_work(seat) || lending_may_be_cut(lender)) &&
        (lender->claim.owned > lender->claim.whole || is_replaceable(coordinator, lender)))
      return true;
  }
  return false;
}

/* The run has no more than its share. For a worker that others require there may be another kind of worker.
   has_free: some worker is. */
static bool can_do_without(struct coordinator *coordinator, const struct seat *seat, bool has_free) {
  if (!seat->worker->sought)
    return has_free && find_free(coordinator, seat->run) != NULL;
  for (int i = 0; i < coordinator->n_runs; i++)
    coordinator->runs[i]->claim.is_asked = false;
  return is_replaceable(coordinator, seat->run);
}

/* All that the worker computes ends where the run is to have it. */
static bool is_taken_whole(const struct run *run, const struct member *worker) {
  return beside_room(worker) < 2 || run->spec->workers->stages > 1 || loaded_has(&worker->crowded, run) ||
         worker->seats[0]->run->spec->workers->stages > 1 || coordinator_is_bound(worker->seats[0]);
}

static bool may_take_whole(const struct coordinator *coordinator, const struct member *worker,
                           const struct run *run) {
  for (int i = 1; i < worker->n_seats && is_taken_whole(run, worker); i++)
    if (worker->seats[i]->run != run && !lending_may_take(coordinator, worker->seats[i], run))
      return false;
  return true;
}

/* A worker that another run has beyond its share, or for which there is another that it may be given. */
static struct seat *find_lent(struct coordinator *coordinator, const struct run *run) {
  struct seat *found = NULL;
  bool has_free = is_any_free(coordinator);
  for (int i = 0; i < coordinator->n_members; i++) {
    struct seat *seat = seat_in(coordinator->members[i]);
    const struct run *lender = seat ? seat->run : NULL;
    if (!seat || !lending_is_held(coordinator, seat) || lender == run || !lender->claim.is_made ||
        !coordinator_suits(run, seat->worker))
      continue;
    if (!lending_may_take(coordinator, seat, run) || !may_take_whole(coordinator, seat->worker, run) ||
        (found && !is_looser(run, seat, found)) ||
        (lender->claim.owned <= lender->claim.whole && !can_do_without(coordinator, seat, has_free)))
      continue;
    found = seat;
  }
  return found;
}

/* Another run that lacks workers. */
static bool is_missed(const struct member *worker) {
  for (int i = 0; i < worker->loaded.n; i++) {
    const struct claim *claim = &worker->loaded.runs[i]->claim;
    if (claim->is_made && claim->held < claim->share)
      return true;
  }
  return false;
}

/* How gladly its run gives up the worker to nobody in particular: another one may have it loaded. */
static int spareness(const struct seat *seat) {
  return looseness(seat) + 10 * is_missed(seat->worker);
}

static struct seat *find_loosest(const struct coordinator *coordinator, const struct run *run) {
  struct seat *found = NULL;
  for (int i = 0; i < run->n_seats; i++) {
    struct seat *seat = run->seats[i];
    if (lending_is_held(coordinator, seat) && seat == seat->worker->seats[0] &&
        (!found || spareness(seat) > spareness(found)))
      found = seat;
  }
  return found;
}

static struct seat *find_unsuited(const struct coordinator *coordinator, const struct run *run) {
  for (int i = 0; i < run->n_seats; i++)
    if (lending_is_held(coordinator, run->seats[i]) && !coordinator_has_labels(run, run->seats[i]->worker))
      return run->seats[i];
  return NULL;
}

/* The run may have fewer than it was given, or others. */
static void let_go(struct coordinator *coordinator, struct run *run) {
  const Weir__WorkersSpec *spec = run->spec->workers;
  struct seat *unsuited;
  while (spec->n_require && run->claim.held && lending_may_be_cut(run) &&
         (unsuited = find_unsuited(coordinator, run)))
    lending_take_back(coordinator, unsuited, "workers.require asks for others");
  while (spec->has_max && run->claim.owned > spec->max && lending_may_be_cut(run)) {
    struct seat *seat = find_loosest(coordinator, run);
    if (!seat)
      return;
    lending_take_back(coordinator, seat, "more than workers.max");
  }
}

/* The run computes on the worker already: it is only to be its own from now on. */
static void own(struct seat *seat) {
  struct seat *former = seat->worker->seats[0];
  former->run->claim.owned--;
  seat->run->claim.owned++;
  put_first(seat);
}

/* A seat of the run on a worker that another one has beyond its share. */
static struct seat *find_own(const struct coordinator *coordinator, const struct run *run) {
  for (int i = 0; i < run->n_seats; i++) {
    struct seat *seat = run->seats[i];
    const struct claim *owner = &seat->worker->seats[0]->run->claim;
    if (seat != seat->worker->seats[0] && lending_is_of_use(coordinator, seat) &&
        !seat->worker->reserved_for && owner->owned > owner->whole)
      return seat;
  }
  return NULL;
}

/* The run that has had the worker as its own may keep a seat beside (beside.c). */
static void lend(struct coordinator *coordinator, struct seat *lent, const struct run *run) {
  struct member *worker = lent->worker;
  const char *reason = "it goes to another run";
  if (!is_taken_whole(run, worker)) {
    lent->is_lent = true;
    lent->run->claim.owned--;
    return;
  }
  while (worker->n_seats > 0)
    lending_take_back(coordinator, worker->seats[worker->n_seats - 1], reason);
}

static void reserve_workers(struct coordinator *coordinator, struct run *run) {
  struct claim *claim = &run->claim;
  while (claim->owned + claim->granted < claim->whole) {
    struct seat *seat = find_own(coordinator, run), *lent = NULL;
    struct member *worker = seat ? NULL : find_free(coordinator, run);
    if (!seat && !worker)
      lent = find_lent(coordinator, run);
    if (!seat && lent)
      seat = coordinator_seat_of(lent->worker, run);
    if (!seat && !worker && !lent)
      return;
    if (seat) {
      own(seat);
      continue;
    }
    if (lent) {
      worker = lent->worker;
      lend(coordinator, lent, run);
    }
    worker->reserved_for = run;
    claim->reserved++;
    claim->granted++;
  }
}

/* Who has a share; and whether all have what they are to have, or claims are to be weighed again. */
static void note_served(struct coordinator *coordinator, const struct claims *claims) {
  struct weighed *weighed = &coordinator->weighed;
  coordinator->is_weigh_due = false;
  weighed->n_served = 0;
  for (int i = 0; i < claims->n; i++) {
    const struct claim *claim = &claims->runs[i]->claim;
    coordinator->is_weigh_due |=
        claim->reserved || claim->owned != claim->whole || claim->held != claim->share;
    if (claim->share == 0)
      continue;
    array_reserve((void **)&weighed->served, &weighed->served_capacity, weighed->n_served,
                  sizeof *weighed->served);
    weighed->served[weighed->n_served++] = claims->runs[i];
  }
}

void coordinator_weigh_claims(struct coordinator *coordinator) {
  struct claims claims = weigh(coordinator);
  struct run **by_rank = arena_new(&coordinator->actions->arena, (size_t)claims.n * sizeof *by_rank);
  for (int i = 0; i < claims.n; i++)
    by_rank[claims.shares[i].rank] = claims.runs[i];
  for (int i = claims.n - 1; i >= 0; i--)
    yield_workers(coordinator, &claims, by_rank[i]);
  for (int i = 0; i < claims.n; i++)
    let_go(coordinator, by_rank[i]);
  for (int i = 0; i < claims.n; i++)
    reserve_workers(coordinator, by_rank[i]);
  seat_beside(coordinator, &(struct beside){claims.workers, claims.n_workers, by_rank, claims.n});
  count_all_mates(&claims);
  note_served(coordinator, &claims);
}

void coordinator_take_workers(struct coordinator *coordinator, struct run *run) {
  const struct claim *claim = &run->claim;
  if (!claim->reserved || (run->state == WEIR__RUN_STATE__QUEUED && claim->reserved < claim->least))
    return;
  if (run->state == WEIR__RUN_STATE__QUEUED && !coordinator_has_room(coordinator, run, NULL))
    return; /* another one has begun meanwhile */
  if (claim->held == 0)
    turn_begin(&run->turn, coordinator->now_ms);
  if (run->state == WEIR__RUN_STATE__QUEUED)
    line_leave_queue(coordinator, run);
  for (int i = 0; i < coordinator->n_members; i++) {
    struct member *member = coordinator->members[i];
    if (member->reserved_for == run)
      put_first(coordinator_join_run(coordinator, member, run, (struct range){0, 0}));
    for (int at = 0; at < member->n_beside; at++)
      if (member->beside[at] == run)
        coordinator_join_run(coordinator, member, run, (struct range){0, 0});
  }
}
