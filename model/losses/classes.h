/* What the losses of classes share. */
#ifndef WEIR_MODEL_LOSSES_CLASSES_H
#define WEIR_MODEL_LOSSES_CLASSES_H

#include "model/losses/loss.h"

/* Labels i64 of the output's shape without the classes, and a node CrossEntropy. is_log: the output are
   log-probabilities. */
int loss_attach_classes(struct loss_site *site, bool is_log, struct err *err);

/* Labels f32 of the output's shape, probabilities of the classes, and a node SoftCrossEntropy. The mean is
   over samples, tokens or pixels, whatever their weights. Errors: INVALID. */
int loss_attach_probabilities(struct loss_site *site, struct err *err);

#endif
