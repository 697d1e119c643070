/* The submission of an evaluation: a run of no steps, whose model holds the weights that another run has
   trained. */
#ifndef WEIR_CLIENT_CLUSTER_EVALUATION_H
#define WEIR_CLIENT_CLUSTER_EVALUATION_H

#include "client/cluster/submission.h"
#include "client/cluster/weights_sources.h"
#include "training.pb-c.h"

struct evaluation {
  char *run;     /* whose weights */
  uint64_t step; /* of which checkpoint; 0: those that it began with */
  struct submission submission;
  struct store *store;          /* of a folder, as long as pieces of its model may be read */
  struct piece_download pieces; /* of a run: the same of its coordinator */
};

/* Takes model, spec and weights from a run of the coordinator, or from the run that a results folder of `weir
   train` holds, whose store is only read. wanted: which of the run's weights; its run is not looked at for a
   folder. Errors: NOT_FOUND for no such
   run, checkpoint or folder; those of the coordinator or the store. Released with evaluation_fini, also after
   an error. */
int evaluation_of_run(struct evaluation *evaluation, struct connection *connection,
                      const Weir__WeightsRequest *wanted, struct err *err);
int evaluation_of_folder(struct evaluation *evaluation, const char *folder,
                         const Weir__WeightsRequest *wanted, struct err *err);
void evaluation_fini(struct evaluation *evaluation); /* safe on a zeroed one */

#endif
