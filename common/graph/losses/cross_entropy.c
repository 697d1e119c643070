/* Cross-entropy of scores (logits) and classes, as PyTorch's CrossEntropyLoss: one label a sample, a token or
   a pixel. */
#include "common/graph/losses/classes.h"

static int cross_entropy_attach(struct loss_site *site, struct err *err) {
  return loss_attach_classes(site, false, err);
}

static const char *const cross_entropy_options[] = {"label_smoothing", "weight", "ignore_index", "class_axis",
                                                    NULL};

const struct loss_def loss_cross_entropy = {"cross_entropy", cross_entropy_options, cross_entropy_attach};
