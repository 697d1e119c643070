/* Going on with the sweep that a folder holds, by a spec that may have a larger budget. */
#ifndef WEIR_CLIENT_SWEEPS_SWEEP_RESUME_H
#define WEIR_CLIENT_SWEEPS_SWEEP_RESUME_H

#include "client/cluster/connect.h"
#include "client/files/run_file.h"
#include "client/sweeps/sweep_submission.h"

/* What a folder holds. */
struct sweep_folder {
  const char *path;            /* as the user gave it */
  const char *store;           /* the URL of its store, which nobody has open */
  const struct run_file *file; /* its run is the sweep */
};

/* Whether the submission asks for that sweep: nothing of it may differ but its budget, which may be larger.
   *growth: the bounds that are, as they are to be. Before anything is started. Errors: INVALID, naming the
   file, the line and the key; NOT_FOUND where the store does not have the sweep; those of the store. */
int sweep_resume_check(const struct sweep_submission *sweep, const struct sweep_folder *folder,
                       Weir__SweepBudget *growth, struct err *err);

/* Gives the sweep the bounds that have grown, where there are any; the time that it has used of
   budget.seconds counts. Errors: those of the coordinator. */
int sweep_resume_extend(struct connection *connection, const char *id, const Weir__SweepBudget *growth,
                        struct err *err);

#endif
