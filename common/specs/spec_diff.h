/* Do two specs ask for the same run, or the same sweep? */
#ifndef WEIR_COMMON_SPECS_SPEC_DIFF_H
#define WEIR_COMMON_SPECS_SPEC_DIFF_H

#include <stdbool.h>
#include <stddef.h>

#include "spec.pb-c.h"
#include "sweep.pb-c.h"

/* Compares all fields, through the messages' descriptors; one that is absent counts as the message's default
   where that has one. When they differ, text is "train.batch is 64 and was 32" of the first field that does.
   may_differ is asked of the path of a field ("train.schedule"): where it says true, neither the field nor
   what is in it is compared. NULL: nothing may differ. Both specs have passed spec_check. */
bool spec_differs(const Weir__RunSpec *now, const Weir__RunSpec *was, bool (*may_differ)(const char *path),
                  char *text, size_t size);

/* The same of sweep specs, which have passed sweep_spec_check_base, but for their budgets and the names of
   their run specs' files. A dimension is named by its key: "space.train.optimizer.lr.log[0] is 0.1 and was
   0.2". */
bool sweep_spec_differs(const Weir__SweepSpec *now, const Weir__SweepSpec *was, char *text, size_t size);

#endif
