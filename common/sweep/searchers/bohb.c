/* The model of BOHB (Falkner, Klein and Hutter, Robust and efficient hyperparameter optimization at scale,
   2018): kernel densities of good and of bad points at the highest rung that has enough of them, and a share
   of random points. Names and defaults are HpBandSter's. A trial that waits for its first result counts as a
   bad one (constant liar). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/sweep/cube.h"
#include "common/sweep/history.h"
#include "common/sweep/parzen.h"
#include "common/sweep/searcher.h"

enum { SAMPLES_MAX = 10000 };

static const double DENSITY_LEAST = 1e-32;

static const struct option_rule bohb_options[] = {
    {.name = "min_points_in_model", .range = OPTION_AT_LEAST_1, .absence = OPTION_OPEN},
    {.name = "top_n_percent", .range = OPTION_ABOVE_0, .number = 15},
    {.name = "num_samples", .range = OPTION_AT_LEAST_1, .number = 64},
    {.name = "random_fraction", .range = OPTION_FROM_0_TO_1, .number = 1.0 / 3},
    {.name = "bandwidth_factor", .range = OPTION_ABOVE_0, .number = 3},
    {.name = "min_bandwidth", .range = OPTION_ABOVE_0_TO_1, .number = 1e-3},
    {0},
};

static int bohb_check(const struct space *space, const Weir__SweepSearch *options, struct err *err) {
  (void)space;
  if (options->num_samples > SAMPLES_MAX)
    return err_set(err, ERR_INVALID, "search.num_samples: must be at most %d", SAMPLES_MAX);
  if (options->top_n_percent >= 100)
    return err_set(err, ERR_INVALID, "search.top_n_percent: must be below 100");
  return 0;
}

struct bohb {
  const struct search *search;
  struct arena *arena;
  struct draw draw;
  int min_points;
  int n_own; /* trials with a value of their own, more than min_points */
};

static int entry_compare(const void *a, const void *b) {
  const struct rung_entry *x = a, *y = b;
  if (x->kind != y->kind)
    return x->kind < y->kind ? -1 : 1; /* in the order of rung_kind, failed ones are behind all values */
  if (x->value != y->value)
    return x->value < y->value ? -1 : 1;
  return x->observation - y->observation;
}

static bool entry_counts(const struct search *search, const struct rung_entry *entry) {
  return entry->kind == RUNG_OWN || entry->kind == RUNG_FAILED ||
         (entry->kind == RUNG_PENDING && search->observations[entry->observation].n_results == 0);
}

/* The rule of thumb for a normal distribution (Scott, 1992). */
static double bandwidth(const struct bohb *bohb, const double *at, int n, int n_dimensions) {
  double mean = 0, squares = 0;
  for (int k = 0; k < n; k++)
    mean += at[k] / n;
  for (int k = 0; k < n; k++)
    squares += (at[k] - mean) * (at[k] - mean) / n;
  return fmax(1.06 * sqrt(squares) * pow(n, -1.0 / (4 + n_dimensions)), bohb->search->options->min_bandwidth);
}

/* Where the dimension was not active the observation gets the value of another one that had it, and if there
   is none a random value. */
static void axis_impute(struct bohb *bohb, const struct dimension *dimension, double *at, int n) {
  int *with = arena_new(bohb->arena, (size_t)n * sizeof *with), n_with = 0;
  for (int k = 0; k < n; k++)
    if (!isnan(at[k]))
      with[n_with++] = k;
  for (int k = 0; k < n; k++)
    if (isnan(at[k]))
      at[k] = n_with ? at[with[draw_below(&bohb->draw, (uint32_t)n_with)]]
                     : cube_position(dimension, draw_uniform(&bohb->draw));
}

static void axis_fill(struct bohb *bohb, struct parzen *parzen, const struct rung_entry *entries, int i) {
  const struct dimension *dimension = &bohb->search->space->dimensions[i];
  struct parzen_axis *axis = parzen_add_axis(parzen, i, bohb->arena);
  int n = parzen->n_kernels, n_values = (int)dimension->n_values;
  double width;
  for (int k = 0; k < n; k++)
    axis->at[k] = bohb->search->observations[entries[k].observation].point[i];
  axis_impute(bohb, dimension, axis->at, n);
  width = bandwidth(bohb, axis->at, n, bohb->search->space->n);
  for (int k = 0; k < n; k++)
    axis->sigma[k] = width;
  /* Aitchison and Aitken's kernel (1976): all values alike is as wide as it gets. */
  if (dimension->kind == DIMENSION_CHOICE) {
    width = fmin(width, (n_values - 1.0) / n_values);
    axis->own = 1 - width;
    axis->other = n_values > 1 ? width / (n_values - 1) : 0;
  }
}

static void density_make(struct bohb *bohb, struct parzen *parzen, const struct rung_entry *entries, int n) {
  parzen_init(parzen, bohb->search->space, n, bohb->arena);
  parzen->is_open = true;
  for (int k = 0; k < n; k++)
    parzen->weights[k] = 1;
  for (int i = 0; i < bohb->search->space->n; i++)
    axis_fill(bohb, parzen, entries, i);
  parzen_prepare(parzen);
}

/* entries: sorted. */
static void point_choose(struct bohb *bohb, const struct rung_entry *entries, int n, double *point) {
  const struct space *space = bohb->search->space;
  const Weir__SweepSearch *options = bohb->search->options;
  int n_good = (int)(options->top_n_percent * n / 100);
  struct parzen *good = arena_new(bohb->arena, sizeof *good), *bad = arena_new(bohb->arena, sizeof *bad);
  double candidate[SPACE_DIMENSIONS_MAX], scored[SPACE_DIMENSIONS_MAX], best = -INFINITY;
  n_good = n_good < bohb->n_own ? n_good : bohb->n_own;
  n_good = n_good > bohb->min_points ? n_good : bohb->min_points;
  density_make(bohb, good, entries, n_good);
  density_make(bohb, bad, entries + n_good, n - n_good);
  for (uint32_t sample = 0; sample < options->num_samples; sample++) {
    double score;
    parzen_draw(good, options->bandwidth_factor, &bohb->draw, candidate);
    memcpy(scored, candidate, (size_t)space->n * sizeof *scored);
    space_activate(space, scored);
    score = fmax(parzen_log_density(good, scored), log(DENSITY_LEAST)) -
            fmax(parzen_log_density(bad, scored), log(DENSITY_LEAST));
    if (sample == 0 || score > best) {
      best = score;
      memcpy(point, candidate, (size_t)space->n * sizeof *point);
    }
  }
}

static int bohb_suggest(const struct search *search, double *point, struct err *err) {
  const Weir__SweepSearch *options = search->options;
  struct arena arena;
  struct bohb bohb = {.search = search, .arena = &arena, .draw = draw_begin(options->seed, search->trial, 0)};
  struct rung rung;
  int n = 0;
  (void)err;
  arena_init(&arena);
  bohb.min_points = search->space->n + 1;
  if (options->has_min_points_in_model && (int)options->min_points_in_model > bohb.min_points)
    bohb.min_points = (int)options->min_points_in_model;
  rung = history_rung(search, 2 * bohb.min_points, &arena);
  bohb.n_own = rung.n_own;
  for (int i = 0; i < rung.n; i++)
    if (entry_counts(search, &rung.entries[i]))
      rung.entries[n++] = rung.entries[i];
  if (rung.n_own < 2 * bohb.min_points || draw_uniform(&bohb.draw) < options->random_fraction)
    cube_draw(search->space, &bohb.draw, point);
  else {
    qsort(rung.entries, (size_t)n, sizeof *rung.entries, entry_compare);
    point_choose(&bohb, rung.entries, n, point);
  }
  arena_fini(&arena);
  return 0;
}

const struct searcher_def searcher_bohb = {
    .name = "bohb", .learns = true, .options = bohb_options, .check = bohb_check, .suggest = bohb_suggest};
