/* Values as texts, and back. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/sweep/space.h"

enum { DIGITS_OF_STEPS = 15, DIGITS_EXACT = 17, PLAIN_LEAST = -6, PLAIN_MOST = 15, FINEST = 12 };

static const double LAST = 1 - 0x1p-53; /* the greatest position */

static void zeros_cut(char *text) {
  char *end = text + strlen(text);
  if (!strchr(text, '.'))
    return;
  while (end[-1] == '0')
    end--;
  if (end[-1] == '.')
    end--;
  *end = '\0';
}

/* As a person writes it: 0.00012, 1500000, 3.2e-9. Returns what the text says. */
static double number_write(double value, int digits, char out[SPACE_NUMBER_SIZE]) {
  char text[SPACE_NUMBER_SIZE], *rest;
  int exponent;
  double rounded;
  snprintf(text, sizeof text, "%.*e", digits - 1, value);
  rounded = strtod(text, NULL);
  rest = strchr(text, 'e');
  exponent = atoi(rest + 1);
  if (rounded == 0)
    strcpy(out, "0");
  else if (exponent >= PLAIN_LEAST && exponent < PLAIN_MOST) {
    snprintf(out, SPACE_NUMBER_SIZE, "%.*f", digits - 1 > exponent ? digits - 1 - exponent : 0, rounded);
    zeros_cut(out);
  } else {
    *rest = '\0';
    zeros_cut(text);
    snprintf(out, SPACE_NUMBER_SIZE, "%.26se%d", text, exponent);
  }
  return rounded;
}

/* The fewest digits that say exactly this value. */
static void number_write_exact(double value, char out[SPACE_NUMBER_SIZE]) {
  int digits = 1;
  while (number_write(value, digits, out) != value && digits < DIGITS_EXACT)
    digits++;
}

static double value_at(const struct dimension *dimension, double position) {
  double value = dimension->begin + position * (dimension->end - dimension->begin);
  if (dimension->kind == DIMENSION_LOG)
    value = exp(value);
  return value < dimension->low ? dimension->low : value > dimension->high ? dimension->high : value;
}

static double position_of(const struct dimension *dimension, double value) {
  double scaled = dimension->kind == DIMENSION_LOG ? log(value) : value;
  double position = (scaled - dimension->begin) / (dimension->end - dimension->begin);
  return position < 0 ? 0 : position > LAST ? LAST : position;
}

uint32_t space_value_index(const struct dimension *dimension, double position) {
  double index;
  if (dimension->kind == DIMENSION_CHOICE)
    index = position;
  else if (dimension->kind == DIMENSION_UNIFORM)
    index = floor(position * dimension->n_values);
  else
    index = floor((value_at(dimension, position) - dimension->low) / dimension->step + 0.5);
  return index < 0 ? 0 : index < dimension->n_values ? (uint32_t)index : dimension->n_values - 1;
}

double space_value_position(const struct dimension *dimension, uint32_t index) {
  if (dimension->kind == DIMENSION_CHOICE)
    return index;
  if (dimension->kind == DIMENSION_UNIFORM)
    return (index + 0.5) / dimension->n_values;
  return position_of(dimension, dimension->low + index * dimension->step);
}

double space_nearest(const struct dimension *dimension, double value) {
  double index;
  value = value < dimension->low ? dimension->low : value > dimension->high ? dimension->high : value;
  if (!dimension->n_values)
    return position_of(dimension, value);
  index = floor((value - dimension->low) / dimension->step + 0.5);
  return space_value_position(dimension,
                              index < dimension->n_values ? (uint32_t)index : dimension->n_values - 1);
}

/* Rounded to what doubles near the bounds can say, so that a text survives the way to its position and back:
   of values near 0 the first digits are finer. */
static double value_round(const struct dimension *dimension, double value) {
  char text[SPACE_NUMBER_SIZE];
  double finest;
  if (dimension->kind == DIMENSION_LOG)
    return value;
  snprintf(text, sizeof text, "%.0e", fmax(fabs(dimension->low), fabs(dimension->high)));
  snprintf(text, sizeof text, "1e%d", atoi(strchr(text, 'e') + 1) - FINEST);
  finest = strtod(text, NULL);
  return floor(value / finest + 0.5) * finest;
}

const char *space_text(const struct dimension *dimension, double position, char out[SPACE_NUMBER_SIZE]) {
  double said;
  if (dimension->kind == DIMENSION_CHOICE)
    return dimension->choices[space_value_index(dimension, position)];
  if (dimension->n_values) {
    uint32_t index = space_value_index(dimension, position);
    number_write(dimension->low + index * dimension->step, DIGITS_OF_STEPS, out);
    return out;
  }
  said = number_write(value_round(dimension, value_at(dimension, position)), dimension->digits, out);
  if (said < dimension->low)
    number_write_exact(dimension->low, out);
  else if (said > dimension->high)
    number_write_exact(dimension->high, out);
  return out;
}

static int choice_position(const struct dimension *dimension, const char *text, double *position,
                           struct err *err) {
  for (uint32_t i = 0; i < dimension->n_values; i++)
    if (strcmp(dimension->choices[i], text) == 0) {
      *position = i;
      return 0;
    }
  return err_set(err, ERR_INVALID, "space.%s: '%.60s' is not among its values", dimension->path, text);
}

int space_position(const struct dimension *dimension, const char *text, double *position, struct err *err) {
  double value, slack;
  char *end;
  if (dimension->kind == DIMENSION_CHOICE)
    return choice_position(dimension, text, position, err);
  value = strtod(text, &end);
  if (end == text || *end || !isfinite(value))
    return err_set(err, ERR_INVALID, "space.%s: '%.60s' is not a number", dimension->path, text);
  slack = dimension->step * 1e-3;
  if (value < dimension->low - slack || value > dimension->high + slack)
    return err_set(err, ERR_INVALID, "space.%s: %.60s is not between %g and %g", dimension->path, text,
                   dimension->low, dimension->high);
  if (dimension->n_values) {
    double index = floor((value - dimension->low) / dimension->step + 0.5);
    if (fabs(dimension->low + index * dimension->step - value) > slack)
      return err_set(err, ERR_INVALID, "space.%s: %.60s is not %g and a multiple of %g", dimension->path,
                     text, dimension->low, dimension->step);
    *position = space_value_position(dimension, (uint32_t)index);
    return 0;
  }
  *position = position_of(dimension, value);
  return 0;
}
