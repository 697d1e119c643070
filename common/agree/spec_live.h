/* What of a run's spec can be changed while it goes on. */
#ifndef WEIR_COMMON_AGREE_SPEC_LIVE_H
#define WEIR_COMMON_AGREE_SPEC_LIVE_H

#include "common/agree/spec.h"

/* Puts settings, PATH=VALUE as of a spec_source, into a spec that spec_check has seen: of priority,
   workers.min, workers.max, workers.weight, workers.require and train.hold, none of which changes the result.
   null gives a key its default again. Errors, which leave the spec as it was: INVALID, naming the setting or
   the key; also of a hold that would not be raised. */
int spec_set_live(Weir__RunSpec *spec, const char *const *settings, int n, struct err *err);

/* Whether train.hold is among such settings. */
bool spec_sets_hold(const char *const *settings, int n);

/* Gives a spec what another one has of these keys; of train.hold, what is higher. */
void spec_take_live(Weir__RunSpec *spec, const Weir__RunSpec *from);

#endif
