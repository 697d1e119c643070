/* The squared error near 0, the absolute error beyond beta, as PyTorch's SmoothL1Loss. */
#include "model/losses/elements.h"

static int smooth_l1_attach(struct loss_site *site, struct err *err) {
  struct element_loss loss = {.kind = "smooth_l1", .parameter = site->options->beta, .weights = -1};
  return loss_attach_elements(site, &loss, err);
}

static const char *const smooth_l1_options[] = {"beta", NULL};

const struct loss_def loss_smooth_l1 = {"smooth_l1", smooth_l1_options, smooth_l1_attach};
