/* Do two specs ask for the same run? */
#ifndef WEIR_COMMON_SPECS_SPEC_DIFF_H
#define WEIR_COMMON_SPECS_SPEC_DIFF_H

#include <stdbool.h>
#include <stddef.h>

#include "spec.pb-c.h"

/* Compares all fields, through the messages' descriptors; one that is absent counts as the message's default
   where that has one. When they differ, text is "train.batch is 64 and was 32" of the first field that does.
   may_differ is asked of the path of a field ("train.schedule"): where it says true, neither the field nor
   what is in it is compared. NULL: nothing may differ. Both specs have passed spec_check. */
bool spec_differs(const Weir__RunSpec *now, const Weir__RunSpec *was, bool (*may_differ)(const char *path),
                  char *text, size_t size);

#endif
