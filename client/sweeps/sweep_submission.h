/* What a user submits as a sweep: its spec, the run spec that its trials begin with, and the model; checked
   here before anything is started or sent. */
#ifndef WEIR_CLIENT_SWEEPS_SWEEP_SUBMISSION_H
#define WEIR_CLIENT_SWEEPS_SWEEP_SUBMISSION_H

#include "client/cluster/submission.h"
#include "sweep.pb-c.h"

struct sweep_submission {
  const struct spec_source *source; /* borrowed */
  Weir__SweepSpec *spec;            /* settled */
  struct submission submission;     /* of the run spec */
};

/* Reads and checks everything, as the coordinator will do again. Errors: INVALID, UNSUPPORTED or IO; what a
   spec says wrongly is named by the file, the line and the key. Released with sweep_submission_fini, also
   after an error. */
int sweep_submission_load(struct sweep_submission *sweep, const struct spec_source *source, struct err *err);
/* Uploads it, as submission_send does. */
int sweep_submission_send(const struct sweep_submission *sweep, struct connection *connection, char **id,
                          struct err *err);
void sweep_submission_fini(struct sweep_submission *sweep); /* safe on a zeroed one */

#endif
