/* What a searcher makes of the trials before its own. */
#include "common/sweep/history.h"

#include <math.h>
#include <stdlib.h>

/* Of models, so that no sum or square of values overflows. */
static const double VALUE_MOST = 1e100;

bool history_failed(const struct sweep_observation *observation) {
  return observation->state == SWEEP_FAILED ||
         (observation->state == SWEEP_DONE && observation->n_results == 0);
}

static int ranked_compare(const void *a, const void *b, void *observations) {
  int i = *(const int *)a, j = *(const int *)b;
  const struct sweep_observation *x = (const struct sweep_observation *)observations + i;
  const struct sweep_observation *y = (const struct sweep_observation *)observations + j;
  if (history_failed(x) != history_failed(y))
    return history_failed(x) ? 1 : -1;
  if (!history_failed(x)) {
    const struct sweep_result *of_x = &x->results[x->n_results - 1], *of_y = &y->results[y->n_results - 1];
    if (of_x->steps != of_y->steps)
      return of_x->steps > of_y->steps ? -1 : 1;
    if (of_x->value != of_y->value)
      return of_x->value < of_y->value ? -1 : 1;
  }
  return i < j ? -1 : i > j;
}

struct history history_rank(const struct search *search, struct arena *arena) {
  size_t size = ((size_t)search->n_observations + 1) * sizeof(int);
  struct history history = {.ranked = arena_new(arena, size), .pending = arena_new(arena, size)};
  for (int i = 0; i < search->n_observations; i++) {
    const struct sweep_observation *observation = &search->observations[i];
    history.n_failed += history_failed(observation);
    if (observation->n_results || history_failed(observation))
      history.ranked[history.n_ranked++] = i;
    else
      history.pending[history.n_pending++] = i;
  }
  qsort_r(history.ranked, (size_t)history.n_ranked, sizeof(int), ranked_compare,
          (void *)search->observations);
  return history;
}

static const struct sweep_result *result_at(const struct sweep_observation *observation, uint64_t steps) {
  for (int i = 0; i < observation->n_results; i++)
    if (observation->results[i].steps == steps)
      return &observation->results[i];
  return NULL;
}

const struct sweep_result *history_result(const struct sweep_observation *observation, uint64_t steps) {
  return history_failed(observation) ? NULL : result_at(observation, steps);
}

static int count_at(const struct search *search, uint64_t steps) {
  int n = 0;
  for (int i = 0; i < search->n_observations; i++)
    n += history_result(&search->observations[i], steps) != NULL;
  return n;
}

bool history_model_rung(const struct search *search, int least, uint64_t *steps) {
  bool is_found = false;
  for (int i = 0; i < search->n_observations; i++) {
    const struct sweep_observation *one = &search->observations[i];
    for (int r = one->n_results - 1; r >= 0; r--) {
      uint64_t at = one->results[r].steps;
      if ((is_found && at <= *steps) || (search->first_rung && at <= search->first_rung))
        break;
      if (count_at(search, at) < least)
        continue;
      *steps = at;
      is_found = true;
    }
  }
  return is_found;
}

struct order {
  const struct sweep_observation *observations;
  uint64_t steps;
};

static int order_compare(const void *a, const void *b, void *user) {
  const struct order *order = user;
  int i = *(const int *)a, j = *(const int *)b;
  double x = result_at(&order->observations[i], order->steps)->value;
  double y = result_at(&order->observations[j], order->steps)->value;
  return x != y ? (x < y ? -1 : 1) : i < j ? -1 : i > j;
}

void history_sort(const struct search *search, uint64_t steps, int *observations, int n) {
  struct order order = {search->observations, steps};
  qsort_r(observations, (size_t)n, sizeof *observations, order_compare, &order);
}

static int steps_compare(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return x > y ? -1 : x < y;
}

static uint64_t rung_choose(const struct search *search, int least, struct arena *arena) {
  size_t n = 0, most = 0;
  uint64_t *steps, best = 0;
  for (int i = 0; i < search->n_observations; i++)
    n += (size_t)search->observations[i].n_results;
  steps = arena_new(arena, (n + 1) * sizeof *steps);
  n = 0;
  for (int i = 0; i < search->n_observations; i++)
    for (int r = 0; !history_failed(&search->observations[i]) && r < search->observations[i].n_results; r++)
      steps[n++] = search->observations[i].results[r].steps;
  qsort(steps, n, sizeof *steps, steps_compare);
  for (size_t begin = 0, end; begin < n; begin = end) {
    for (end = begin; end < n && steps[end] == steps[begin];)
      end++;
    if (end - begin >= (size_t)least)
      return steps[begin];
    if (end - begin > most) {
      most = end - begin;
      best = steps[begin];
    }
  }
  return best;
}

static struct rung_entry entry_make(const struct search *search, int observation, uint64_t steps) {
  const struct sweep_observation *of = &search->observations[observation];
  const struct sweep_result *result = result_at(of, steps);
  struct rung_entry entry = {.observation = observation};
  if (history_failed(of))
    entry.kind = RUNG_FAILED;
  else if (result) {
    entry.kind = RUNG_OWN;
    entry.value = fmin(fmax(result->value, -VALUE_MOST), VALUE_MOST);
  } else
    entry.kind = of->state == SWEEP_PENDING ? RUNG_PENDING : RUNG_STOPPED;
  return entry;
}

struct rung history_rung(const struct search *search, int least, struct arena *arena) {
  size_t size = ((size_t)search->n_observations + 1) * sizeof(struct rung_entry);
  struct rung rung = {.steps = rung_choose(search, least, arena), .entries = arena_new(arena, size)};
  double worst = -INFINITY, mean = 0;
  for (int i = 0; i < search->n_observations; i++) {
    rung.entries[i] = entry_make(search, i, rung.steps);
    if (rung.entries[i].kind != RUNG_OWN)
      continue;
    worst = fmax(worst, rung.entries[i].value);
    mean += (rung.entries[i].value - mean) / ++rung.n_own;
  }
  rung.n = rung.n_own ? search->n_observations : 0;
  for (int i = 0; i < rung.n; i++)
    if (rung.entries[i].kind != RUNG_OWN)
      rung.entries[i].value = rung.entries[i].kind == RUNG_PENDING ? mean : worst;
  return rung;
}
