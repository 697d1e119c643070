/* Negative log-likelihood of log-probabilities and classes, as PyTorch's NLLLoss. */
#include "model/losses/classes.h"

static int nll_attach(struct loss_site *site, struct err *err) {
  return loss_attach_classes(site, true, err);
}

static const char *const nll_options[] = {"weight", "ignore_index", "class_axis", NULL};

const struct loss_def loss_nll = {"nll", nll_options, nll_attach};
