/* The squared error near 0, delta times the absolute error beyond delta, as PyTorch's HuberLoss. */
#include "model/losses/elements.h"

static int huber_attach(struct loss_site *site, struct err *err) {
  struct element_loss loss = {.kind = "huber", .parameter = site->options->delta, .weights = -1};
  return loss_attach_elements(site, &loss, err);
}

static const char *const huber_options[] = {"delta", NULL};

const struct loss_def loss_huber = {"huber", huber_options, huber_attach};
