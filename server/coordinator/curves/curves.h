/* Curves of several metrics over one axis, in bounded memory: each point has the minimum, mean and maximum of
   the values that it stands for. While there are few, each value is a point of its own. Where there would be
   too many, the points between the same multiples of a stride, a power of two, come together. */
#ifndef WEIR_SERVER_COORDINATOR_CURVES_CURVES_H
#define WEIR_SERVER_COORDINATOR_CURVES_CURVES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CURVES_METRICS_MAX = 18 };

struct curve_value {
  double mean, min, max; /* NaN: there are no values */
};

/* What a point stands for. */
struct curve_point {
  uint64_t last;  /* position on the axis: of the newest value */
  uint64_t count; /* of values; those of one metric may be fewer */
  struct curve_value values[CURVES_METRICS_MAX];
};

/* Zeroed before curves_init, and after curves_fini. */
struct curves {
  int n_metrics, n_points, max_points;
  uint64_t stride;
  struct curve_head *heads;   /* [n_points] */
  struct curve_cell *cells;   /* [n_points, n_metrics] */
  int heads_room, cells_room; /* allocated */
};

/* As many points as fit in so many bytes, one at least; n_metrics at most CURVES_METRICS_MAX. */
void curves_init(struct curves *curves, int n_metrics, size_t max_bytes);
/* Likewise by their number. */
void curves_init_points(struct curves *curves, int n_metrics, int max_points);
void curves_fini(struct curves *curves);

/* Adds a value of each metric, or a point of several. False, and nothing happens: it is not behind the last
   position. Constant time on average. */
bool curves_add(struct curves *curves, const struct curve_point *point);
void curves_point(const struct curves *curves, int i, struct curve_point *point);
/* The first point that stands for a position from `since` on; n_points: there is none. */
int curves_find(const struct curves *curves, uint64_t since);
size_t curves_bytes(const struct curves *curves); /* that it takes */

#endif
