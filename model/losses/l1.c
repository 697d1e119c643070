/* The absolute error, as PyTorch's L1Loss. */
#include "model/losses/elements.h"

static int l1_attach(struct loss_site *site, struct err *err) {
  return loss_attach_elements(site, &(struct element_loss){.kind = "l1", .weights = -1}, err);
}

static const char *const l1_options[] = {NULL};

const struct loss_def loss_l1 = {"l1", l1_options, l1_attach};
