/* Cross-entropy of scores (logits) and classes, as PyTorch's CrossEntropyLoss: one label a sample, a token or
   a pixel, or the probabilities of its classes. */
#include "model/losses/classes.h"

static int cross_entropy_attach(struct loss_site *site, struct err *err) {
  const Weir__LossOptions *options = site->options;
  if (!site->is_mixed && !options->soft_labels)
    return loss_attach_classes(site, false, err);
  if (options->soft_labels && options->has_ignore_index)
    return err_set(err, ERR_INVALID,
                   "model.loss_options.ignore_index: labels that are probabilities (soft_labels) are never "
                   "ignored");
  return loss_attach_probabilities(site, err);
}

static const char *const cross_entropy_options[] = {"label_smoothing", "weight",      "ignore_index",
                                                    "class_axis",      "soft_labels", NULL};

const struct loss_def loss_cross_entropy = {"cross_entropy", cross_entropy_options, cross_entropy_attach};
