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

/* Points by fronts: the newest of each, and of each point the one that was there before it. */
struct fronts {
  const double *values;
  int k, n;
  int *newest, *before;
  uint64_t compared;
};

/* Whether a point of a front dominates this one, which comes behind them in the order of all objectives. Of
   two objectives the newest is the front's best by the second, so it alone can tell. */
static bool front_dominates(struct fronts *fronts, int front, int point) {
  const double *values = fronts->values;
  for (int at = fronts->newest[front]; at >= 0; at = fronts->k > 2 ? fronts->before[at] : -1) {
    fronts->compared++;
    if (dominates(values + at * fronts->k, values + point * fronts->k, fronts->k))
      return true;
  }
  return false;
}

/* The first front of which no point dominates this one. No later front has one either, since its points are
   dominated by points of that front. */
static int find_front(struct fronts *fronts, int point) {
  int low = 0, high = fronts->n;
  while (low < high) {
    int middle = (low + high) / 2;
    if (front_dominates(fronts, middle, point))
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* What dominates a point comes before it in the order of all objectives, and is in its front by then (Zhang
   et al., 2015). */
uint64_t front_ranks(const double *values, int n, int k, int *ranks) {
  const size_t size = (size_t)(n + 1) * sizeof(int);
  struct sorting sorting = {.values = values, .k = k};
  struct fronts fronts = {.values = values, .k = k, .newest = mem_new(size), .before = mem_new(size)};
  int *order = mem_new(size);
  for (int i = 0; i < n; i++)
    order[i] = i;
  qsort_r(order, (size_t)n, sizeof *order, compare_all, &sorting);
  for (int i = 0; i < n; i++) {
    int point = order[i], front = find_front(&fronts, point);
    fronts.before[point] = front < fronts.n ? fronts.newest[front] : -1;
    fronts.newest[front] = point;
    fronts.n += front == fronts.n;
    ranks[point] = front;
  }
  free(order);
  free(fronts.newest);
  free(fronts.before);
  return fronts.compared;
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
static int collect(const struct sweep *sweep, int rung, int *trials, double *values) {
  int n = 0;
  for (int i = 0; i < sweep->n_trials; i++) {
    const struct sweep_trial *trial = &sweep->trials[i];
    if (trial->n_results <= rung)
      continue;
    values_at(sweep, trial, rung, values + n * sweep->n_objectives);
    trials[n++] = i;
  }
  return n;
}

/* Puts it among the front's trials, unless one of them dominates it. */
static void front_add(struct sweep *sweep, const struct sweep_trial *trial) {
  struct sweep_front *front = &sweep->front;
  double own[SWEEP_OBJECTIVES_MAX], other[SWEEP_OBJECTIVES_MAX];
  int n = 0, at;
  values_at(sweep, trial, front->rung, own);
  for (int i = 0; i < front->n; i++) {
    values_at(sweep, &sweep->trials[front->trials[i]], front->rung, other);
    front->compared++;
    if (dominates(other, own, sweep->n_objectives))
      return; /* and then it dominates none of them itself */
    if (!dominates(own, other, sweep->n_objectives))
      front->trials[n++] = front->trials[i];
  }
  array_reserve((void **)&front->trials, &front->capacity, n, sizeof *front->trials);
  for (at = n; at > 0 && front->trials[at - 1] > (int)trial->number; at--)
    front->trials[at] = front->trials[at - 1];
  front->trials[at] = (int)trial->number;
  front->n = n + 1;
}

void front_take_result(struct sweep *sweep, const struct sweep_trial *trial) {
  struct sweep_front *front = &sweep->front;
  int rung = trial->n_results - 1;
  if (sweep->n_objectives == 1 || (front->n > 0 && rung < front->rung))
    return;
  if (rung != front->rung)
    front->n = 0;
  front->rung = rung;
  front_add(sweep, trial);
}

/* Trials that it dominated may have a place there now, or, if nobody else has come as far, those behind it.
 */
void front_take_failure(struct sweep *sweep, const struct sweep_trial *trial) {
  struct sweep_front *front = &sweep->front;
  bool is_there = false;
  for (int i = 0; i < front->n; i++)
    is_there |= front->trials[i] == (int)trial->number;
  front->n = is_there ? 0 : front->n;
  for (int rung = front->rung; is_there && rung >= 0 && front->n == 0; rung--) {
    front->rung = rung;
    for (int i = 0; i < sweep->n_trials; i++)
      if (sweep->trials[i].n_results > rung && sweep->trials[i].state != SWEEP_TRIAL_FAILED)
        front_add(sweep, &sweep->trials[i]);
  }
}

void front_results(const struct sweep *sweep, struct sweep_result *results) {
  size_t size = (size_t)sweep->n_trials + 1;
  double *values = mem_new(size * (size_t)sweep->n_objectives * sizeof *values);
  double *order = mem_new(size * sizeof *order);
  int *trials = mem_new(size * sizeof *trials);
  for (int rung = 0; rung < sweep->n_rungs; rung++) {
    int n = collect(sweep, rung, trials, values);
    front_order(values, n, sweep->n_objectives, order);
    for (int i = 0; i < n; i++)
      results[trials[i] * sweep->n_rungs + rung] =
          (struct sweep_result){.steps = sweep->rungs[rung], .value = order[i]};
  }
  free(values);
  free(order);
  free(trials);
}
