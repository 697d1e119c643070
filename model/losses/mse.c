/* The squared error, as PyTorch's MSELoss. */
#include "model/losses/elements.h"

static int mse_attach(struct loss_site *site, struct err *err) {
  return loss_attach_elements(site, &(struct element_loss){.kind = "mse", .weights = -1}, err);
}

static const char *const mse_options[] = {NULL};

const struct loss_def loss_mse = {"mse", mse_options, mse_attach};
