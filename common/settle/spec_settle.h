/* The checks of a spec against the tables that its names come from: metrics, optimizers, schedules, modes. */
#ifndef WEIR_COMMON_SETTLE_SPEC_SETTLE_H
#define WEIR_COMMON_SETTLE_SPEC_SETTLE_H

#include "common/base/err.h"
#include "spec.pb-c.h"

/* For a spec that has passed spec_check: every name in it is known, every option belongs to the row that was
   chosen and is within its range. Options of optimizer and schedule that are absent get their row's defaults.
   Errors: INVALID, naming the key by its path and, for an unknown name, the names that are known. */
int spec_settle(Weir__RunSpec *spec, struct err *err);

/* As far as workers go by the spec: its mode, and where they take steps of their own, what these go by. */
int spec_settle_steps(Weir__RunSpec *spec, struct err *err);

/* The same checks for a spec that stays as its user wrote it. */
int spec_settle_check(const Weir__RunSpec *spec, struct err *err);

#endif
