/* The worker's process: one member of the cluster that computes one run at a time, as the coordinator orders.
 */
#ifndef WEIR_WORKER_WORKER_H
#define WEIR_WORKER_WORKER_H

#include "worker/backend/backend.h"

struct worker_options {
  const char *coordinator; /* HOST:PORT, or several parted by commas */
  const char *data_root;
  const char *device; /* as told to the coordinator: "cpu" */
  const struct backend_def *backend;
  int threads; /* executors */
};

/* Serves until SIGTERM or SIGINT, then leaves the cluster: says so, and returns once its work was given to
   others (at most 5 s). A second signal ends the process at once. To be called before any thread is started.
 */
void worker_serve(const struct worker_options *options);

#endif
