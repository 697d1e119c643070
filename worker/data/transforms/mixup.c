/* mixup: each sample and its label become share times themselves plus 1 - share times those of the sample
   before, as torchvision.transforms.v2.MixUp; the share is drawn from Beta(alpha, alpha) (Zhang et al.,
   "mixup: beyond empirical risk minimization", 2018). */
#include "worker/data/random_beta.h"
#include "worker/data/transform.h"

static void mixup_draw(const Weir__Transform *transform, uint64_t key, const struct image_shape *shape,
                       struct mix *mix) {
  double share = random_beta(key, transform->mixup->alpha, transform->mixup->alpha);
  *mix = (struct mix){.share = share,
                      .own = (float)share,
                      .other = (float)(1 - share),
                      .bottom = shape->height,
                      .right = shape->width};
}

const struct transform_def transform_mixup = {.name = "mixup", .draw_mix = mixup_draw};
