/* cutmix: a box of each image is that of the sample before, whose label gets as much as the box has of the
   image, as torchvision.transforms.v2.CutMix; the box has 1 - share of the image before it is cut off at the
   borders, the share drawn from Beta(alpha, alpha) (Yun et al., "CutMix", 2019). */
#include <math.h>

#include "common/agree/random.h"
#include "worker/data/random_beta.h"
#include "worker/data/transform.h"

static int64_t edge_least(int64_t a, int64_t b) {
  return a < b ? a : b;
}

static int64_t edge_greatest(int64_t a, int64_t b) {
  return a > b ? a : b;
}

static void cutmix_draw(const Weir__Transform *transform, uint64_t key, const struct image_shape *shape,
                        struct mix *mix) {
  double share = random_beta(random_bits(key, 0), transform->cutmix->alpha, transform->cutmix->alpha);
  double radius = 0.5 * sqrt(1 - share);
  int64_t across = (int64_t)(radius * (double)shape->width), down = (int64_t)(radius * (double)shape->height);
  int64_t x = (int64_t)((double)random_uniform(key, 1) * (double)shape->width);
  int64_t y = (int64_t)((double)random_uniform(key, 2) * (double)shape->height);
  *mix = (struct mix){.other = 1,
                      .top = edge_greatest(y - down, 0),
                      .left = edge_greatest(x - across, 0),
                      .bottom = edge_least(y + down, shape->height),
                      .right = edge_least(x + across, shape->width)};
  mix->share = 1 - (double)((mix->bottom - mix->top) * (mix->right - mix->left)) /
                       (double)(shape->height * shape->width);
}

const struct transform_def transform_cutmix = {.name = "cutmix", .cuts = true, .draw_mix = cutmix_draw};
