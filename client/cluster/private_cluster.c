/* A private cluster in a folder, which may be a temporary one. */
#include "client/cluster/private_cluster.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "client/cluster/stop.h"
#include "client/files/result_dir.h"
#include "common/base/memory.h"

enum { LOST_CHILD_MS = 2000 };

char *private_cluster_data_root(const char *given, const Weir__RunSpec *spec, struct err *err) {
  const char *own = spec->data && spec->data->root ? spec->data->root : "";
  struct stat status;
  char *path;
  if (!given)
    return mem_strdup(*own == '/' && stat(own, &status) == 0 && S_ISDIR(status.st_mode) ? own : "/");
  path = realpath(given, NULL);
  if (!path)
    err_errno(err, errno, "--data-root %s", given);
  return path;
}

static int make_folder(struct private_cluster *cluster, struct err *err) {
  const char *place = getenv("TMPDIR");
  char *logs;
  cluster->folder = mem_printf("%s/weir-XXXXXX", place && *place == '/' ? place : "/tmp");
  if (!mkdtemp(cluster->folder)) {
    err_errno(err, errno, "cannot make a temporary folder '%s'", cluster->folder);
    free(cluster->folder);
    cluster->folder = NULL;
    return err->code;
  }
  logs = mem_printf("%s/logs", cluster->folder);
  if (mkdir(logs, 0777))
    err_errno(err, errno, "cannot make the folder '%s'", logs);
  free(logs);
  return err->code;
}

int private_cluster_start(struct private_cluster *cluster, const struct launcher_options *members,
                          struct connection *connection, struct err *err) {
  struct launcher_options options = *members;
  const char *folder = cluster->kept;
  char *logs, *store;
  if (!folder && make_folder(cluster, err))
    return err->code;
  folder = folder ? folder : cluster->folder;
  options.servers = members->servers > 0 ? members->servers : 1;
  options.restart = true;
  options.threads = launcher_threads(members->threads, members->workers);
  options.logs = logs = mem_printf("%s/logs", folder);
  options.store = store = mem_printf("file://%s/store", folder);
  if (launcher_start(&options, &cluster->launcher, err) == 0 &&
      connection_open(connection, launcher_address(cluster->launcher),
                      &(struct rpc_security){.folder = options.tls}, err) == 0)
    launcher_wait_members(cluster->launcher, connection, err);
  free(logs);
  free(store);
  return err->code;
}

/* A process's death often shows as a broken connection first. */
void private_cluster_stop(struct private_cluster *cluster, struct err *err) {
  struct err removed = ERR_NONE; /* what is left in a temporary folder is nobody's concern */
  if (cluster->launcher && err_is_retryable(err->code))
    stop_wait(LOST_CHILD_MS);
  if (cluster->launcher && err->code && stop_cause() == STOP_CHILD)
    launcher_explain(cluster->launcher, err);
  launcher_stop(cluster->launcher);
  if (cluster->folder)
    result_dir_remove(cluster->folder, &removed);
  free(cluster->folder);
  *cluster = (struct private_cluster){0};
}
