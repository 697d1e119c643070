/* Runs for which there are too few workers get seats beside other runs. First it is found which runs are to
   have seats on which workers, then seats end and are reserved. */
#include "server/coordinator/core/beside.h"

#include <string.h>

#include "common/base/memory.h"
#include "server/coordinator/core/lending.h"
#include "server/coordinator/core/line.h"
#include "server/coordinator/quotas/budget.h"
#include "server/coordinator/quotas/quota.h"
#include "server/coordinator/shares/companions.h"
#include "server/coordinator/shares/deal.h"
#include "server/coordinator/state/candidates.h"
#include "server/coordinator/state/state.h"

enum { DEAL_MS = 2000 };

/* A worker, and the runs that are to have seats on it: first the one that has it as its own. */
struct bench {
  struct member *worker;
  struct run *runs[SEATS_MAX];
  struct deal_seat seats[SEATS_MAX];
  int n;
  bool is_shut; /* the first one's alone */
};

struct benches {
  struct bench *list;
  int n;
  int n_open;      /* on which one more might have a seat */
  bool is_in_vain; /* a run that may have any worker has found none: nor will those of lower rank */
};

static bool has_stages(const struct run *run) {
  return run->spec->workers->stages > 1;
}

uint32_t beside_room(const struct member *worker) {
  if (strncmp(worker->device, "cuda", 4) == 0)
    return 1;
  return worker->executors < SEATS_MAX ? worker->executors : SEATS_MAX;
}

bool beside_may_join(const struct run *run, const struct member *worker) {
  if (worker->n_seats == 0)
    return true;
  return (uint32_t)worker->n_seats < beside_room(worker) && !has_stages(run) &&
         !has_stages(worker->seats[0]->run) && !loaded_has(&worker->crowded, run);
}

/* Its microbatches are spread over its workers, by their executors. */
struct deal_seat beside_demand(const struct run *run, const struct member *worker) {
  struct deal_seat seat = {
      .priority = line_priority(run), .weight = run->spec->workers->weight, .useful = UINT32_MAX};
  const struct seat *own = coordinator_seat_of(worker, run);
  uint64_t microbatches = run->spec->train->microbatches, all = run->claim.all;
  if (line_only_evaluates(run) || has_stages(run))
    return seat;
  all += own && all >= worker->executors ? 0 : worker->executors;
  seat.useful = (uint32_t)((microbatches * worker->executors + all - 1) / all);
  return seat;
}

static uint32_t room_of(const struct bench *bench) {
  return bench->is_shut ? 1 : beside_room(bench->worker);
}

static bool is_open(const struct bench *bench) {
  return (uint32_t)bench->n < room_of(bench);
}

static bool is_placed(const struct bench *bench, const struct run *run) {
  for (int i = 0; i < bench->n; i++)
    if (bench->runs[i] == run)
      return true;
  return false;
}

static void place(struct benches *benches, struct bench *bench, struct run *run) {
  benches->n_open -= is_open(bench);
  bench->runs[bench->n] = run;
  bench->seats[bench->n++] = beside_demand(run, bench->worker);
  benches->n_open += is_open(bench);
}

static bool fits(const struct bench *bench, const struct run *run) {
  const struct member *worker = bench->worker;
  if (!is_open(bench) || is_placed(bench, run) || !coordinator_suits(run, worker))
    return false;
  for (int i = 0; i < bench->n; i++)
    if (loaded_has(&worker->crowded, bench->runs[i]) || loaded_has(&worker->crowded, run))
      return false;
  return deal_left(bench->seats, bench->n, worker->executors, line_priority(run)) > 0;
}

/* Executors that nobody has use for. */
static uint64_t count_idle(const struct bench *bench) {
  uint64_t useful = 0;
  for (int i = 0; i < bench->n; i++)
    useful += bench->seats[i].useful;
  return useful < bench->worker->executors ? bench->worker->executors - useful : 0;
}

/* Whether a new seat had better be there. */
static bool is_better(const struct run *run, const struct bench *bench, const struct bench *than) {
  if (bench->n != than->n)
    return bench->n < than->n;
  if (count_idle(bench) != count_idle(than))
    return count_idle(bench) > count_idle(than);
  return loaded_has(&bench->worker->loaded, run) && !loaded_has(&than->worker->loaded, run);
}

static struct bench *find_bench(const struct benches *benches, const struct run *run) {
  struct bench *found = NULL;
  for (int i = 0; i < benches->n; i++)
    if (fits(&benches->list[i], run) && (!found || is_better(run, &benches->list[i], found)))
      found = &benches->list[i];
  return found;
}

static bool are_enough(const struct benches *benches, const struct run *run, uint32_t needed) {
  uint32_t count = 0;
  for (int i = 0; i < benches->n && count < needed; i++)
    count += fits(&benches->list[i], run);
  return count >= needed;
}

/* NULL: the worker is not shared. */
static struct bench *bench_of(const struct benches *benches, const struct member *worker) {
  for (int i = 0; i < benches->n; i++)
    if (benches->list[i].worker == worker)
      return &benches->list[i];
  return NULL;
}

/* Whether the quota of the run's tenant has an executor for each seat: what they have beyond that is dealt.
 */
static bool is_within_quota(const struct coordinator *coordinator, const struct benches *benches,
                            const struct run *run, uint32_t needed) {
  uint64_t limit = quota_limit(coordinator->options.quotas, run->tenant, QUOTA_EXECUTORS), seats = needed;
  if (limit == QUOTA_NONE)
    return true;
  for (int i = 0; i < benches->n; i++)
    for (int at = 0; at < benches->list[i].n; at++)
      seats += strcmp(benches->list[i].runs[at]->tenant, run->tenant) == 0;
  return seats <= limit;
}

static void find_places(const struct coordinator *coordinator, struct benches *benches, struct run *run) {
  uint32_t needed = run->claim.least, placed = 0;
  if (!is_within_quota(coordinator, benches, run, needed))
    return;
  for (int i = 0; i < run->n_seats && placed < needed; i++) {
    struct bench *bench = bench_of(benches, run->seats[i]->worker);
    if (!bench || !lending_is_of_use(coordinator, run->seats[i]) || !fits(bench, run))
      continue;
    place(benches, bench, run);
    placed++;
  }
  if (placed < needed && benches->n_open > 0 && !benches->is_in_vain) {
    if (are_enough(benches, run, needed - placed))
      for (; placed < needed; placed++)
        place(benches, find_bench(benches, run), run);
    else
      benches->is_in_vain = needed == 1 && run->n_refused == 0 && !coordinator_is_choosy(coordinator, run);
  }
  if (placed > run->claim.share)
    run->claim.share = placed;
}

static bool is_left_over(const struct run *run) {
  return run->claim.owned + run->claim.granted == 0 && !has_stages(run);
}

static struct benches benches_of(struct coordinator *coordinator, const struct beside *beside) {
  struct benches benches = {.n = beside->n_workers};
  benches.list = arena_new(&coordinator->actions->arena, (size_t)benches.n * sizeof *benches.list);
  for (int i = 0; i < benches.n; i++) {
    struct member *worker = beside->workers[i];
    struct bench *bench = &benches.list[i];
    struct seat *first = worker->n_seats && !worker->reserved_for ? worker->seats[0] : NULL;
    struct run *owner = first ? first->run : worker->reserved_for;
    bench->worker = worker;
    benches.n_open++;
    if (!owner)
      continue;
    place(&benches, bench, owner);
    benches.n_open -= is_open(bench);
    bench->is_shut = has_stages(owner) || (first && coordinator_is_bound(first));
    benches.n_open += is_open(bench);
  }
  return benches;
}

static bool is_ready_elsewhere(const struct seat *seat) {
  const struct run *run = seat->run;
  for (int i = 0; i < run->n_seats; i++)
    if (run->seats[i] != seat && run->seats[i]->state == SEAT_READY)
      return true;
  return false;
}

/* So many more are to compute on it. */
static int count_new(const struct bench *bench) {
  int count = 0;
  for (int i = 0; i < bench->n; i++)
    count += !coordinator_seat_of(bench->worker, bench->runs[i]);
  return count;
}

/* Whether the seat, which its run is not to have, ends now. A run that has got a worker of its own computes
   here until it is ready there. */
static bool may_end(const struct coordinator *coordinator, const struct bench *bench,
                    const struct seat *seat) {
  const struct run *run = seat->run;
  bool is_needed = bench->worker->n_seats + count_new(bench) > (int)beside_room(bench->worker);
  if (seat->is_lent)
    return true;
  if (is_left_over(run))
    return lending_may_take(coordinator, seat, bench->runs[bench->n - 1]);
  return (is_needed || is_ready_elsewhere(seat)) &&
         (!lending_has_work(seat) || lending_may_be_cut(seat->run));
}

static void end_seats(struct coordinator *coordinator, const struct bench *bench) {
  struct member *worker = bench->worker;
  for (int i = worker->n_seats - 1; i >= 0; i--) {
    struct seat *seat = worker->seats[i];
    if (is_placed(bench, seat->run) || !lending_is_held(coordinator, seat) ||
        !may_end(coordinator, bench, seat))
      continue;
    lending_take_back(coordinator, seat,
                      is_left_over(seat->run) ? "it goes to another run" : "it has a worker of its own");
  }
}

/* Where seats that are to end have not ended yet, others wait. */
static void reserve_seats(const struct bench *bench) {
  struct member *worker = bench->worker;
  int room = (int)beside_room(worker) - worker->n_seats;
  if (worker->reserved_for && room <= 0) {
    worker->reserved_for->claim.reserved--;
    worker->reserved_for->claim.granted--;
    worker->reserved_for = NULL;
  }
  room -= worker->reserved_for != NULL;
  for (int i = 0; i < bench->n && room > 0; i++) {
    struct run *run = bench->runs[i];
    if (run == worker->reserved_for || coordinator_seat_of(worker, run))
      continue;
    room--;
    run->claim.reserved++;
    worker->beside[worker->n_beside++] = run;
  }
}

void seat_beside(struct coordinator *coordinator, const struct beside *beside) {
  struct benches benches = benches_of(coordinator, beside);
  for (int i = 0; i < beside->n_runs; i++)
    if (is_left_over(beside->runs[i]))
      find_places(coordinator, &benches, beside->runs[i]);
  for (int i = 0; i < benches.n; i++) {
    end_seats(coordinator, &benches.list[i]);
    reserve_seats(&benches.list[i]);
  }
}

static void set_executors(const struct budgets *budgets, struct seat *seat, uint32_t executors) {
  struct run *run = seat->run;
  if (seat->executors == executors)
    return;
  budget_spend(budgets, seat, executors);
  seat->executors = executors;
  run->is_info_due = true;
  if (seat->state == SEAT_READY)
    run->is_view_due = run->are_shares_due = true;
}

static uint32_t least_of(uint32_t executors, uint32_t most) {
  return most && most < executors ? most : executors;
}

/* Those that load have no use for any yet. */
static void deal(const struct coordinator *coordinator, const struct budgets *budgets,
                 struct member *worker) {
  struct seat *seats[SEATS_MAX];
  struct deal_seat demands[SEATS_MAX];
  uint32_t dealt[SEATS_MAX];
  int n = 0;
  if (worker->n_seats == 1) {
    set_executors(budgets, worker->seats[0],
                  least_of(worker->executors, budget_of_seat(budgets, worker->seats[0])));
    return;
  }
  for (int i = 0; i < worker->n_seats; i++) {
    struct seat *seat = worker->seats[i];
    if (seat->state == SEAT_LOADING || seat->state == SEAT_LEAVING)
      continue;
    demands[n] = beside_demand(seat->run, worker);
    demands[n].most = budget_of_seat(budgets, seat);
    seats[n++] = seat;
  }
  if (n == 0 || (!worker->is_deal_due && coordinator->now_ms - worker->dealt_ms < DEAL_MS))
    return;
  deal_executors(demands, n, worker->executors, dealt);
  for (int grows = 0; grows < 2; grows++) /* what some give up, others of the tenant may have */
    for (int i = 0; i < n; i++) {
      uint32_t executors = least_of(dealt[i], budget_of_seat(budgets, seats[i]));
      if ((dealt[i] > seats[i]->executors) != grows || seats[i]->executors == executors)
        continue;
      worker->dealt_ms = coordinator->now_ms;
      set_executors(budgets, seats[i], executors);
    }
  worker->is_deal_due = false;
}

void coordinator_deal_executors(struct coordinator *coordinator) {
  struct budgets budgets = budgets_of(coordinator, &coordinator->actions->arena);
  for (int i = 0; i < coordinator->n_members; i++)
    if (coordinator->members[i]->n_seats > 0)
      deal(coordinator, &budgets, coordinator->members[i]);
}
