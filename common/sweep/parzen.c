/* Kernel densities over a space. */
#include "common/sweep/parzen.h"

#include <math.h>

static const double RANGE[2] = {0, 1 - 0x1p-53}; /* of positions */

void parzen_init(struct parzen *parzen, const struct space *space, int n_kernels, struct arena *arena) {
  size_t size = (size_t)n_kernels * sizeof(double);
  *parzen = (struct parzen){.space = space, .n_kernels = n_kernels};
  parzen->weights = arena_new(arena, size);
  parzen->log_weights = arena_new(arena, size);
}

static bool axis_is_choice(const struct parzen *parzen, const struct parzen_axis *axis) {
  return parzen->space->dimensions[axis->dimension].kind == DIMENSION_CHOICE;
}

/* The number of values that have an equal share of [0, 1) each; 0: it is a density. Shares of steps in the
   logarithm differ, and are treated as a density. */
static uint32_t axis_shares(const struct parzen *parzen, const struct parzen_axis *axis) {
  const struct dimension *dimension = &parzen->space->dimensions[axis->dimension];
  return dimension->kind == DIMENSION_UNIFORM ? dimension->n_values : 0;
}

struct parzen_axis *parzen_add_axis(struct parzen *parzen, int dimension, struct arena *arena) {
  struct parzen_axis *axis = &parzen->axes[parzen->n_axes++];
  size_t size = (size_t)parzen->n_kernels * sizeof(double);
  axis->dimension = dimension;
  axis->at = arena_new(arena, size);
  axis->sigma = arena_new(arena, size);
  axis->constant = arena_new(arena, size);
  return axis;
}

/* What the normal distribution has between two places. Of both ends in the upper tail, the lower tail's
   mirror image loses no digits. */
static double normal_mass(double low, double high, double mu, double sigma) {
  double from = (low - mu) / sigma, to = (high - mu) / sigma;
  return from > 0 ? normal_cdf(-from) - normal_cdf(-to) : normal_cdf(to) - normal_cdf(from);
}

void parzen_prepare(struct parzen *parzen) {
  double total = 0;
  for (int k = 0; k < parzen->n_kernels; k++)
    total += parzen->weights[k];
  for (int k = 0; k < parzen->n_kernels; k++)
    parzen->log_weights[k] = log(parzen->weights[k] / total);
  for (int a = 0; a < parzen->n_axes; a++) {
    struct parzen_axis *axis = &parzen->axes[a];
    bool is_density = !axis_shares(parzen, axis);
    for (int k = 0; !axis_is_choice(parzen, axis) && k < parzen->n_kernels; k++)
      axis->constant[k] = (is_density ? log(normal_density(0) / axis->sigma[k]) : 0) -
                          (parzen->is_open ? 0 : log(normal_mass(0, 1, axis->at[k], axis->sigma[k])));
  }
}

static double choice_draw(const struct parzen_axis *axis, int kernel, uint32_t n_values, struct draw *draw) {
  double own = axis->at[kernel], u = draw_uniform(draw);
  uint32_t other = draw_below(draw, n_values > 1 ? n_values - 1 : 1);
  if (isnan(own))
    return (uint32_t)(u * n_values);
  if (n_values == 1 || u < axis->own / (axis->own + axis->other * (n_values - 1)))
    return own;
  return other < own ? other : other + 1;
}

void parzen_draw(const struct parzen *parzen, double widen, struct draw *draw, double *point) {
  int k = draw_weighted(draw, parzen->weights, parzen->n_kernels);
  for (int a = 0; a < parzen->n_axes; a++) {
    const struct parzen_axis *axis = &parzen->axes[a];
    const struct dimension *dimension = &parzen->space->dimensions[axis->dimension];
    double *out = &point[axis->dimension];
    if (dimension->kind == DIMENSION_CHOICE)
      *out = choice_draw(axis, k, dimension->n_values, draw);
    else {
      *out = draw_truncated(draw, axis->at[k], axis->sigma[k] * widen, RANGE);
      if (dimension->n_values)
        *out = space_value_position(dimension, space_value_index(dimension, *out));
    }
  }
}

/* Adds the logarithm of each kernel's factor. */
static void axis_add(const struct parzen *parzen, const struct parzen_axis *axis, double x, double *logs) {
  uint32_t n_values = parzen->space->dimensions[axis->dimension].n_values;
  uint32_t shares = axis_shares(parzen, axis);
  if (axis_is_choice(parzen, axis)) {
    double own = log(axis->own), other = log(axis->other), any = -log(n_values);
    for (int k = 0; k < parzen->n_kernels; k++)
      logs[k] += isnan(axis->at[k]) ? any : axis->at[k] == x ? own : other;
  } else if (shares) {
    double low = floor(x * shares) / shares;
    for (int k = 0; k < parzen->n_kernels; k++)
      logs[k] += axis->constant[k] + log(normal_mass(low, low + 1.0 / shares, axis->at[k], axis->sigma[k]));
  } else
    for (int k = 0; k < parzen->n_kernels; k++) {
      double z = (x - axis->at[k]) / axis->sigma[k];
      logs[k] += axis->constant[k] - 0.5 * z * z;
    }
}

double parzen_log_density(const struct parzen *parzen, const double *point) {
  double sum = 0, most = -INFINITY;
  struct arena arena;
  double *logs;
  arena_init(&arena);
  logs = arena_copy(&arena, parzen->log_weights, (size_t)parzen->n_kernels * sizeof *logs);
  for (int a = 0; a < parzen->n_axes; a++)
    if (!isnan(point[parzen->axes[a].dimension]))
      axis_add(parzen, &parzen->axes[a], point[parzen->axes[a].dimension], logs);
  for (int k = 0; k < parzen->n_kernels; k++)
    most = fmax(most, logs[k]);
  for (int k = 0; most > -INFINITY && k < parzen->n_kernels; k++)
    sum += exp(logs[k] - most);
  arena_fini(&arena);
  return most > -INFINITY ? most + log(sum) : -INFINITY;
}
