#include "common/sweep/front.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/memory.h"

/* Points, and which of their objectives they are sorted by. */
struct sorting {
  const double *values;
  int k, by;
};

static bool dominates(const double *a, const double *b, int k) {
  bool is_better = false;
  for (int i = 0; i < k; i++) {
    if (a[i] > b[i])
      return false;
    is_better |= a[i] < b[i];
  }
  return is_better;
}

/* By one objective after the other; then by number. */
static int compare_all(const void *a, const void *b, void *of) {
  const struct sorting *sorting = of;
  int x = *(const int *)a, y = *(const int *)b;
  for (int i = 0; i < sorting->k; i++) {
    double left = sorting->values[x * sorting->k + i], right = sorting->values[y * sorting->k + i];
    if (left != right)
      return left < right ? -1 : 1;
  }
  return x < y ? -1 : x > y;
}

static int compare_one(const void *a, const void *b, void *of) {
  const struct sorting *sorting = of;
  int x = *(const int *)a, y = *(const int *)b;
  double left = sorting->values[x * sorting->k + sorting->by];
  double right = sorting->values[y * sorting->k + sorting->by];
  return left < right ? -1 : left > right ? 1 : x < y ? -1 : x > y;
}

/* Whoever dominates a point comes before it in the order of all objectives, so its rank is known by then. */
void front_ranks(const double *values, int n, int k, int *ranks) {
  struct sorting sorting = {.values = values, .k = k};
  int *order = mem_new((size_t)(n + 1) * sizeof *order);
  for (int i = 0; i < n; i++)
    order[i] = i;
  qsort_r(order, (size_t)n, sizeof *order, compare_all, &sorting);
  for (int i = 0; i < n; i++) {
    ranks[order[i]] = 0;
    for (int j = 0; j < i; j++)
      if (ranks[order[j]] >= ranks[order[i]] && dominates(values + order[j] * k, values + order[i] * k, k))
        ranks[order[i]] = ranks[order[j]] + 1;
  }
  free(order);
}

/* Adds the distances of the front's points in one objective. members: [n]. */
static void crowd(struct sorting *sorting, int *members, int n, double *distances) {
  double low, high;
  qsort_r(members, (size_t)n, sizeof *members, compare_one, sorting);
  low = sorting->values[members[0] * sorting->k + sorting->by];
  high = sorting->values[members[n - 1] * sorting->k + sorting->by];
  distances[members[0]] = distances[members[n - 1]] = INFINITY;
  for (int i = 1; i + 1 < n && high > low; i++)
    distances[members[i]] += sorting->values[members[i + 1] * sorting->k + sorting->by] / (high - low) -
                             sorting->values[members[i - 1] * sorting->k + sorting->by] / (high - low);
}

void front_order(const double *values, int n, int k, double *out) {
  struct sorting sorting = {.values = values, .k = k};
  double *distances = mem_new((size_t)(n + 1) * sizeof *distances);
  int *ranks = mem_new((size_t)(n + 1) * sizeof *ranks),
      *members = mem_new((size_t)(n + 1) * sizeof *members);
  int done = 0;
  front_ranks(values, n, k, ranks);
  for (int rank = 0; done < n; rank++) {
    int count = 0;
    for (int i = 0; i < n; i++)
      if (ranks[i] == rank)
        members[count++] = i;
    for (sorting.by = 0; sorting.by < k; sorting.by++)
      crowd(&sorting, members, count, distances);
    done += count;
  }
  for (int i = 0; i < n; i++) /* a distance of zero is half way to the next front */
    out[i] = ranks[i] + 1 / (2 + distances[i]);
  free(distances);
  free(ranks);
  free(members);
}

/* The values of a trial at a rung, lower is better. out: [n_objectives]. */
static void values_at(const struct sweep *sweep, const struct sweep_trial *trial, int rung, double *out) {
  for (int i = 0; i < sweep->n_objectives; i++) {
    double value = sweep_value_of(sweep, trial, rung, i);
    out[i] = sweep->are_max[i] ? -value : value;
  }
}

/* The numbers of the trials that have come to a rung, and their values there. Returns how many. */
static int collect(const struct sweep *sweep, int rung, bool is_alive, int *trials, double *values) {
  int n = 0;
  for (int i = 0; i < sweep->n_trials; i++) {
    const struct sweep_trial *trial = &sweep->trials[i];
    if (trial->n_results <= rung || (is_alive && trial->state == SWEEP_TRIAL_FAILED))
      continue;
    values_at(sweep, trial, rung, values + n * sweep->n_objectives);
    trials[n++] = i;
  }
  return n;
}

int front_of(const struct sweep *sweep, int *out) {
  size_t size = (size_t)sweep->n_trials + 1;
  double *values = mem_new(size * (size_t)sweep->n_objectives * sizeof *values);
  int *trials = mem_new(size * sizeof *trials), *ranks = mem_new(size * sizeof *ranks);
  int n = 0, count = 0;
  for (int rung = sweep->n_rungs - 1; rung >= 0 && n == 0; rung--)
    n = collect(sweep, rung, true, trials, values);
  front_ranks(values, n, sweep->n_objectives, ranks);
  for (int i = 0; i < n; i++)
    if (ranks[i] == 0)
      out[count++] = trials[i];
  free(values);
  free(trials);
  free(ranks);
  return count;
}

void front_results(const struct sweep *sweep, struct sweep_result *results) {
  size_t size = (size_t)sweep->n_trials + 1;
  double *values = mem_new(size * (size_t)sweep->n_objectives * sizeof *values);
  double *order = mem_new(size * sizeof *order);
  int *trials = mem_new(size * sizeof *trials);
  for (int rung = 0; rung < sweep->n_rungs; rung++) {
    int n = collect(sweep, rung, false, trials, values);
    front_order(values, n, sweep->n_objectives, order);
    for (int i = 0; i < n; i++)
      results[trials[i] * sweep->n_rungs + rung] =
          (struct sweep_result){.steps = sweep->rungs[rung], .value = order[i]};
  }
  free(values);
  free(order);
  free(trials);
}
