/* Which columns fit which graph inputs. */
#include "worker/data/form.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The same shape but for dimensions of 1. */
static bool shapes_match(const struct shape *a, const struct shape *b) {
  int i = 0, j = 0;
  for (;;) {
    while (i < a->rank && a->dim[i] == 1)
      i++;
    while (j < b->rank && b->dim[j] == 1)
      j++;
    if (i == a->rank || j == b->rank)
      return i == a->rank && j == b->rank;
    if (a->dim[i++] != b->dim[j++])
      return false;
  }
}

/* Neighbours of `fine`, multiplied, are the dimensions of `coarse`. None is 0. */
static bool shape_merges(const struct shape *fine, const struct shape *coarse) {
  int i = 0;
  for (int d = 0; d < coarse->rank; d++) {
    int64_t left = coarse->dim[d];
    while (left > 1 && i < fine->rank && left % fine->dim[i] == 0)
      left /= fine->dim[i++];
    if (left > 1)
      return false;
  }
  while (i < fine->rank && fine->dim[i] == 1)
    i++;
  return i == fine->rank;
}

bool form_fits(const struct shape *sample, const struct shape *input) {
  int64_t elems = shape_elems(sample);
  return elems == shape_elems(input) &&
         (elems == 0 || shape_merges(sample, input) || shape_merges(input, sample));
}

/* Where in its sample element i lies: " at [2,5]"; nothing where a sample has one element. */
static const char *place_text(const struct column *column, uint64_t i, char *text, size_t size) {
  struct shape place = column->sample;
  char at[96];
  *text = 0;
  for (int d = place.rank - 1; d >= 0; d--) {
    place.dim[d] = (int64_t)(i % (uint64_t)column->sample.dim[d]);
    i /= (uint64_t)column->sample.dim[d];
  }
  if (shape_elems(&column->sample) > 1)
    snprintf(text, size, " at %s", shape_text(&place, at, sizeof at));
  return text;
}

static int check_classes(const struct column *column, const struct label_rule *labels, struct err *err) {
  uint64_t elems = (uint64_t)shape_elems(&column->sample);
  char place[128];
  if (column->dtype == DTYPE_F32)
    return err_set(err, ERR_INVALID, "labels of classes are whole numbers, but column '%s' is f32",
                   column->name);
  for (uint64_t s = 0; s < column->samples; s++)
    for (uint64_t i = column_first_new(column, s); i < elems; i++) {
      int64_t label = column_integer(column, s, i);
      if (label != labels->ignore_index && !label_is_class(labels, label))
        return err_set(err, ERR_INVALID,
                       "%s: sample %llu has a label that is no class%s, the model has %lld classes",
                       column->name, (unsigned long long)s, place_text(column, i, place, sizeof place),
                       (long long)labels->classes);
    }
  return 0;
}

int form_check_finite(const struct column *column, uint64_t sample, struct err *err) {
  uint64_t elems = (uint64_t)shape_elems(&column->sample);
  const char *data = column->dtype == DTYPE_F32 && !column->source ? column_sample(column, sample) : NULL;
  char place[128];
  for (uint64_t i = 0; data && i < elems; i++) {
    float value;
    memcpy(&value, data + i * sizeof value, sizeof value);
    if (!isfinite(value))
      return err_set(err, ERR_INVALID, "column '%s': sample %llu%s is not a finite number", column->name,
                     (unsigned long long)sample, place_text(column, i, place, sizeof place));
  }
  return 0;
}

static int check_targets(const struct column *column, struct err *err) {
  for (uint64_t s = 0; s < column->samples; s++)
    if (form_check_finite(column, s, err))
      return err->code;
  return 0;
}

static const char *sample_text(const struct shape *shape, char *text, size_t size) {
  return shape->rank ? shape_text(shape, text, size) : "one number";
}

static int check_labels(const struct column *column, const struct shape *wanted,
                        const struct label_rule *labels, struct err *err) {
  char have_text[96], want_text[96];
  if (column->source)
    return err_set(err, ERR_INVALID, "column '%s' holds images, which are no labels", column->name);
  if (!shapes_match(&column->sample, wanted))
    return err_set(err, ERR_INVALID, "labels of column '%s' are %s in each sample, where %s is needed",
                   column->name, sample_text(&column->sample, have_text, sizeof have_text),
                   sample_text(wanted, want_text, sizeof want_text));
  return labels->classes > 0 ? check_classes(column, labels, err) : check_targets(column, err);
}

/* A sample as transforms see it: what has three dimensions is an image, what has two is one of one channel if
   the input is so, too; else elements follow each other by channel. */
static struct image_shape image_of(const struct column *column, const struct shape *wanted) {
  const struct shape *sample = &column->sample;
  int64_t channels = wanted->rank >= 2 ? wanted->dim[0] : 1;
  if (column->source)
    return (struct image_shape){wanted->rank >= 2 ? channels : sample->dim[0], sample->dim[1],
                                sample->dim[2]};
  if (sample->rank == 3)
    return (struct image_shape){sample->dim[0], sample->dim[1], sample->dim[2]};
  if (sample->rank == 2 && (channels == 1 || shape_elems(sample) != shape_elems(wanted)))
    return (struct image_shape){1, sample->dim[0], sample->dim[1]};
  if (shape_elems(sample) % channels)
    channels = 1;
  return (struct image_shape){channels, 1, shape_elems(sample) / channels};
}

/* What images of varying sizes have to become. */
static struct image_shape image_of_input(const struct shape *wanted) {
  int64_t width = wanted->rank >= 1 ? wanted->dim[wanted->rank - 1] : 1;
  int64_t height = wanted->rank >= 2 ? wanted->dim[wanted->rank - 2] : 1;
  return (struct image_shape){shape_elems(wanted) / (height * width), height, width};
}

static int refuse_shape(const struct column *column, const struct shape *have, const struct value *input,
                        const struct shape *wanted, struct err *err) {
  char have_text[96], want_text[96];
  bool is_channels_last = have->rank == 3 && wanted->rank == 3 && have->dim[2] == wanted->dim[0] &&
                          have->dim[0] == wanted->dim[1] && have->dim[1] == wanted->dim[2];
  return err_set(err, ERR_INVALID, "samples of column '%s' are %s, the model's input '%s' wants %s%s",
                 column->name, shape_text(have, have_text, sizeof have_text), input->name,
                 shape_text(wanted, want_text, sizeof want_text),
                 is_channels_last ? ": channels come first, as numpy's transpose(0, 3, 1, 2) puts them" : "");
}

/* Whether what transforms make of the samples can be fed; sizes that differ are looked at when they are read.
 */
static int check_image(const struct column *column, const struct value *input, const struct shape *wanted,
                       struct column_form *form, struct err *err) {
  struct image_shape before = image_of(column, wanted), after = before;
  struct shape have = column->sample;
  form->image = before;
  if (column->source && before.channels != 1 && before.channels != 3)
    return err_set(err, ERR_INVALID, "images have 1 or 3 channels, the model's input '%s' wants %lld",
                   input->name, (long long)before.channels);
  if (transforms_check(&form->transforms, &after, err))
    return err->code;
  form->fed = after;
  if (column->source || memcmp(&before, &after, sizeof after) != 0)
    have = (struct shape){3, {after.channels, after.height, after.width}};
  if (after.height < 0 || after.width < 0) {
    form->fed = image_of_input(wanted);
    return 0;
  }
  return form_fits(&have, wanted) ? 0 : refuse_shape(column, &have, input, wanted, err);
}

int form_bind(const struct column *column, const struct feed_rule *rule, struct column_form *form,
              struct err *err) {
  const struct value *input = rule->input;
  struct shape wanted = {input->shape.rank - 1, {0}};
  memcpy(wanted.dim, input->shape.dim + 1, sizeof wanted.dim - sizeof wanted.dim[0]);
  form->dtype = input->dtype;
  form->wanted = wanted;
  form->elems = shape_elems(&wanted);
  form->transforms = (struct transforms){0};
  if (rule->labels)
    return check_labels(column, &wanted, rule->labels, err);
  if (input->dtype == DTYPE_F32) {
    form->transforms = *rule->transforms;
    return check_image(column, input, &wanted, form, err);
  }
  if (column->source)
    return err_set(err, ERR_INVALID, "column '%s' holds images, the model's input '%s' wants %s",
                   column->name, input->name, dtype_name(input->dtype));
  if (!form_fits(&column->sample, &wanted))
    return refuse_shape(column, &column->sample, input, &wanted, err);
  return column_check_integers(column, input, err);
}
