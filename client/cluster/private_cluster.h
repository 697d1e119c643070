/* A private cluster on this machine for one short run. Nothing of it is left afterwards. */
#ifndef WEIR_CLIENT_CLUSTER_PRIVATE_CLUSTER_H
#define WEIR_CLIENT_CLUSTER_PRIVATE_CLUSTER_H

#include "client/cluster/launcher.h"

struct private_cluster {
  char *folder; /* temporary: logs and store */
  struct launcher *launcher;
};

/* One server and the workers that `workers` asks for: how many, their threads (0: see launcher_threads),
   device and data_root; all else of it is ours. The connection is opened to it; all have joined. Errors:
   those of launcher_start and launcher_wait_members. Zeroed before; stop is due all the same. */
int private_cluster_start(struct private_cluster *cluster, const struct launcher_options *workers,
                          struct connection *connection, struct err *err);
/* Stops the processes and removes the folder. An error that came from a process's death is put as such. Safe
   on a zeroed one. */
void private_cluster_stop(struct private_cluster *cluster, struct err *err);

#endif
