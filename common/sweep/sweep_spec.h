/* Sweep specs: reading, and the checks that need no cluster. */
#ifndef WEIR_COMMON_SWEEP_SWEEP_SPEC_H
#define WEIR_COMMON_SWEEP_SWEEP_SPEC_H

#include "common/agree/spec.h"
#include "common/sweep/space.h"
#include "sweep.pb-c.h"

/* Reads a sweep spec's YAML, with the source's settings in it, as spec_read_source does a run's. *out is
   freed with message_free. */
int sweep_spec_read(const struct spec_source *source, Weir__SweepSpec **out, struct err *err);

/* What any process can check about a sweep spec, from a file or from the network. Gives objective, search,
   schedule and budget, which are there afterwards, and what they leave open their defaults. Errors: INVALID,
   naming the key by its path; spec_blame finds its line. */
int sweep_spec_check(Weir__SweepSpec *spec, struct err *err);

/* The same of a run spec that trials are to begin with: it has the metric of the objective, and every
   dimension is a key that may have its values. base has passed spec_check and spec_settle_check. Rungs take
   the place of schedule.interval. Errors: INVALID, naming the sweep's key, with what the run spec says of a
   value. */
int sweep_spec_check_base(Weir__SweepSpec *spec, const Weir__RunSpec *base, struct err *err);

/* A copy of the base that says what its model has to have for the objective; freed with spec_free. */
Weir__RunSpec *sweep_model_spec(const Weir__SweepSpec *spec, const Weir__RunSpec *base);

/* The same of a file of the space, with the values by which the space has it. *out: freed with spec_free.
   Errors: as sweep_spec_check_base, which the spec has passed. */
int sweep_file_spec(const Weir__SweepSpec *spec, const Weir__RunSpec *base, uint32_t file,
                    Weir__RunSpec **out, struct err *err);

/* For sweep_spec_check_base: of the space alone. */
int sweep_check_values(const Weir__SweepSpec *spec, const Weir__RunSpec *base, struct err *err);

/* Point i of the spec's own. Errors: INVALID, "points[i]...". */
int sweep_point(const Weir__SweepSpec *spec, const struct space *space, int i, double *point,
                struct err *err);

#endif
