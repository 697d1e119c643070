/* What a user submits as a sweep: its spec, the run spec that its trials begin with, and the models; checked
   here before anything is started or sent. */
#ifndef WEIR_CLIENT_SWEEPS_SWEEP_SUBMISSION_H
#define WEIR_CLIENT_SWEEPS_SWEEP_SUBMISSION_H

#include "client/cluster/submission.h"
#include "common/sweep/sweep.h"
#include "sweep.pb-c.h"
#include "training.pb-c.h"

struct sweep_submission {
  const struct spec_source *source; /* borrowed */
  Weir__SweepSpec *spec;            /* settled */
  struct submission submission;     /* of the run spec */
  struct submission_model *files;   /* [n_files] that the space names */
  size_t n_files;
  struct sweep_model *models; /* [1 + n_files] the run spec's first; their hashes are not known */
};

/* Reads and checks everything, as the coordinator will do again. Errors: INVALID, UNSUPPORTED or IO; what a
   spec says wrongly is named by the file, the line and the key. Released with sweep_submission_fini, also
   after an error. */
int sweep_submission_load(struct sweep_submission *sweep, const struct spec_source *source, struct err *err);
/* The model file of a trial with these values, as an absolute path if it is still there; freed by the
   caller. */
char *sweep_submission_model(const struct sweep_submission *sweep, const Weir__SweepTrial *trial);
/* Uploads it, as submission_send does. */
int sweep_submission_send(const struct sweep_submission *sweep, struct connection *connection, char **id,
                          struct err *err);
void sweep_submission_fini(struct sweep_submission *sweep); /* safe on a zeroed one */

#endif
