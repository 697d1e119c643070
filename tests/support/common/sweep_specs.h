/* Specs of sweeps for tests. */
#ifndef WEIR_TESTS_SUPPORT_COMMON_SWEEP_SPECS_H
#define WEIR_TESTS_SUPPORT_COMMON_SWEEP_SPECS_H

#include "common/sweep/sweep.h"

/* A sweep by ASHA over the rate and the batch. */
extern const char sweep_asha_text[];
/* By population based training, over the rate, the optimizer, and one's momentum. */
extern const char sweep_pbt_text[];

Weir__RunSpec *sweep_base_spec(void); /* with an evaluation; freed with spec_free */

/* The spec of a text with settings, checked; freed with message_free. NULL with the error, whose text has its
   place. */
Weir__SweepSpec *sweep_spec_of(const char *text, const char *const *settings, int n, struct err *err);

/* Of a text and settings that are good. Models of its space have 101, 102, ... multiply-adds, and no hash;
   the run spec's has 100. */
struct sweep *sweep_of(const char *text, const char *const *settings, int n);
struct sweep *sweep_of_spec(const Weir__SweepSpec *spec); /* likewise */

#endif
