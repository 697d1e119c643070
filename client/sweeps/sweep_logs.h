/* The runs of a sweep's trials, as TensorBoard reads them. */
#ifndef WEIR_CLIENT_SWEEPS_SWEEP_LOGS_H
#define WEIR_CLIENT_SWEEPS_SWEEP_LOGS_H

#include "client/cluster/connect.h"

/* Writes the events of all runs of the sweep into the folder (client/files/tensorboard.h), and those that
   come until it has ended if does_follow. A coordinator that is away is waited for then, for a minute.
   Errors: those of the coordinator and of tensorboard_open; CANCELLED on a stop (client/cluster/stop.h). */
int sweep_logs(struct connection *connection, const char *sweep, const char *folder, bool does_follow,
               struct err *err);

#endif
