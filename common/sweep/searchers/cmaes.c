/* Covariance matrix adaptation (Hansen, The CMA evolution strategy: a tutorial, 2016, with negative weights),
   over the positions of numbers. The state is made again from the history: a generation is a run of trials
   by number (where there are rungs: of those that came to the one that is judged by), and counts once all of
   them have results.
   Trials that were suggested before their generation's distribution was known, since others ran beside them,
   count as injected solutions (Hansen, Injecting external solutions into CMA-ES, 2011). A distribution that
   has shrunk to a point begins again anywhere, with twice as many trials a generation (Auger and Hansen, A
   restart CMA evolution strategy with increasing population size, 2005). */
#include <math.h>
#include <string.h>

#include "common/sweep/cube.h"
#include "common/sweep/history.h"
#include "common/sweep/numbers/matrix.h"
#include "common/sweep/searcher.h"

enum { N = SPACE_DIMENSIONS_MAX, POPSIZE_LEAST = 4, POPSIZE_MOST = 100000, ATTEMPTS_MAX = 100 };

/* Below it no value of six digits changes. */
static const double SIGMA_LEAST = 1e-7, CONDITION_MOST = 1e14;

static const struct option_rule cmaes_options[] = {
    {.name = "sigma0", .range = OPTION_ABOVE_0_TO_1, .number = 1.0 / 6},
    {.name = "popsize", .range = OPTION_AT_LEAST_1, .absence = OPTION_OPEN},
    {0},
};

static int cmaes_check(const struct space *space, const Weir__SweepSearch *options, struct err *err) {
  for (int i = 0; i < space->n; i++) {
    const struct dimension *dimension = &space->dimensions[i];
    if (dimension->kind == DIMENSION_CHOICE)
      return err_set(err, ERR_INVALID, "space.%s: %s: the searcher 'cmaes' searches numbers only",
                     dimension->path, dimension->is_files ? "files" : "choice");
    if (dimension->n_conditions)
      return err_set(err, ERR_INVALID, "space.%s: when: the searcher 'cmaes' has no conditions",
                     dimension->path);
  }
  if (options->has_popsize && (options->popsize < POPSIZE_LEAST || options->popsize > POPSIZE_MOST))
    return err_set(err, ERR_INVALID, "search.popsize: must be at least %d and at most %d", POPSIZE_LEAST,
                   POPSIZE_MOST);
  return 0;
}

/* The constants of n dimensions and lambda trials a generation, by the tutorial's names. */
struct constants {
  int lambda, mu;
  double mu_eff, c_sigma, d_sigma, c_c, c_1, c_mu, chi;
  double *weights; /* f64[lambda], the best trial's first */
  double weights_sum;
};

struct cmaes {
  const struct search *search;
  struct arena *arena;
  int n;
  struct constants constants;
  int restarts;
  uint64_t rung;  /* by which trials are judged, where there are several */
  bool is_blind;  /* too few have come to one, and the first says nothing */
  int generation; /* since the restart */
  double sigma, mean[N], p_sigma[N], p_c[N];
  double c[N * N];              /* f64[n,n] */
  double roots[N], axes[N * N]; /* of c: square roots of eigenvalues, and eigenvectors as columns */
};

static double mu_eff_of(const double *weights, int n) {
  double sum = 0, squares = 0;
  for (int i = 0; i < n; i++) {
    sum += weights[i];
    squares += weights[i] * weights[i];
  }
  return squares > 0 ? sum * sum / squares : 0;
}

static void weights_make(struct constants *to, int n, double mu_eff_negative) {
  double above = 0, below = 0, alpha;
  for (int i = 0; i < to->lambda; i++)
    *(to->weights[i] >= 0 ? &above : &below) += fabs(to->weights[i]);
  alpha = fmin(1 + to->c_1 / to->c_mu, 1 + 2 * mu_eff_negative / (to->mu_eff + 2));
  alpha = fmin(alpha, (1 - to->c_1 - to->c_mu) / (n * to->c_mu));
  to->weights_sum = 0;
  for (int i = 0; i < to->lambda; i++) {
    to->weights[i] *= to->weights[i] >= 0 ? 1 / above : alpha / below;
    to->weights_sum += to->weights[i];
  }
}

static void constants_make(struct constants *to, int n, int lambda, struct arena *arena) {
  to->lambda = lambda;
  to->mu = lambda / 2;
  to->weights = arena_new(arena, (size_t)lambda * sizeof(double));
  for (int i = 0; i < lambda; i++)
    to->weights[i] = log((lambda + 1) / 2.0) - log(i + 1);
  to->mu_eff = mu_eff_of(to->weights, to->mu);
  to->c_sigma = (to->mu_eff + 2) / (n + to->mu_eff + 5);
  to->d_sigma = 1 + 2 * fmax(0, sqrt((to->mu_eff - 1) / (n + 1)) - 1) + to->c_sigma;
  to->c_c = (4 + to->mu_eff / n) / (n + 4 + 2 * to->mu_eff / n);
  to->c_1 = 2 / ((n + 1.3) * (n + 1.3) + to->mu_eff);
  to->c_mu =
      fmin(1 - to->c_1 - 1e-8, 2 * (to->mu_eff - 2 + 1 / to->mu_eff) / ((n + 2.0) * (n + 2.0) + to->mu_eff));
  to->chi = sqrt(n) * (1 - 1.0 / (4 * n) + 1.0 / (21.0 * n * n));
  weights_make(to, n, mu_eff_of(to->weights + to->mu, lambda - to->mu));
}

static void state_begin(struct cmaes *cmaes) {
  const Weir__SweepSearch *options = cmaes->search->options;
  int n = cmaes->n, lambda = options->has_popsize ? (int)options->popsize : 4 + (int)floor(3 * log(n));
  struct draw draw = draw_begin(options->seed, (uint64_t)cmaes->restarts, 2);
  for (int i = 0; i < cmaes->restarts && lambda <= POPSIZE_MOST; i++)
    lambda *= 2;
  constants_make(&cmaes->constants, n, lambda, cmaes->arena);
  cmaes->generation = 0;
  cmaes->sigma = options->sigma0;
  memset(cmaes->c, 0, sizeof cmaes->c);
  memset(cmaes->axes, 0, sizeof cmaes->axes);
  for (int i = 0; i < n; i++) {
    cmaes->mean[i] = cmaes->restarts ? draw_uniform(&draw) : 0.5;
    cmaes->p_sigma[i] = cmaes->p_c[i] = 0;
    cmaes->c[i * n + i] = cmaes->axes[i * n + i] = cmaes->roots[i] = 1;
  }
}

/* out = C^(-1/2) y, f64[n]. */
static void whiten(const struct cmaes *cmaes, const double *y, double *out) {
  int n = cmaes->n;
  memset(out, 0, (size_t)n * sizeof *out);
  for (int a = 0; a < n; a++) {
    double along = 0;
    for (int i = 0; i < n; i++)
      along += cmaes->axes[i * n + a] * y[i];
    along /= cmaes->roots[a];
    for (int i = 0; i < n; i++)
      out[i] += cmaes->axes[i * n + a] * along;
  }
}

/* y f64[lambda,n], the best trial first: steps from the mean by sigma, none farther out than solutions of the
   distribution itself nearly always are. */
static void steps_make(const struct cmaes *cmaes, const int *generation, double *y) {
  int n = cmaes->n;
  double longest = sqrt(n) + 2.0 * n / (n + 2);
  for (int k = 0; k < cmaes->constants.lambda; k++) {
    const double *point = cmaes->search->observations[generation[k]].point;
    double *step = y + (long)k * n, white[N], length;
    for (int i = 0; i < n; i++)
      step[i] = (point[i] - cmaes->mean[i]) / cmaes->sigma;
    whiten(cmaes, step, white);
    length = sqrt(vector_dot(white, white, n));
    for (int i = 0; length > longest && i < n; i++)
      step[i] *= longest / length;
  }
}

static void covariance_update(struct cmaes *cmaes, const double *y, bool is_steady) {
  const struct constants *by = &cmaes->constants;
  int n = cmaes->n;
  double kept =
      1 + by->c_1 * (is_steady ? 0 : by->c_c * (2 - by->c_c)) - by->c_1 - by->c_mu * by->weights_sum;
  for (int i = 0; i < n; i++)
    for (int j = 0; j < n; j++)
      cmaes->c[i * n + j] = kept * cmaes->c[i * n + j] + by->c_1 * cmaes->p_c[i] * cmaes->p_c[j];
  for (int k = 0; k < by->lambda; k++) {
    const double *step = y + (long)k * n;
    double white[N], weight = by->weights[k];
    if (weight < 0) {
      whiten(cmaes, step, white);
      weight *= n / (vector_dot(white, white, n) + 1e-16);
    }
    for (int i = 0; i < n; i++)
      for (int j = 0; j < n; j++)
        cmaes->c[i * n + j] += by->c_mu * weight * step[i] * step[j];
  }
}

/* The axes of the new covariance; whether it still is one, and not a point. */
static bool axes_find(struct cmaes *cmaes) {
  int n = cmaes->n;
  double *used = arena_copy(cmaes->arena, cmaes->c, (size_t)n * (size_t)n * sizeof *used);
  double least = INFINITY, most = 0;
  matrix_eigen(used, n, cmaes->roots, cmaes->axes);
  for (int i = 0; i < n; i++) {
    least = fmin(least, cmaes->roots[i]);
    most = fmax(most, cmaes->roots[i]);
    cmaes->roots[i] = sqrt(cmaes->roots[i]);
  }
  return least > 0 && isfinite(most) && most < CONDITION_MOST * least && isfinite(cmaes->sigma) &&
         cmaes->sigma * sqrt(most) > SIGMA_LEAST;
}

/* generation: int[lambda], the best first. */
static void state_step(struct cmaes *cmaes, const int *generation) {
  const struct constants *by = &cmaes->constants;
  int n = cmaes->n;
  double *y = arena_new(cmaes->arena, (size_t)by->lambda * (size_t)n * sizeof *y);
  double mean_step[N] = {0}, white[N], length;
  bool is_steady;
  steps_make(cmaes, generation, y);
  for (int k = 0; k < by->mu; k++)
    for (int i = 0; i < n; i++)
      mean_step[i] += by->weights[k] * y[(long)k * n + i];
  whiten(cmaes, mean_step, white);
  for (int i = 0; i < n; i++) {
    cmaes->mean[i] += cmaes->sigma * mean_step[i];
    cmaes->p_sigma[i] =
        (1 - by->c_sigma) * cmaes->p_sigma[i] + sqrt(by->c_sigma * (2 - by->c_sigma) * by->mu_eff) * white[i];
  }
  length = sqrt(vector_dot(cmaes->p_sigma, cmaes->p_sigma, n));
  is_steady = length / sqrt(1 - pow(1 - by->c_sigma, 2.0 * (cmaes->generation + 1))) <
              (1.4 + 2.0 / (n + 1)) * by->chi;
  for (int i = 0; i < n; i++)
    cmaes->p_c[i] = (1 - by->c_c) * cmaes->p_c[i] +
                    (is_steady ? sqrt(by->c_c * (2 - by->c_c) * by->mu_eff) * mean_step[i] : 0);
  covariance_update(cmaes, y, is_steady);
  cmaes->sigma *= exp(fmin(1, by->c_sigma / by->d_sigma * (length / by->chi - 1)));
  cmaes->generation++;
  if (!axes_find(cmaes)) {
    cmaes->restarts++;
    state_begin(cmaes);
  }
}

/* Each trial's place among those that generations are made of; -1: it is in none. Where there are rungs,
   those that have come to the one by which a model judges. Returns how many have a place. */
static int places_find(const struct cmaes *cmaes, int *places) {
  const struct search *search = cmaes->search;
  int n = 0;
  for (int i = 0; i < search->n_observations; i++) {
    const struct sweep_observation *one = &search->observations[i];
    bool counts = !search->first_rung || history_result(one, cmaes->rung) || history_failed(one);
    places[i] = counts ? n++ : -1;
  }
  return n;
}

/* One generation after the other. */
struct generations {
  struct history history;
  int *places;
  int *trials; /* of the present one, the best first */
  int n_failed;
};

/* Takes the one that begins at a place. Returns how many of its trials have results. */
static int generation_find(const struct cmaes *cmaes, struct generations *of, int begin) {
  int n = 0;
  of->n_failed = 0;
  for (int r = 0; r < of->history.n_ranked; r++) {
    int place = of->places[of->history.ranked[r]];
    if (place < begin || place >= begin + cmaes->constants.lambda)
      continue;
    of->trials[n++] = of->history.ranked[r];
    of->n_failed += r >= of->history.n_ranked - of->history.n_failed;
  }
  if (cmaes->search->first_rung)
    history_sort(cmaes->search, cmaes->rung, of->trials, n - of->n_failed);
  return n;
}

/* All generations that are complete, in order. */
static void state_replay(struct cmaes *cmaes) {
  const struct search *search = cmaes->search;
  size_t size = ((size_t)search->n_observations + 1) * sizeof(int);
  struct generations of = {.history = history_rank(search, cmaes->arena),
                           .places = arena_new(cmaes->arena, size),
                           .trials = arena_new(cmaes->arena, size)};
  int n_placed;
  state_begin(cmaes);
  cmaes->is_blind = search->first_rung && !history_model_rung(search, cmaes->constants.lambda, &cmaes->rung);
  n_placed = cmaes->is_blind ? 0 : places_find(cmaes, of.places);
  for (int begin = 0; n_placed - begin >= cmaes->constants.lambda;) {
    int lambda = cmaes->constants.lambda;
    if (generation_find(cmaes, &of, begin) < lambda)
      return;
    begin += lambda;
    if (of.n_failed < lambda) /* else it says nothing about where to go */
      state_step(cmaes, of.trials);
  }
}

static int cmaes_suggest(const struct search *search, double *point, struct err *err) {
  struct arena arena;
  struct cmaes *cmaes;
  struct draw draw = draw_begin(search->options->seed, search->trial, 0);
  bool is_inside = false;
  (void)err;
  arena_init(&arena);
  cmaes = arena_new(&arena, sizeof *cmaes);
  *cmaes = (struct cmaes){.search = search, .arena = &arena, .n = search->space->n};
  state_replay(cmaes);
  if (cmaes->is_blind) {
    cube_draw(search->space, &draw, point);
    arena_fini(&arena);
    return 0;
  }
  for (int attempt = 0; !is_inside && attempt < ATTEMPTS_MAX; attempt++) {
    is_inside = true;
    memcpy(point, cmaes->mean, (size_t)cmaes->n * sizeof *point);
    for (int a = 0; a < cmaes->n; a++) {
      double along = cmaes->sigma * cmaes->roots[a] * draw_normal(&draw);
      for (int i = 0; i < cmaes->n; i++)
        point[i] += cmaes->axes[i * cmaes->n + a] * along;
    }
    for (int i = 0; i < cmaes->n; i++)
      is_inside &= point[i] >= 0 && point[i] < 1;
  }
  for (int i = 0; i < cmaes->n; i++)
    point[i] = cube_position(&search->space->dimensions[i], fmin(fmax(point[i], 0), 1 - 0x1p-53));
  arena_fini(&arena);
  return 0;
}

const struct searcher_def searcher_cmaes = {
    .name = "cmaes", .options = cmaes_options, .check = cmaes_check, .suggest = cmaes_suggest};
