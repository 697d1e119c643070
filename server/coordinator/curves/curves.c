/* Curves in bounded memory. */
#include "server/coordinator/curves/curves.h"

#include <math.h>
#include <stdlib.h>

#include "common/base/err.h"
#include "common/base/memory.h"

struct curve_head {
  uint64_t last, count;
};

/* Single precision is enough for the ends of a range; a mean of one value is that value. */
struct curve_cell {
  double mean;
  float min, max;
};

void curves_init(struct curves *curves, int n_metrics, size_t max_bytes) {
  size_t of_point = sizeof(struct curve_head) + (size_t)n_metrics * sizeof(struct curve_cell);
  curves_init_points(curves, n_metrics, (int)(max_bytes / of_point));
}

void curves_init_points(struct curves *curves, int n_metrics, int max_points) {
  CHECK(n_metrics > 0 && n_metrics <= CURVES_METRICS_MAX);
  *curves =
      (struct curves){.n_metrics = n_metrics, .max_points = max_points > 1 ? max_points : 1, .stride = 1};
}

void curves_fini(struct curves *curves) {
  free(curves->heads);
  free(curves->cells);
  *curves = (struct curves){0};
}

static struct curve_value value_of(const struct curve_cell *cell, uint64_t count) {
  if (count == 1)
    return (struct curve_value){cell->mean, cell->mean, cell->mean};
  return (struct curve_value){cell->mean, cell->min < (float)cell->mean ? (double)cell->min : cell->mean,
                              cell->max > (float)cell->mean ? (double)cell->max : cell->mean};
}

static struct curve_cell cell_of(const struct curve_value *value) {
  return (struct curve_cell){value->mean, (float)value->min, (float)value->max};
}

/* Of values of which some may be missing. */
static struct curve_value values_join(struct curve_value a, uint64_t of_a, struct curve_value b,
                                      uint64_t of_b) {
  double all = (double)of_a + (double)of_b;
  if (isnan(a.mean) || isnan(b.mean))
    return isnan(a.mean) ? b : a;
  if (a.mean == b.mean) /* without a rounding */
    return (struct curve_value){a.mean, fmin(a.min, b.min), fmax(a.max, b.max)};
  return (struct curve_value){a.mean * ((double)of_a / all) + b.mean * ((double)of_b / all),
                              fmin(a.min, b.min), fmax(a.max, b.max)};
}

/* Into the place of the older one. */
static void point_join(struct curves *curves, int older, int newer) {
  struct curve_head *a = &curves->heads[older];
  const struct curve_head *b = &curves->heads[newer];
  for (int m = 0; m < curves->n_metrics; m++) {
    struct curve_cell *cell = &curves->cells[older * curves->n_metrics + m];
    struct curve_value value =
        values_join(value_of(cell, a->count), a->count,
                    value_of(&curves->cells[newer * curves->n_metrics + m], b->count), b->count);
    *cell = cell_of(&value);
  }
  a->last = b->last;
  a->count += b->count;
}

static void point_move(struct curves *curves, int to, int from) {
  curves->heads[to] = curves->heads[from];
  for (int m = 0; m < curves->n_metrics; m++)
    curves->cells[to * curves->n_metrics + m] = curves->cells[from * curves->n_metrics + m];
}

/* Both lie between the same multiples of the stride. */
static bool belong_together(const struct curves *curves, uint64_t older, uint64_t newer) {
  return older / curves->stride == newer / curves->stride;
}

/* The stride doubles until half of them are left. */
static void points_join(struct curves *curves) {
  while (curves->n_points > curves->max_points / 2 && curves->stride <= UINT64_MAX / 2) {
    int kept = 0;
    curves->stride *= 2;
    for (int i = 0; i < curves->n_points; i++)
      if (kept > 0 && belong_together(curves, curves->heads[kept - 1].last, curves->heads[i].last))
        point_join(curves, kept - 1, i);
      else
        point_move(curves, kept++, i);
    curves->n_points = kept;
  }
}

static void points_reserve(struct curves *curves) {
  int room = curves->heads_room;
  if (curves->n_points < room)
    return;
  room = room ? 2 * room : 16;
  curves->heads_room = room < curves->max_points ? room : curves->max_points;
  curves->heads = mem_resize(curves->heads, (size_t)curves->heads_room * sizeof *curves->heads);
  curves->cells_room = curves->heads_room * curves->n_metrics;
  curves->cells = mem_resize(curves->cells, (size_t)curves->cells_room * sizeof *curves->cells);
}

static void join_newest(struct curves *curves, const struct curve_point *point) {
  int newest = curves->n_points - 1;
  struct curve_head *head = &curves->heads[newest];
  for (int m = 0; m < curves->n_metrics; m++) {
    struct curve_cell *cell = &curves->cells[newest * curves->n_metrics + m];
    struct curve_value value =
        values_join(value_of(cell, head->count), head->count, point->values[m], point->count);
    *cell = cell_of(&value);
  }
  head->last = point->last;
  head->count += point->count;
}

static void append(struct curves *curves, const struct curve_point *point) {
  points_reserve(curves);
  curves->heads[curves->n_points] = (struct curve_head){point->last, point->count};
  for (int m = 0; m < curves->n_metrics; m++)
    curves->cells[curves->n_points * curves->n_metrics + m] = cell_of(&point->values[m]);
  curves->n_points++;
}

bool curves_add(struct curves *curves, const struct curve_point *point) {
  uint64_t newest = curves->n_points ? curves->heads[curves->n_points - 1].last : 0;
  if (curves->n_points && point->last <= newest)
    return false;
  if (curves->n_points == curves->max_points && !belong_together(curves, newest, point->last))
    points_join(curves);
  if (curves->n_points == curves->max_points ||
      (curves->n_points && belong_together(curves, newest, point->last)))
    join_newest(curves, point);
  else
    append(curves, point);
  return true;
}

void curves_point(const struct curves *curves, int i, struct curve_point *point) {
  const struct curve_head *head = &curves->heads[i];
  point->last = head->last;
  point->count = head->count;
  for (int m = 0; m < curves->n_metrics; m++)
    point->values[m] = value_of(&curves->cells[i * curves->n_metrics + m], head->count);
}

int curves_find(const struct curves *curves, uint64_t since) {
  int low = 0, high = curves->n_points;
  while (low < high) {
    int middle = low + (high - low) / 2;
    if (curves->heads[middle].last < since)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

size_t curves_bytes(const struct curves *curves) {
  return sizeof *curves + (size_t)curves->heads_room * sizeof *curves->heads +
         (size_t)curves->cells_room * sizeof *curves->cells;
}
