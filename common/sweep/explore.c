/* Values of a trial that is forked from another. */
#include "common/sweep/explore.h"

#include <math.h>
#include <stdlib.h>

#include "common/sweep/cube.h"
#include "common/sweep/draw.h"

enum { STREAM_PARENT = 1, STREAM_VALUES = 2 };

static const double FACTORS[] = {0.8, 1.2};

static double draw_factor(const Weir__SweepSchedule *schedule, struct draw *draw) {
  const double *factors = schedule->n_perturb ? schedule->perturb : FACTORS;
  size_t n = schedule->n_perturb ? schedule->n_perturb : sizeof FACTORS / sizeof *FACTORS;
  return factors[draw_below(draw, (uint32_t)n)];
}

/* To the value before or behind it, or as it is at the end. */
static double shift(const struct dimension *dimension, double position, bool is_up) {
  uint32_t index = space_value_index(dimension, position);
  if (is_up ? index + 1 < dimension->n_values : index > 0)
    index += is_up ? 1 : UINT32_MAX;
  return space_value_position(dimension, index);
}

static double perturb(const struct dimension *dimension, double position, double value, double factor) {
  double moved = value * factor;
  double nearest = space_nearest(dimension, moved);
  if (dimension->n_values && moved != value &&
      space_value_index(dimension, nearest) == space_value_index(dimension, position))
    return shift(dimension, position, moved > value);
  return nearest;
}

void explore(const struct sweep *sweep, uint32_t number, const struct sweep_trial *parent, double *point) {
  const struct space *space = sweep->space;
  const Weir__SweepSchedule *schedule = sweep->spec->schedule;
  struct draw draw = draw_begin(sweep->spec->search->seed, number, STREAM_VALUES);
  for (int i = 0; i < space->n; i++) {
    const struct dimension *dimension = &space->dimensions[i];
    double drawn = draw_uniform(&draw), place = draw_uniform(&draw);
    if (isnan(parent->point[i]) || drawn < schedule->resample_probability)
      point[i] = cube_position(dimension, place);
    else if (dimension->kind == DIMENSION_CHOICE)
      point[i] = shift(dimension, parent->point[i], place < 0.5);
    else
      point[i] =
          perturb(dimension, parent->point[i], strtod(parent->values[i], NULL), draw_factor(schedule, &draw));
  }
  space_activate(space, point);
}

uint32_t explore_parent(const struct sweep *sweep, uint32_t number, uint32_t n) {
  struct draw draw = draw_begin(sweep->spec->search->seed, number, STREAM_PARENT);
  return draw_below(&draw, n);
}
