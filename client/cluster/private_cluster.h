/* A private cluster on this machine, in a folder with its logs and its store. */
#ifndef WEIR_CLIENT_CLUSTER_PRIVATE_CLUSTER_H
#define WEIR_CLIENT_CLUSTER_PRIVATE_CLUSTER_H

#include "client/cluster/launcher.h"
#include "spec.pb-c.h"

struct private_cluster {
  const char
      *kept;    /* the caller's folder, absolute, with logs/ in it; NULL: one that is removed at the end */
  char *folder; /* that one */
  struct launcher *launcher;
};

/* The data root of workers that are started for this spec: the folder that was given, or by default (NULL)
   the spec's own data.root where that is absolute and there, else "/". Absolute; freed by the caller. NULL:
   the error, of the folder that was given. */
char *private_cluster_data_root(const char *given, const Weir__RunSpec *spec, struct err *err);

/* Starts what `members` asks for: how many servers (0: one) and workers, the workers' threads (0: see
   launcher_threads), device and data_root; all else of it is ours. The connection is opened to it; all have
   joined. Errors: those of launcher_start and launcher_wait_members. Zeroed before, but for `kept`; stop is
   due all the same. */
int private_cluster_start(struct private_cluster *cluster, const struct launcher_options *members,
                          struct connection *connection, struct err *err);
/* Stops the processes, and removes the folder if it is ours. An error that came from a process's death is put
   as such. Safe on a zeroed one. */
void private_cluster_stop(struct private_cluster *cluster, struct err *err);

#endif
