/* What the losses of targets share. */
#ifndef WEIR_MODEL_LOSSES_ELEMENTS_H
#define WEIR_MODEL_LOSSES_ELEMENTS_H

#include "model/losses/loss.h"

/* Targets f32 of the output's shape, and a node ElementLoss of that kind, with its parameter; the mean is
   over all elements. weights: f32[k] along `axis`, or -1. */
struct element_loss {
  const char *kind;
  double parameter;
  int weights, axis;
};

int loss_attach_elements(struct loss_site *site, const struct element_loss *loss, struct err *err);

#endif
