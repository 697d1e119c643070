/* Making a space of its spec: everything that a spec may say wrongly. */
#include "common/sweep/space.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/text.h"

enum { PATH_MAX_SIZE = 256, CHOICE_MAX_SIZE = 4096 };

/* Bounds of a number that lie nearer to each other, relative to the greater one, are as good as one value. */
static const double NEAR = 1e-7;

/* A dimension under way: what the spec says, and what becomes of it. */
struct making {
  const Weir__SweepSpec *spec;
  const Weir__Dimension *from;
  struct space *space;
  struct dimension *to;
};

static int dimension_bad(const struct making *making, const char *key, const char *what, struct err *err) {
  return err_set(err, ERR_INVALID, "space.%.200s: %s: %s", making->from->path, key, what);
}

static int check_path(const struct making *making, int index, struct err *err) {
  const char *path = making->from->path;
  if (!path || !*path)
    return err_set(err, ERR_INVALID, "space: dimension %d has no path of a key", index);
  if (strlen(path) >= PATH_MAX_SIZE || !text_is_clean(path))
    return err_set(err, ERR_INVALID, "space: the path of dimension %d is no path of a key", index);
  for (int other = 0; other < index; other++) {
    const char *before = making->space->dimensions[other].path;
    size_t short_length = strlen(before) < strlen(path) ? strlen(before) : strlen(path);
    const char *longer = strlen(before) < strlen(path) ? path : before;
    if (strcmp(path, before) == 0)
      return err_set(err, ERR_INVALID, "space.%s: is there twice", path);
    if (strncmp(path, before, short_length) == 0 && strchr(".[", longer[short_length]))
      return err_set(err, ERR_INVALID, "space.%s: lies within space.%.*s, which is varied as a whole", longer,
                     (int)short_length, path);
  }
  return 0;
}

/* Choices and files: texts that differ. */
static int make_choice(const struct making *making, char *const *texts, size_t n, struct err *err) {
  const char *key = making->to->is_files ? "files" : "choice";
  const char **choices = arena_new(&making->space->arena, n * sizeof *choices);
  if (n > SPACE_CHOICES_MAX)
    return err_set(err, ERR_INVALID, "space.%s: %s: %zu values are too many, at most %d can be chosen from",
                   making->from->path, key, n, SPACE_CHOICES_MAX);
  if (making->from->has_step)
    return dimension_bad(making, "step", "only a number between two bounds has a step", err);
  for (size_t i = 0; i < n; i++) {
    if (strlen(texts[i]) >= CHOICE_MAX_SIZE)
      return dimension_bad(making, key, "a value has more than 4,095 letters", err);
    if (!text_is_clean(texts[i]))
      return dimension_bad(making, key, "a value has control characters, or is not UTF-8", err);
    for (size_t other = 0; other < i; other++)
      if (strcmp(texts[i], texts[other]) == 0)
        return err_set(err, ERR_INVALID, "space.%s: %s: '%.60s' is there twice", making->from->path, key,
                       texts[i]);
    choices[i] = arena_strdup(&making->space->arena, texts[i]);
  }
  making->to->kind = DIMENSION_CHOICE;
  making->to->choices = choices;
  making->to->n_values = (uint32_t)n;
  return 0;
}

static int make_step(const struct making *making, double step, struct err *err) {
  struct dimension *to = making->to;
  double steps = floor((to->high - to->low) / step + NEAR);
  double most = fmax(fabs(to->low), fabs(to->high));
  if (!isfinite(step) || step <= 0)
    return dimension_bad(making, "step", "must be above 0 and finite", err);
  if (steps < 1)
    return dimension_bad(making, "step", "is larger than the range, which leaves one value", err);
  if (steps >= SPACE_VALUES_MAX || step < most * 1e-12)
    return dimension_bad(making, "step", "is too small, a thousand million values are the most", err);
  to->step = step;
  to->n_values = (uint32_t)steps + 1;
  to->high = to->low + steps * step;
  return 0;
}

/* Positions: a number with a step has half a step more at either end, so that each value has its share. */
static void make_positions(struct dimension *to) {
  double half = to->step / 2;
  if (to->kind == DIMENSION_LOG) {
    to->begin = log(to->low) - (log(to->low + half) - log(to->low));
    to->end = log(to->high + half);
  } else {
    to->begin = to->low - half;
    to->end = to->high + half;
  }
}

static int make_number(const struct making *making, const double *bounds, size_t n, struct err *err) {
  struct dimension *to = making->to;
  const char *key = to->kind == DIMENSION_LOG ? "log" : "uniform";
  double most;
  if (n != 2)
    return dimension_bad(making, key, "wants two bounds, [low, high]", err);
  if (!isfinite(bounds[0]) || !isfinite(bounds[1]) || !isfinite(bounds[1] - bounds[0]))
    return dimension_bad(making, key, "bounds must be finite", err);
  if (!(bounds[0] < bounds[1]))
    return dimension_bad(making, key, "the first bound must be below the second one", err);
  if (to->kind == DIMENSION_LOG && bounds[0] <= 0)
    return dimension_bad(making, key, "bounds must be above 0: the logarithm is what is uniform", err);
  most = fmax(fabs(bounds[0]), fabs(bounds[1]));
  if (bounds[1] - bounds[0] < NEAR * most || bounds[1] - bounds[0] < 1e-290)
    return dimension_bad(making, key, "the bounds are too near to each other", err);
  to->low = bounds[0];
  to->high = bounds[1];
  to->digits = 6;
  for (double narrow = 1000; narrow <= most / (bounds[1] - bounds[0]); narrow *= 10)
    to->digits++;
  if (making->from->has_step && make_step(making, making->from->step, err))
    return err->code;
  make_positions(to);
  return 0;
}

static int make_values(const struct making *making, struct err *err) {
  const Weir__Dimension *from = making->from;
  int given = (from->n_choice > 0) + (from->n_uniform > 0) + (from->n_log > 0) + (from->n_files > 0);
  if (given != 1)
    return err_set(err, ERR_INVALID, "space.%s: wants one of choice, uniform, log and files, %s", from->path,
                   given ? "not several" : "with values");
  making->to->is_files = from->n_files > 0;
  if (from->n_choice)
    return make_choice(making, from->choice, from->n_choice, err);
  if (from->n_files)
    return make_choice(making, from->files, from->n_files, err);
  making->to->kind = from->n_log ? DIMENSION_LOG : DIMENSION_UNIFORM;
  return make_number(making, from->n_log ? from->log : from->uniform,
                     from->n_log ? from->n_log : from->n_uniform, err);
}

static int make_condition(const struct making *making, const Weir__SweepValue *when, struct condition *out,
                          struct err *err) {
  const char *path = making->from->path, *value = when->value ? when->value : "";
  const struct dimension *other;
  out->dimension = when->path ? space_find(making->space, when->path) : -1;
  if (out->dimension < 0)
    return err_set(err, ERR_INVALID, "space.%s: when: there is no dimension '%.100s'", path,
                   when->path ? when->path : "");
  other = &making->space->dimensions[out->dimension];
  if (other == making->to)
    return dimension_bad(making, "when", "names the dimension itself", err);
  if (other->kind != DIMENSION_CHOICE)
    return err_set(err, ERR_INVALID, "space.%s: when: '%s' is a number; only a choice can be a condition",
                   path, other->path);
  for (uint32_t i = 0; i < other->n_values; i++)
    if (strcmp(other->choices[i], value) == 0) {
      out->choice = (int)i;
      return 0;
    }
  return err_set(err, ERR_INVALID, "space.%s: when: '%.60s' is not among the values of '%s'", path, value,
                 other->path);
}

static int make_conditions(const struct making *making, struct err *err) {
  const Weir__Dimension *from = making->from;
  struct condition *conditions;
  if (from->n_when > SPACE_DIMENSIONS_MAX)
    return dimension_bad(making, "when", "there are more conditions than dimensions", err);
  conditions = arena_new(&making->space->arena, (from->n_when + 1) * sizeof *conditions);
  for (size_t i = 0; i < from->n_when; i++) {
    if (make_condition(making, from->when[i], &conditions[i], err))
      return err->code;
    for (size_t other = 0; other < i; other++)
      if (conditions[other].dimension == conditions[i].dimension)
        return err_set(err, ERR_INVALID, "space.%s: when: '%.100s' is there twice", from->path,
                       from->when[i]->path);
  }
  making->to->conditions = conditions;
  making->to->n_conditions = (int)from->n_when;
  return 0;
}

static bool conditions_are_placed(const struct dimension *dimension, uint64_t placed) {
  for (int i = 0; i < dimension->n_conditions; i++)
    if (!(placed >> dimension->conditions[i].dimension & 1))
      return false;
  return true;
}

static int make_order(struct space *space, struct err *err) {
  uint64_t placed = 0;
  for (int place = 0; place < space->n; place++) {
    int next = 0;
    while (next < space->n &&
           (placed >> next & 1 || !conditions_are_placed(&space->dimensions[next], placed)))
      next++;
    if (next == space->n) { /* none is free of the others: the first that is left stands for them */
      for (next = 0; placed >> next & 1;)
        next++;
      return err_set(err, ERR_INVALID, "space.%s: when: is a condition of itself, by way of '%s'",
                     space->dimensions[next].path,
                     space->dimensions[space->dimensions[next].conditions[0].dimension].path);
    }
    space->order[place] = next;
    placed |= 1ull << next;
  }
  return 0;
}

static int make_dimensions(struct making *making, struct dimension *dimensions, struct err *err) {
  for (int i = 0; i < (int)making->spec->n_space; i++) {
    making->from = making->spec->space[i];
    making->to = &dimensions[i];
    if (check_path(making, i, err))
      return err->code;
    making->to->path = arena_strdup(&making->space->arena, making->from->path);
    making->space->n = i + 1;
    if (make_values(making, err))
      return err->code;
  }
  for (int i = 0; i < making->space->n; i++) {
    making->from = making->spec->space[i];
    making->to = &dimensions[i];
    if (make_conditions(making, err))
      return err->code;
  }
  return make_order(making->space, err);
}

int space_make(const Weir__SweepSpec *spec, struct space **out, struct err *err) {
  struct making making = {.spec = spec};
  struct dimension *dimensions;
  if (spec->n_space == 0)
    return err_set(err, ERR_INVALID, "space: has no dimension, so there is nothing to search");
  if (spec->n_space > SPACE_DIMENSIONS_MAX)
    return err_set(err, ERR_INVALID, "space: has %zu dimensions, at most %d can be searched", spec->n_space,
                   SPACE_DIMENSIONS_MAX);
  making.space = mem_new(sizeof *making.space);
  arena_init(&making.space->arena);
  dimensions = arena_new(&making.space->arena, spec->n_space * sizeof *dimensions);
  making.space->dimensions = dimensions;
  if (make_dimensions(&making, dimensions, err)) {
    space_free(making.space);
    return err->code;
  }
  *out = making.space;
  return 0;
}

void space_free(struct space *space) {
  if (!space)
    return;
  arena_fini(&space->arena);
  free(space);
}

int space_find(const struct space *space, const char *path) {
  for (int i = 0; i < space->n; i++)
    if (strcmp(space->dimensions[i].path, path) == 0)
      return i;
  return -1;
}

int space_files(const struct space *space) {
  for (int i = 0; i < space->n; i++)
    if (space->dimensions[i].is_files)
      return i;
  return -1;
}

static bool dimension_is_active(const struct dimension *dimension, const double *point) {
  for (int i = 0; i < dimension->n_conditions; i++)
    if (point[dimension->conditions[i].dimension] != dimension->conditions[i].choice)
      return false;
  return true;
}

void space_activate(const struct space *space, double *point) {
  for (int i = 0; i < space->n; i++)
    if (!dimension_is_active(&space->dimensions[space->order[i]], point))
      point[space->order[i]] = NAN;
}

static bool dimension_holds(const struct dimension *dimension, double position) {
  if (dimension->kind == DIMENSION_CHOICE)
    return position >= 0 && position < dimension->n_values && position == floor(position);
  return position >= 0 && position < 1;
}

bool space_holds(const struct space *space, const double *point) {
  for (int i = 0; i < space->n; i++) {
    const struct dimension *dimension = &space->dimensions[i];
    bool is_active = dimension_is_active(dimension, point);
    if (is_active ? !dimension_holds(dimension, point[i]) : !isnan(point[i]))
      return false;
  }
  return true;
}
