/* Every combination of choices and stepped numbers, the last dimension fastest. What the spec's conditions
   make inactive is not varied. Combinations that an earlier trial has had, as one of the sweep's given
   points, are left out. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/memory.h"
#include "common/sweep/searcher.h"

static int grid_check(const struct space *space, const Weir__SweepSearch *options, struct err *err) {
  (void)options;
  for (int i = 0; i < space->n; i++)
    if (space->dimensions[i].n_values == 0)
      return err_set(err, ERR_INVALID,
                     "space.%s: step: the searcher 'grid' needs one: there is no end of numbers between the "
                     "bounds",
                     space->dimensions[i].path);
  return 0;
}

/* A combination: for each place of the space's order a value's number, 0 where it is not active. */
struct combination {
  uint32_t values[SPACE_DIMENSIONS_MAX];
};

static void combination_point(const struct space *space, const struct combination *combination,
                              double *point) {
  for (int place = 0; place < space->n; place++) {
    int i = space->order[place];
    point[i] = space_value_position(&space->dimensions[i], combination->values[place]);
  }
  space_activate(space, point);
}

static void combination_of(const struct space *space, const double *point, struct combination *out) {
  memset(out, 0, sizeof *out);
  for (int place = 0; place < space->n; place++) {
    int i = space->order[place];
    if (!isnan(point[i]))
      out->values[place] = space_value_index(&space->dimensions[i], point[i]);
  }
}

static int combination_compare(const void *a, const void *b) {
  const struct combination *x = a, *y = b;
  for (int place = 0; place < SPACE_DIMENSIONS_MAX; place++)
    if (x->values[place] != y->values[place])
      return x->values[place] < y->values[place] ? -1 : 1;
  return 0;
}

/* The next one, of which `point` is the present point. Dimensions come after those of their conditions: so
   what follows a changed one begins again at 0. False after the last. */
static bool combination_advance(const struct space *space, struct combination *combination,
                                const double *point) {
  for (int place = space->n - 1; place >= 0; place--) {
    int i = space->order[place];
    if (isnan(point[i]))
      continue;
    if (++combination->values[place] < space->dimensions[i].n_values)
      return true;
    combination->values[place] = 0;
  }
  return false;
}

static int grid_suggest(const struct search *search, double *point, struct err *err) {
  const struct space *space = search->space;
  int n = search->n_observations, next = 0;
  struct combination *taken = mem_new(((size_t)n + 1) * sizeof *taken), at = {0};
  bool is_left = true;
  for (int i = 0; i < n; i++)
    combination_of(space, search->observations[i].point, &taken[i]);
  qsort(taken, (size_t)n, sizeof *taken, combination_compare);
  combination_point(space, &at, point);
  while (is_left && next < n) {
    int order = combination_compare(&taken[next], &at);
    if (order > 0)
      break;
    next++; /* an equal one may follow: it is below what comes next */
    if (order == 0) {
      is_left = combination_advance(space, &at, point);
      combination_point(space, &at, point);
    }
  }
  free(taken);
  return is_left ? 0 : err_set(err, ERR_NOT_FOUND, "the grid has no more points");
}

const struct searcher_def searcher_grid = {
    .name = "grid", .learns = true, .check = grid_check, .suggest = grid_suggest, .takes_several = true};
