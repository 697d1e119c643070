/* normalize: (x - mean[c]) / std[c] for each channel c, as torchvision.transforms.Normalize; one value serves
   all channels. */
#include "worker/data/transform.h"

static int normalize_check(const Weir__Transform *transform, int64_t channels, struct err *err) {
  size_t n = transform->normalize->n_mean;
  if (n == 1 || (int64_t)n == channels)
    return 0;
  return err_set(err, ERR_INVALID, "data.transforms.normalize: %zu values for samples of %lld channels", n,
                 (long long)channels);
}

static void normalize_apply(const Weir__Transform *transform, float *x, int64_t elems, int64_t channels) {
  const Weir__Normalize *normalize = transform->normalize;
  int64_t plane = elems / channels;
  for (int64_t c = 0; c < channels; c++) {
    size_t at = normalize->n_mean == 1 ? 0 : (size_t)c;
    float mean = (float)normalize->mean[at], std = (float)normalize->std[at];
    for (int64_t i = 0; i < plane; i++)
      x[c * plane + i] = (x[c * plane + i] - mean) / std;
  }
}

const struct transform_def transform_normalize = {"normalize", normalize_check, normalize_apply};
