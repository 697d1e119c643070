/* Mixing: transforms of whole microbatches. They blend each sample, and its label, with the one before it in
   the microbatch, and the first with the last (torchvision's roll by one). */
#ifndef WEIR_WORKER_DATA_MIXING_H
#define WEIR_WORKER_DATA_MIXING_H

#include "model/model.h"
#include "worker/data/form.h"

/* What feeds the train graph, and what of it is mixed. */
struct mixing {
  struct transforms transforms;
  struct image_shape images[MODEL_INPUTS_MAX]; /* of each input but the labels, after the transforms */
  int n_images;
  int64_t classes;
};

/* forms: [model->n_columns], bound to the train graph's inputs. Errors:
   INVALID for an input that cannot be mixed. */
int mixing_init(struct mixing *mixing, const struct model *model, const struct transforms *transforms,
                const struct column_form *forms, struct err *err);

/* Mixes n samples in place by one of the list's transforms that mix, drawn from the key, as all that it does.
   images: f32[n, sample...] each; labels: i64[n] becomes f32[n, classes], for which there is room. Any
   thread.
 */
void mixing_apply(const struct mixing *mixing, uint64_t key, uint32_t n, void *const *images, void *labels);

#endif
