/* The one floating-point setting, of every thread of every program: rounding to nearest even, no traps, and
   subnormals count as zero, with their sign, as operands and as results. They carry no signal, and cost a
   hundred times a normal number's cycles. Where a number is computed must not show in its bits: what an
   executor adds, a server's shard adds on another cluster.

   main() applies the setting before there are threads. A thread has that of the thread which starts it. A
   library may change it for the thread that loads or calls it. */
#ifndef WEIR_COMMON_AGREE_FLOAT_SETTING_H
#define WEIR_COMMON_AGREE_FLOAT_SETTING_H

#include <stdbool.h>

#include "common/base/err.h"

/* Of the calling thread: first of all in main(). */
void float_setting_apply(void);

bool float_setting_holds(void); /* on the calling thread */

/* Where a thread that computes starts; aborts if the setting does not hold. thread: its name. */
void float_setting_require(const char *thread);

/* After a library was loaded or called. Errors: UNAVAILABLE, with the culprit, if the setting does not hold;
   it is applied again. culprit: quoted already, "'/lib/x.so'". */
int float_setting_check(const char *culprit, struct err *err);

#endif
