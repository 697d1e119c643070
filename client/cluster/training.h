/* What `weir train` does in a folder: it starts a private cluster, begins or resumes one run, and leaves the
   results. */
#ifndef WEIR_CLIENT_CLUSTER_TRAINING_H
#define WEIR_CLIENT_CLUSTER_TRAINING_H

#include "client/cluster/follow.h"
#include "client/cluster/launcher.h"
#include "client/cluster/submission.h"
#include "client/files/run_file.h"
#include "client/option.h"

/* Everything that a training holds; released by training_fini whatever happened. */
struct training {
  const struct args *args;
  struct submission submission;
  char *out;                /* as the user wrote it */
  char *absolute;           /* the same folder; NULL before it was made */
  char *data_root;          /* of the workers, absolute */
  struct labels labels;     /* likewise */
  struct run_file run;      /* of the folder; its run is NULL before it was submitted */
  struct run_file replaced; /* the run that --force replaces */
  struct launcher *launcher;
  struct connection connection;
  struct metrics *metrics[FOLLOW_METRICS_MAX];
  struct follow_mark mark;
  struct follow_result result;
  bool is_paused; /* and may be resumed */
};

/* Checks the spec, its model and the folder: everything that can be refused without starting a process. */
int training_prepare(struct training *training, struct err *err);

/* Starts the cluster and waits until all have joined. */
int training_launch(struct training *training, struct err *err);

/* Submits the run or resumes it, follows it to its end, writes its files. A Ctrl-C pauses it: CANCELLED. */
int training_run(struct training *training, struct err *err);

/* Whether the run keeps an average of its weights, which has files of its own. */
bool training_has_average(const struct training *training);

/* Stops the cluster. An error that came from a process's death is put as such. */
void training_stop(struct training *training, struct err *err);

/* The command that resumes, for a shell, and a line end. */
void training_print_resume(const struct training *training, FILE *file);

void training_fini(struct training *training);

#endif
