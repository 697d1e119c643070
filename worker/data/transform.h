/* Transforms of samples that feed f32 inputs: rows of transform.def. Names, options and meanings are those of
   torchvision.transforms.v2. */
#ifndef WEIR_WORKER_DATA_TRANSFORM_H
#define WEIR_WORKER_DATA_TRANSFORM_H

#include "spec.pb-c.h"
#include "worker/data/sample.h"

/* What one application of a transform knows. */
struct transform_context {
  bool is_training; /* false: nothing random */
  uint64_t key;     /* of its draws, random_uniform(key, 0), (key, 1), ...: follows from the run's seed, the
                       sample's place in the run's stream, and the transform's place in the list */
};

/* What becomes of the samples of a microbatch: within the box, `own` times what they are plus `other` times
   what the sample before each is; and of their labels, `share` times them plus 1 - share times the other's.
 */
struct mix {
  double share;
  float own, other;
  int64_t top, left, bottom, right;
};

struct transform_def {
  const char *name;

  /* What becomes of the shape. NULL: nothing, of any sample. Errors: INVALID when the options make no sense
     or it cannot be applied to such samples. */
  int (*check)(const Weir__Transform *transform, bool is_training, struct image_shape *shape,
               struct err *err);

  /* One of the two, or neither: then samples stay as they are. Of each element by itself, in place: */
  void (*pointwise)(const Weir__Transform *transform, int64_t channel, float *x, int64_t elems);
  /* Of the sample: new dimensions and steps, sample_floats, or sample_renew. Errors: NO_MEMORY, or INVALID
     for this very sample. */
  int (*apply)(const Weir__Transform *transform, const struct transform_context *context,
               struct sample *sample, struct err *err);

  /* Of transforms of whole microbatches in training (mixing.h), else NULL; from the key alone. They do
     nothing to single samples. */
  void (*draw_mix)(const Weir__Transform *transform, uint64_t key, const struct image_shape *shape,
                   struct mix *mix);
  bool cuts; /* its box is a part of an image */
};

/* The one that the entry names; spec_check has seen to it that there is exactly one. */
const struct transform_def *transform_of(const Weir__Transform *transform);

enum { TRANSFORMS_MAX = 32 };

/* A list of transforms, of the spec. */
struct transforms {
  Weir__Transform *const *list;
  size_t n;
  bool is_training;
  bool is_for_evaluation; /* it is data.eval_transforms, for messages */
};

/* Checks them in their order; shape: before the first, then after the last. Errors: INVALID beginning with
   "data.transforms[I].NAME: " or "data.eval_transforms[I].NAME: ". */
int transforms_check(const struct transforms *transforms, struct image_shape *shape, struct err *err);

/* What samples have in common. */
struct sample_kind {
  enum dtype dtype;
  int64_t channels;
};

/* Several samples of one kind go through it. */
struct transforms_run {
  const struct transforms *transforms;
  const struct transform_def *defs[TRANSFORMS_MAX];
  const float
      *tables; /* f32[n, channels, BYTE_VALUES]: what byte values are after each transform; NULL: none */
};

/* Prepares for samples of that kind. scratch keeps what is prepared: it stays with the
   run, and with all samples of it. Errors: NO_MEMORY. */
int transforms_begin(const struct transforms *transforms, struct sample_kind kind, struct scratch *scratch,
                     struct transforms_run *run, struct err *err);

/* Applies them all. key: of the sample in the run's stream. */
int transforms_apply(const struct transforms_run *run, uint64_t key, struct sample *sample, struct err *err);

#endif
