/* Bayesian optimization: a Gaussian process over the results, and the point whose expected improvement is the
   greatest (Jones, Schonlau and Welch, Efficient global optimization of expensive black-box functions, 1998).
   A trial without a value counts as the mean (constant liar), one that was stopped or has failed as the
   worst. Beyond GAUSS_POINTS_MAX trials the best and the newest are kept. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/agree/random.h"
#include "common/sweep/cube.h"
#include "common/sweep/gauss.h"
#include "common/sweep/history.h"
#include "common/sweep/numbers/minimize.h"
#include "common/sweep/searcher.h"

enum {
  FIT_POINTS = 100,    /* parameters are fitted to as many */
  SPREAD_POINTS = 512, /* first candidates: all over the space */
  MANY_POINTS = 250,   /* of the process: a prediction is slow, so half as many candidates */
  NEAR_PARENTS = 5,    /* and near the best points, as many of each */
  NEAR_EACH = 16,
  STARTS = 3, /* the best of both kinds are improved */
  IMPROVE_EVALUATIONS = 25,
  ALTERNATIVES = 16, /* that are tried of a choice, or of a number with a step */
  STEPS_FEW = 64,    /* a number with more values moves like one without a step */
  ROUNDS = 2,
};

static const struct option_rule gp_options[] = {
    {.name = "n_startup_trials", .range = OPTION_AT_LEAST_1, .number = 10},
    {.name = "deterministic_objective", .number = 0},
    {0},
};

struct gp {
  const struct search *search;
  struct arena *arena;
  struct draw draw;
  struct gauss gauss;
  double best; /* the value to improve on */
  double *work;
};

/* A candidate, with a value in every entry. */
struct candidate {
  double score;
  double point[SPACE_DIMENSIONS_MAX];
};

static int entry_compare(const void *a, const void *b) {
  const struct rung_entry *x = a, *y = b;
  if ((x->kind == RUNG_OWN) != (y->kind == RUNG_OWN))
    return x->kind == RUNG_OWN ? -1 : 1;
  if (x->value != y->value)
    return x->value < y->value ? -1 : 1;
  return x->observation - y->observation;
}

static int entry_compare_age(const void *a, const void *b) {
  const struct rung_entry *x = a, *y = b;
  return y->observation - x->observation;
}

/* Leaves at most `most`, the best half and of the others the newest, the best first. Returns how many. */
static int entries_keep(struct rung_entry *entries, int n, int most) {
  qsort(entries, (size_t)n, sizeof *entries, entry_compare);
  if (n <= most)
    return n;
  qsort(entries + most / 2, (size_t)(n - most / 2), sizeof *entries, entry_compare_age);
  qsort(entries, (size_t)most, sizeof *entries, entry_compare);
  return most;
}

static int double_compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

/* Values above the median are drawn together by a logarithm, as how bad the worst ones are says nothing about
   the best; then all have mean 0 and variance 1. Entries are sorted. */
static double *values_make(const struct rung_entry *entries, int n, struct arena *arena) {
  double *values = arena_new(arena, (size_t)n * sizeof *values),
         *sorted = arena_new(arena, (size_t)n * sizeof *sorted);
  double median, scale, mean = 0, variance = 0;
  for (int i = 0; i < n; i++)
    sorted[i] = entries[i].value;
  qsort(sorted, (size_t)n, sizeof *sorted, double_compare);
  median = sorted[n / 2];
  scale = median - sorted[0];
  for (int i = 0; i < n; i++) {
    double above = entries[i].value - median;
    values[i] = above <= 0 ? above : scale > 0 ? scale * log1p(above / scale) : above;
    if (scale > 0)
      values[i] /= scale;
    mean += (values[i] - mean) / (i + 1);
  }
  for (int i = 0; i < n; i++)
    variance += (values[i] - mean) * (values[i] - mean) / n;
  for (int i = 0; i < n; i++)
    values[i] = variance > 0 ? (values[i] - mean) / sqrt(variance) : 0;
  return values;
}

static void points_take(struct gp *gp, const struct rung_entry *entries, int n) {
  int n_dimensions = gp->search->space->n;
  gp->gauss.space = gp->search->space;
  gp->gauss.n_points = n;
  gp->gauss.places = arena_new(gp->arena, (size_t)n * (size_t)n_dimensions * sizeof(double));
  gp->gauss.values = values_make(entries, n, gp->arena);
  for (int i = 0; i < n; i++)
    gauss_place(gp->search->space, gp->search->observations[entries[i].observation].point,
                gp->gauss.places + (long)i * n_dimensions);
}

/* entries: as entries_keep leaves them. */
static void model_make(struct gp *gp, struct rung_entry *entries, int n) {
  struct rung_entry *few = arena_copy(gp->arena, entries, (size_t)n * sizeof *few);
  struct gauss fitted;
  points_take(gp, few, entries_keep(few, n, FIT_POINTS));
  gauss_fit(&gp->gauss, gp->search->options->deterministic_objective, gp->arena);
  fitted = gp->gauss;
  points_take(gp, entries, n);
  memcpy(gp->gauss.scales, fitted.scales, sizeof fitted.scales);
  gp->gauss.signal = fitted.signal;
  gp->gauss.noise = fitted.noise;
  gauss_condition(&gp->gauss, gp->arena);
  gp->work = arena_new(gp->arena, 2 * (size_t)n * sizeof(double));
  gp->best = INFINITY;
  for (int i = 0; i < n; i++)
    if (entries[i].kind == RUNG_OWN)
      gp->best = fmin(gp->best, gp->gauss.values[i]);
}

static void place_of(const struct gp *gp, const double *point, double *place) {
  double active[SPACE_DIMENSIONS_MAX];
  memcpy(active, point, (size_t)gp->search->space->n * sizeof *active);
  space_activate(gp->search->space, active);
  gauss_place(gp->search->space, active, place);
}

static double score_of(const struct gp *gp, const double *point) {
  double place[SPACE_DIMENSIONS_MAX];
  place_of(gp, point, place);
  return gauss_improvement(&gp->gauss, gp->best, place, gp->work, NULL);
}

static bool moves_freely(const struct dimension *dimension) {
  return dimension->kind != DIMENSION_CHOICE && (dimension->n_values == 0 || dimension->n_values > STEPS_FEW);
}

/* The numbers of a candidate that are improved together. */
struct movement {
  const struct gp *gp;
  double place[SPACE_DIMENSIONS_MAX];
  int dimensions[SPACE_DIMENSIONS_MAX], n;
};

static double movement_value(void *context, const double *x, double *slopes) {
  struct movement *movement = context;
  const struct gp *gp = movement->gp;
  double score, all[SPACE_DIMENSIONS_MAX];
  for (int i = 0; i < movement->n; i++)
    movement->place[movement->dimensions[i]] = x[i];
  score = gauss_improvement(&gp->gauss, gp->best, movement->place, gp->work, all);
  for (int i = 0; i < movement->n; i++)
    slopes[i] = -all[movement->dimensions[i]];
  return -score;
}

static void numbers_improve(const struct gp *gp, struct candidate *candidate) {
  const struct space *space = gp->search->space;
  double low[SPACE_DIMENSIONS_MAX], high[SPACE_DIMENSIONS_MAX], x[SPACE_DIMENSIONS_MAX];
  struct movement movement = {.gp = gp};
  struct minimization minimization = {0, low, high, movement_value, &movement, IMPROVE_EVALUATIONS, 1e-6};
  double active[SPACE_DIMENSIONS_MAX];
  memcpy(active, candidate->point, (size_t)space->n * sizeof *active);
  space_activate(space, active);
  gauss_place(space, active, movement.place);
  for (int i = 0; i < space->n; i++)
    if (!isnan(active[i]) && moves_freely(&space->dimensions[i])) {
      low[movement.n] = 0;
      high[movement.n] = 1 - 0x1p-53;
      x[movement.n] = active[i];
      movement.dimensions[movement.n++] = i;
    }
  minimization.n = movement.n;
  if (movement.n == 0)
    return;
  minimize(&minimization, x);
  for (int i = 0; i < movement.n; i++)
    candidate->point[movement.dimensions[i]] =
        cube_position(&space->dimensions[movement.dimensions[i]], x[i]);
  candidate->score = score_of(gp, candidate->point);
}

/* Alternative number `index` of a dimension's value; false after the last. */
static bool alternative_make(struct gp *gp, const struct dimension *dimension, double now, int index,
                             double *out) {
  uint32_t value = space_value_index(dimension, now);
  bool is_near = dimension->kind != DIMENSION_CHOICE;
  if (index >= ALTERNATIVES || (!is_near && (uint32_t)index >= dimension->n_values))
    return false;
  if (is_near && index < 2)
    value = index ? value + 1 : value ? value - 1 : 0;
  else if (!is_near && dimension->n_values <= ALTERNATIVES)
    value = (uint32_t)index;
  else
    value = draw_below(&gp->draw, dimension->n_values);
  *out = space_value_position(dimension, value < dimension->n_values ? value : dimension->n_values - 1);
  return true;
}

/* Whether another value of any choice, or number of few values, is better. */
static bool choices_improve(struct gp *gp, struct candidate *candidate) {
  const struct space *space = gp->search->space;
  bool is_better = false;
  for (int place = 0; place < space->n; place++) {
    int i = space->order[place];
    double active[SPACE_DIMENSIONS_MAX], value;
    memcpy(active, candidate->point, (size_t)space->n * sizeof *active);
    space_activate(space, active);
    if (isnan(active[i]) || moves_freely(&space->dimensions[i]))
      continue;
    for (int a = 0; alternative_make(gp, &space->dimensions[i], active[i], a, &value); a++) {
      double before = candidate->point[i], score;
      candidate->point[i] = value;
      score = value == before ? -INFINITY : score_of(gp, candidate->point);
      if (score > candidate->score) {
        candidate->score = score;
        is_better = true;
      } else
        candidate->point[i] = before;
    }
  }
  return is_better;
}

static void candidate_improve(struct gp *gp, struct candidate *candidate) {
  for (int round = 0; round < ROUNDS; round++) {
    numbers_improve(gp, candidate);
    if (!choices_improve(gp, candidate))
      return;
  }
}

/* Keeps the best ones, f[STARTS], the best first. */
static void candidate_offer(struct candidate *kept, const struct candidate *candidate) {
  int at = STARTS;
  while (at > 0 && candidate->score > kept[at - 1].score)
    at--;
  if (at == STARTS)
    return;
  memmove(kept + at + 1, kept + at, (size_t)(STARTS - 1 - at) * sizeof *kept);
  kept[at] = *candidate;
}

static void candidates_spread(struct gp *gp, struct candidate *kept) {
  const struct space *space = gp->search->space;
  uint64_t key = random_key(gp->search->options->seed, gp->search->trial, 0, 2);
  int n = gp->gauss.n_points > MANY_POINTS ? SPREAD_POINTS / 2 : SPREAD_POINTS;
  for (int c = 0; c < n; c++) {
    struct candidate candidate;
    cube_sobol((uint32_t)c, key ? key : 1, space->n, candidate.point);
    for (int i = 0; i < space->n; i++)
      candidate.point[i] = cube_position(&space->dimensions[i], candidate.point[i]);
    candidate.score = score_of(gp, candidate.point);
    candidate_offer(kept, &candidate);
  }
}

/* A parent's neighbours: the nearer ones are the better known. */
static void candidates_near(struct gp *gp, const double *parent, struct candidate *kept) {
  static const double widths[] = {0.1, 0.03, 0.01, 0.003};
  static const double range[2] = {0, 1 - 0x1p-53};
  const struct space *space = gp->search->space;
  for (int c = 0; c < NEAR_EACH; c++) {
    struct candidate candidate;
    for (int i = 0; i < space->n; i++) {
      const struct dimension *dimension = &space->dimensions[i];
      double place = draw_uniform(&gp->draw);
      bool is_kept = !isnan(parent[i]) && (!dimension->n_values || draw_uniform(&gp->draw) < 0.8);
      if (is_kept && dimension->n_values == 0)
        candidate.point[i] = draw_truncated(&gp->draw, parent[i], widths[c % 4], range);
      else
        candidate.point[i] = is_kept ? parent[i] : cube_position(dimension, place);
    }
    candidate.score = score_of(gp, candidate.point);
    candidate_offer(kept, &candidate);
  }
}

static void start_choose(const struct search *search, double *point) {
  uint64_t key = random_key(search->options->seed, 0, 0, 1);
  cube_sobol(search->trial, key ? key : 1, search->space->n, point);
  for (int i = 0; i < search->space->n; i++)
    point[i] = cube_position(&search->space->dimensions[i], point[i]);
}

static void point_choose(struct gp *gp, const struct rung_entry *entries, int n, double *point) {
  struct candidate kept[2 * STARTS], *best = &kept[0];
  for (int i = 0; i < 2 * STARTS; i++)
    kept[i].score = -INFINITY;
  start_choose(gp->search, kept[0].point); /* for lack of any better one */
  candidates_spread(gp, kept);
  for (int i = 0; i < n && i < NEAR_PARENTS && entries[i].kind == RUNG_OWN; i++)
    candidates_near(gp, gp->search->observations[entries[i].observation].point, kept + STARTS);
  for (int i = 0; i < 2 * STARTS; i++) {
    if (kept[i].score > -INFINITY)
      candidate_improve(gp, &kept[i]);
    if (kept[i].score > best->score)
      best = &kept[i];
  }
  memcpy(point, best->point, (size_t)gp->search->space->n * sizeof *point);
}

static int gp_suggest(const struct search *search, double *point, struct err *err) {
  const Weir__SweepSearch *options = search->options;
  struct arena arena;
  struct gp gp = {.search = search, .arena = &arena, .draw = draw_begin(options->seed, search->trial, 0)};
  struct rung rung;
  uint32_t n_ended = 0;
  (void)err;
  arena_init(&arena);
  rung = history_rung(search, (int)options->n_startup_trials, &arena);
  for (int i = 0; i < rung.n; i++)
    n_ended += rung.entries[i].kind != RUNG_PENDING;
  if (n_ended < options->n_startup_trials)
    start_choose(search, point);
  else {
    int n = entries_keep(rung.entries, rung.n, GAUSS_POINTS_MAX);
    model_make(&gp, rung.entries, n);
    point_choose(&gp, rung.entries, n, point);
  }
  arena_fini(&arena);
  return 0;
}

const struct searcher_def searcher_gp = {
    .name = "gp", .learns = true, .options = gp_options, .suggest = gp_suggest};
