/* Labels of the workers of world.h, and what people set of its runs. In some worlds the last two workers have
   the label gpu=a and the others gpu=b: the first run requires gpu=a, until people set otherwise. */
#ifndef WEIR_TESTS_SUPPORT_WORLD_WORLD_LABELS_H
#define WEIR_TESTS_SUPPORT_WORLD_WORLD_LABELS_H

#include "tests/support/world/world.h"

/* Of the run as it is submitted; freed with spec_free. */
Weir__RunSpec *labels_spec(const struct world *w, int run);

/* What the process tells when it joins. */
void labels_tell(const struct world *w, const struct process *process, Weir__Hello *hello);

/* A worker that does not have the run is told to load it only if it meets the requirements. */
void labels_check_load(const struct world *w, const struct process *worker, const Weir__LoadRun *load);

/* Within what lets every run end: one that has a single worker, which lies, fails. */
void people_set(struct world *w, int run);

#endif
