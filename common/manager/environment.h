/* The environment of a process, as whoever started it gave it. */
#ifndef WEIR_COMMON_MANAGER_ENVIRONMENT_H
#define WEIR_COMMON_MANAGER_ENVIRONMENT_H

#include "common/base/err.h"

/* Whether the variables that are one word of a few are. One that is empty is as one that is not set. Errors:
   INVALID, with the variable and its words. */
int environment_check(struct err *err);

#endif
