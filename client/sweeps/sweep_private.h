/* `weir sweep` without a cluster: a private one, one sweep, its results. */
#ifndef WEIR_CLIENT_SWEEPS_SWEEP_PRIVATE_H
#define WEIR_CLIENT_SWEEPS_SWEEP_PRIVATE_H

#include "client/option.h"
#include "client/sweeps/sweep_submission.h"

/* Starts the cluster in --out, begins the sweep or (--resume) goes on with the one that is there, follows it
   to its end, and leaves trials.jsonl, best.onnx and best.yaml. Errors: CANCELLED on a stop; those of the
   folder, the cluster and the sweep; INTERNAL where no trial has a result. */
int sweep_private_run(const struct args *args, const struct sweep_submission *sweep, struct err *err);

#endif
