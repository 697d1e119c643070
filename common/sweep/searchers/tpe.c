/* Tree-structured Parzen estimator (Bergstra et al., Algorithms for hyper-parameter optimization, 2011;
   Making a science of model search, 2013): one density of the points of good trials, one of all others; of
   points drawn from the first, the one at which it is greatest beside the second. Each dimension has
   densities of its own, unless `multivariate`. Names, defaults and choices of widths, weights and shares are
   those of Optuna's TPESampler. A trial without a result counts as a bad one (constant liar), which keeps
   others away from it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/sweep/cube.h"
#include "common/sweep/history.h"
#include "common/sweep/parzen.h"
#include "common/sweep/searcher.h"

enum { GOOD_MAX = 25, RECENT = 25, CANDIDATES_MAX = 10000 };

static const struct option_rule tpe_options[] = {
    {.name = "n_startup_trials", .range = OPTION_AT_LEAST_1, .number = 10},
    {.name = "n_ei_candidates", .range = OPTION_AT_LEAST_1, .number = 24},
    {.name = "gamma", .range = OPTION_ABOVE_0_BELOW_1, .number = 0.1},
    {.name = "prior_weight", .range = OPTION_ABOVE_0, .number = 1},
    {.name = "multivariate", .number = 1},
    {0},
};

static int tpe_check(const struct space *space, const Weir__SweepSearch *options, struct err *err) {
  (void)space;
  if (options->n_ei_candidates > CANDIDATES_MAX)
    return err_set(err, ERR_INVALID, "search.n_ei_candidates: must be at most %d", CANDIDATES_MAX);
  return 0;
}

/* Good or bad trials, the oldest first. */
struct side {
  int *observations;
  int n;
};

struct tpe {
  const struct search *search;
  struct arena *arena;
  struct draw draw;
  struct side good, bad;
};

static int int_compare(const void *a, const void *b) {
  return *(const int *)a - *(const int *)b;
}

/* Trials that did not come to the rung say nothing there, but for those without any result (the liar) and
   those that failed. */
static void sides_make(struct tpe *tpe, uint64_t rung) {
  const struct search *search = tpe->search;
  size_t size = ((size_t)search->n_observations + 1) * sizeof(int);
  int *reached = arena_new(tpe->arena, size), *bad = arena_new(tpe->arena, size), n = 0, n_bad = 0;
  for (int i = 0; i < search->n_observations; i++) {
    if (history_result(&search->observations[i], rung))
      reached[n++] = i;
    else if (search->observations[i].n_results == 0 || history_failed(&search->observations[i]))
      bad[n_bad++] = i;
  }
  history_sort(search, rung, reached, n);
  tpe->good.n = (int)ceil(search->options->gamma * n);
  tpe->good.n = tpe->good.n < GOOD_MAX ? tpe->good.n : GOOD_MAX;
  tpe->good.observations = reached;
  for (int i = tpe->good.n; i < n; i++)
    bad[n_bad++] = reached[i];
  tpe->bad = (struct side){bad, n_bad};
  qsort(reached, (size_t)tpe->good.n, sizeof *reached, int_compare);
  qsort(bad, (size_t)n_bad, sizeof *bad, int_compare);
}

/* The newest observations count fully, older ones the less the older they are. */
static void weights_fill(const struct tpe *tpe, double *weights, int n) {
  int old = n - RECENT;
  for (int i = 0; i < n; i++)
    weights[i] = i >= old || n < RECENT ? 1 : old == 1 ? 1.0 / n : 1.0 / n + (1 - 1.0 / n) * i / (old - 1);
  weights[n] = tpe->search->options->prior_weight;
}

struct place {
  double at;
  int kernel;
};

static int place_compare(const void *a, const void *b) {
  const struct place *x = a, *y = b;
  if (x->at != y->at)
    return x->at < y->at ? -1 : 1;
  return x->kernel - y->kernel;
}

/* As wide as the larger distance to a neighbour. The ends of the range are none, unless there is no other. */
static void widths_by_neighbours(const struct tpe *tpe, struct parzen_axis *axis, int n) {
  struct place *places = arena_new(tpe->arena, ((size_t)n + 1) * sizeof *places);
  int last = -1;
  for (int i = 0; i < n; i++)
    if (!isnan(axis->at[i]))
      places[++last] = (struct place){axis->at[i], i};
  qsort(places, (size_t)(last + 1), sizeof *places, place_compare);
  for (int i = 0; i <= last; i++) {
    double below = places[i].at - (i ? places[i - 1].at : 0);
    double above = (i < last ? places[i + 1].at : 1) - places[i].at;
    axis->sigma[places[i].kernel] = i == 0 && last > 0      ? above
                                    : i == last && last > 0 ? below
                                                            : fmax(below, above);
  }
}

static void number_fill(const struct tpe *tpe, struct parzen_axis *axis, int n) {
  double least = 1 / fmin(100, 1.0 + (n + 1));
  widths_by_neighbours(tpe, axis, n);
  for (int k = 0; k < n; k++)
    axis->sigma[k] = fmin(fmax(axis->sigma[k], least), 1);
  for (int k = 0; k <= n; k++)
    if (isnan(axis->at[k]) || k == n) { /* the prior; and what says nothing of this dimension */
      axis->at[k] = 0.5;
      axis->sigma[k] = 1;
    }
}

static void choice_fill(const struct tpe *tpe, struct parzen_axis *axis, int n, uint32_t n_values) {
  double share = tpe->search->options->prior_weight / (n + 1);
  axis->at[n] = NAN;
  axis->own = (1 + share) / (1 + share * n_values);
  axis->other = share / (1 + share * n_values);
}

/* The density of one side over some dimensions: a kernel for each observation that has one of them, and the
   prior. */
static void density_make(const struct tpe *tpe, const struct side *side, const struct side *dimensions,
                         struct parzen *out) {
  const struct search *search = tpe->search;
  int *kept = arena_new(tpe->arena, ((size_t)side->n + 1) * sizeof *kept), n = 0;
  for (int i = 0; i < side->n; i++) {
    const double *point = search->observations[side->observations[i]].point;
    if (dimensions->n > 1 || !isnan(point[dimensions->observations[0]]))
      kept[n++] = side->observations[i];
  }
  parzen_init(out, search->space, n + 1, tpe->arena);
  weights_fill(tpe, out->weights, n);
  for (int d = 0; d < dimensions->n; d++) {
    int dimension = dimensions->observations[d];
    struct parzen_axis *axis = parzen_add_axis(out, dimension, tpe->arena);
    for (int k = 0; k < n; k++)
      axis->at[k] = search->observations[kept[k]].point[dimension];
    if (search->space->dimensions[dimension].kind == DIMENSION_CHOICE)
      choice_fill(tpe, axis, n, search->space->dimensions[dimension].n_values);
    else
      number_fill(tpe, axis, n);
  }
  parzen_prepare(out);
}

/* Chooses the point's entries of some dimensions; those of the others stay. */
static void entries_choose(struct tpe *tpe, const struct side *dimensions, double *point) {
  const struct space *space = tpe->search->space;
  struct parzen *good = arena_new(tpe->arena, sizeof *good), *bad = arena_new(tpe->arena, sizeof *bad);
  double candidate[SPACE_DIMENSIONS_MAX], scored[SPACE_DIMENSIONS_MAX], best = -INFINITY;
  density_make(tpe, &tpe->good, dimensions, good);
  density_make(tpe, &tpe->bad, dimensions, bad);
  memcpy(candidate, point, (size_t)space->n * sizeof *point);
  for (uint32_t c = 0; c < tpe->search->options->n_ei_candidates; c++) {
    double score;
    parzen_draw(good, 1, &tpe->draw, candidate);
    memcpy(scored, candidate, (size_t)space->n * sizeof *scored);
    space_activate(space, scored);
    score = parzen_log_density(good, scored) - parzen_log_density(bad, scored);
    if (c == 0 || score > best) {
      best = score;
      memcpy(point, candidate, (size_t)space->n * sizeof *point);
    }
  }
}

static void point_choose(struct tpe *tpe, double *point) {
  const struct space *space = tpe->search->space;
  int order[SPACE_DIMENSIONS_MAX];
  memcpy(order, space->order, sizeof order);
  for (int i = 0; i < space->n; i++)
    point[i] = 0;
  if (tpe->search->options->multivariate) {
    entries_choose(tpe, &(struct side){order, space->n}, point);
    return;
  }
  for (int i = 0; i < space->n; i++) {
    double active[SPACE_DIMENSIONS_MAX];
    memcpy(active, point, (size_t)space->n * sizeof *point);
    space_activate(space, active);
    if (!isnan(active[order[i]]))
      entries_choose(tpe, &(struct side){&order[i], 1}, point);
  }
}

static int tpe_suggest(const struct search *search, double *point, struct err *err) {
  struct arena arena;
  struct tpe tpe = {
      .search = search, .arena = &arena, .draw = draw_begin(search->options->seed, search->trial, 0)};
  uint64_t rung;
  (void)err;
  arena_init(&arena);
  if (!history_model_rung(search, (int)search->options->n_startup_trials, &rung))
    cube_draw(search->space, &tpe.draw, point);
  else {
    sides_make(&tpe, rung);
    point_choose(&tpe, point);
  }
  arena_fini(&arena);
  return 0;
}

const struct searcher_def searcher_tpe = {.name = "tpe",
                                          .learns = true,
                                          .options = tpe_options,
                                          .check = tpe_check,
                                          .suggest = tpe_suggest,
                                          .takes_several = true};
