/* Mixing. */
#include "worker/data/mixing.h"

#include <stdlib.h>
#include <string.h>

#include "common/agree/random.h"

static int check_image(const struct transform_def *def, const struct mixing *mixing, int i, const char *name,
                       struct err *err) {
  const struct image_shape *image = &mixing->images[i], *first = &mixing->images[0];
  if (!def->cuts || (image->height > 1 && image->width > 1 && image->height == first->height &&
                     image->width == first->width))
    return 0;
  return err_set(err, ERR_INVALID,
                 "data.transforms.%s: cuts boxes out of images of one size, but the model's input '%s' is "
                 "[%lld,%lld,%lld]",
                 def->name, name, (long long)image->channels, (long long)image->height,
                 (long long)image->width);
}

int mixing_init(struct mixing *mixing, const struct model *model, const struct transforms *transforms,
                const struct column_form *forms, struct err *err) {
  *mixing = (struct mixing){
      .transforms = *transforms, .n_images = model->n_columns, .classes = model->labels.classes};
  for (int i = 0; i < model->n_columns; i++)
    mixing->images[i] = forms[i].fed;
  for (size_t t = 0; t < transforms->n; t++) {
    const struct transform_def *def = transform_of(transforms->list[t]);
    for (int i = 0; def->draw_mix && i < model->n_columns; i++) {
      const struct value *input = &model->train->values[model->train->inputs[i]];
      if (input->dtype != DTYPE_F32)
        return err_set(err, ERR_INVALID,
                       "data.transforms.%s: the model's input '%s' is %s, which cannot be mixed", def->name,
                       input->name, dtype_name(input->dtype));
      if (check_image(def, mixing, i, input->name, err))
        return err->code;
    }
  }
  return 0;
}

static const Weir__Transform *transform_choose(const struct mixing *mixing, uint64_t key) {
  const Weir__Transform *mixers[TRANSFORMS_MAX] = {NULL};
  uint64_t n = 0;
  for (size_t t = 0; t < mixing->transforms.n; t++)
    if (transform_of(mixing->transforms.list[t])->draw_mix)
      mixers[n++] = mixing->transforms.list[t];
  return mixers[random_bits(key, 0) % n];
}

/* x of one sample, which other comes before. */
static void sample_blend(const struct mix *mix, const struct image_shape *shape, float *x,
                         const float *other) {
  int64_t plane = shape->height * shape->width;
  for (int64_t c = 0; c < shape->channels; c++, x += plane, other += plane)
    for (int64_t row = mix->top; row < mix->bottom; row++)
      for (int64_t i = row * shape->width + mix->left; i < row * shape->width + mix->right; i++)
        x[i] = other[i] * mix->other + x[i] * mix->own;
}

/* last: room for a sample. */
static void mix_images(const struct mix *mix, const struct image_shape *shape, uint32_t n, float *x,
                       float *last) {
  int64_t elems = shape->channels * shape->height * shape->width;
  memcpy(last, x + (n - 1) * elems, (size_t)elems * sizeof *last);
  for (uint32_t s = n - 1; s > 0; s--)
    sample_blend(mix, shape, x + s * elems, x + (s - 1) * elems);
  sample_blend(mix, shape, x, last);
}

/* A label that is no class adds nothing: data may change while it is mapped. */
static void mix_labels(const struct mixing *mixing, double share, uint32_t n, const int64_t *classes,
                       float *out) {
  const struct label_rule rule = {.classes = mixing->classes, .ignore_index = -1};
  memset(out, 0, (size_t)mixing->classes * n * sizeof *out);
  for (uint32_t s = 0; s < n; s++, out += mixing->classes) {
    int64_t own = classes[s], other = classes[s ? s - 1 : n - 1];
    if (label_is_class(&rule, other))
      out[other] = (float)(1 - share);
    if (label_is_class(&rule, own))
      out[own] += (float)share;
  }
}

/* Room for a sample of any input, and for the labels as they were. */
static void *make_room(const struct mixing *mixing, uint32_t n) {
  size_t bytes = n * sizeof(int64_t);
  for (int i = 0; i < mixing->n_images; i++) {
    const struct image_shape *shape = &mixing->images[i];
    size_t sample_bytes = (size_t)(shape->channels * shape->height * shape->width) * sizeof(float);
    bytes = sample_bytes > bytes ? sample_bytes : bytes;
  }
  return mem_new(bytes);
}

void mixing_apply(const struct mixing *mixing, uint64_t key, uint32_t n, void *const *images, void *labels) {
  const Weir__Transform *transform = transform_choose(mixing, key);
  void *room = make_room(mixing, n);
  struct mix mix = {.share = 1};
  for (int i = 0; i < mixing->n_images; i++) {
    transform_of(transform)->draw_mix(transform, random_bits(key, 1), &mixing->images[i], &mix);
    mix_images(&mix, &mixing->images[i], n, images[i], room);
  }
  memcpy(room, labels, n * sizeof(int64_t));
  mix_labels(mixing, mix.share, n, room, labels);
  free(room);
}
