/* normalize: (x - mean[c]) / std[c] for each channel c, as torchvision.transforms.Normalize; one value serves
   all channels. */
#include "worker/data/transform.h"

static int normalize_check(const Weir__Transform *transform, bool is_training, struct image_shape *shape,
                           struct err *err) {
  size_t n = transform->normalize->n_mean;
  (void)is_training;
  if (n == 1 || (int64_t)n == shape->channels)
    return 0;
  return err_set(err, ERR_INVALID, "%zu values for samples of %lld channels", n, (long long)shape->channels);
}

static void normalize_pointwise(const Weir__Transform *transform, int64_t channel, float *x, int64_t elems) {
  const Weir__Normalize *normalize = transform->normalize;
  size_t at = normalize->n_mean == 1 ? 0 : (size_t)channel;
  float mean = (float)normalize->mean[at], std = (float)normalize->std[at];
  for (int64_t i = 0; i < elems; i++)
    x[i] = (x[i] - mean) / std;
}

const struct transform_def transform_normalize = {
    .name = "normalize", .check = normalize_check, .pointwise = normalize_pointwise};
