/* Plans of exchanges. */
#include "server/parameters/run/exchange_plan.h"

#include <stdlib.h>

/* A range of a tensor's sums that blocks want, and where it begins in the phase's vector. */
struct interval {
  uint64_t tensor, begin, end, place;
};

struct planner {
  const struct optimizer_def *optimizer;
  uint32_t phase; /* of the optimizer */
  struct interval *intervals;
  int n_intervals, capacity;
};

static void plan_norm(struct exchange_plan *plan);
static void plan_phase(struct exchange_plan *plan, const struct model *model,
                       const struct optimizer_def *optimizer, uint32_t number);

void exchange_plan_init(struct exchange_plan *plan, const struct model *model,
                        const struct optimizer_def *optimizer, bool has_norm) {
  *plan = (struct exchange_plan){.n_blocks = model->n_param_blocks, .has_norm = has_norm};
  CHECK(optimizer->n_phases <= OPTIMIZER_PHASES_MAX);
  if (has_norm)
    plan_norm(plan);
  for (uint32_t phase = 0; phase < optimizer->n_phases; phase++)
    plan_phase(plan, model, optimizer, phase);
}

void exchange_plan_fini(struct exchange_plan *plan) {
  arena_fini(&plan->arena);
}

uint32_t exchange_plan_values(const struct exchange_plan *plan, uint32_t block) {
  const struct exchange_share *last;
  if (plan->n_phases == 0)
    return 0;
  last = &plan->phases[plan->n_phases - 1].shares[block];
  return last->begin + last->n_values;
}

static struct exchange_phase *plan_add_phase(struct exchange_plan *plan) {
  struct exchange_phase *phase = &plan->phases[plan->n_phases];
  phase->shares = arena_new(&plan->arena, plan->n_blocks * sizeof *phase->shares);
  for (uint32_t b = 0; plan->n_phases > 0 && b < plan->n_blocks; b++)
    phase->shares[b].begin = phase[-1].shares[b].begin + phase[-1].shares[b].n_values;
  plan->n_phases++;
  return phase;
}

/* One value, of all blocks. */
static void plan_norm(struct exchange_plan *plan) {
  struct exchange_phase *phase = plan_add_phase(plan);
  struct exchange_window *all = arena_new(&plan->arena, sizeof *all);
  all->count = 1;
  for (uint32_t b = 0; b < plan->n_blocks; b++)
    phase->shares[b] =
        (struct exchange_share){.n_values = 1, .is_shared = true, .windows = all, .n_windows = 1};
  phase->n_contributors = plan->n_blocks;
  phase->n_totals = 1;
}

/* A piece's windows; their places are filled in once all are known. */
static void planner_add_piece(struct planner *planner, struct exchange_plan *plan, const struct piece *piece,
                              struct exchange_share *share) {
  struct optimizer_window windows[OPTIMIZER_WINDOWS_MAX];
  uint32_t n = planner->optimizer->windows(planner->phase, piece, windows);
  CHECK(n <= OPTIMIZER_WINDOWS_MAX);
  if (!piece_is_whole(piece)) {
    share->is_shared = n > 0; /* the block's only piece */
    share->n_windows = n;
    share->windows = arena_new(&plan->arena, n * sizeof *share->windows);
  }
  for (uint32_t w = 0; w < n; w++) {
    if (share->is_shared) {
      share->windows[w] = (struct exchange_window){share->n_values, windows[w].count, windows[w].begin};
      array_reserve((void **)&planner->intervals, &planner->capacity, planner->n_intervals,
                    sizeof *planner->intervals);
      planner->intervals[planner->n_intervals++] = (struct interval){
          .tensor = piece->tensor, .begin = windows[w].begin, .end = windows[w].begin + windows[w].count};
    }
    share->n_values += windows[w].count;
  }
}

static int number_compare(uint64_t a, uint64_t b) {
  return (a > b) - (a < b);
}

static int interval_compare(const void *left, const void *right) {
  const struct interval *a = left, *b = right;
  return a->tensor != b->tensor ? number_compare(a->tensor, b->tensor) : number_compare(a->begin, b->begin);
}

/* Sorted, disjoint, one behind the other in the vector. Its length is returned. */
static uint64_t planner_merge(struct planner *planner) {
  struct interval *list = planner->intervals;
  uint64_t length = 0;
  int kept = 0;
  if (planner->n_intervals > 0)
    qsort(list, (size_t)planner->n_intervals, sizeof *list, interval_compare);
  for (int i = 0; i < planner->n_intervals; i++) {
    struct interval *last = &list[kept - 1];
    if (kept > 0 && last->tensor == list[i].tensor && list[i].begin <= last->end)
      last->end = list[i].end > last->end ? list[i].end : last->end;
    else
      list[kept++] = list[i];
  }
  for (int i = 0; i < kept; i++) {
    list[i].place = length;
    length += list[i].end - list[i].begin;
  }
  planner->n_intervals = kept;
  return length;
}

/* The place of a tensor's value in the vector. */
static uint64_t planner_place(const struct planner *planner, uint64_t tensor, uint64_t value) {
  int low = 0, high = planner->n_intervals - 1;
  struct interval wanted = {.tensor = tensor, .begin = value};
  while (low < high) {
    int middle = low + (high - low + 1) / 2;
    if (interval_compare(&planner->intervals[middle], &wanted) <= 0)
      low = middle;
    else
      high = middle - 1;
  }
  return planner->intervals[low].place + (value - planner->intervals[low].begin);
}

static void plan_phase(struct exchange_plan *plan, const struct model *model,
                       const struct optimizer_def *optimizer, uint32_t number) {
  struct exchange_phase *phase = plan_add_phase(plan);
  struct planner planner = {.optimizer = optimizer, .phase = number};
  struct arena scratch = {0};
  uint32_t *tensors = arena_new(&scratch, plan->n_blocks * sizeof *tensors);
  for (uint32_t b = 0; b < plan->n_blocks; b++) {
    uint32_t n;
    struct piece *pieces = pieces_of(model, &model->blocks[b], &scratch, &n);
    for (uint32_t p = 0; p < n; p++)
      planner_add_piece(&planner, plan, &pieces[p], &phase->shares[b]);
    CHECK(n == 1 || !phase->shares[b].is_shared);
    phase->n_contributors += phase->shares[b].is_shared;
    tensors[b] = pieces[0].tensor;
  }
  phase->n_totals = planner_merge(&planner);
  for (uint32_t b = 0; b < plan->n_blocks; b++)
    for (uint32_t w = 0; w < phase->shares[b].n_windows; w++) {
      struct exchange_window *window = &phase->shares[b].windows[w];
      window->place = planner_place(&planner, tensors[b], window->place);
    }
  free(planner.intervals);
  arena_fini(&scratch);
}
