/* Adam's update, for its rows. */
#ifndef WEIR_COMMON_OPTIM_OPTIMIZERS_ADAM_H
#define WEIR_COMMON_OPTIM_OPTIMIZERS_ADAM_H

#include "common/optim/optimizer.h"

enum { ADAM_SLOTS = 2, AMSGRAD_SLOTS = 3 };

/* One step of a row: whether the largest of the past second moments counts (AMSGRAD_SLOTS), and how weights
   decay. */
void adam_step(const Weir__OptimizerSpec *spec, const struct optimizer_update *update, bool is_amsgrad,
               bool is_decoupled);

#endif
