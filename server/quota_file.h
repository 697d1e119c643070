/* A file of quotas, which a coordinator goes by while the file changes. */
#ifndef WEIR_SERVER_QUOTA_FILE_H
#define WEIR_SERVER_QUOTA_FILE_H

#include "server/coordinator/quotas/quota.h"

/* Zeroed but for path before first use. */
struct quota_file {
  const char *path;
  char *text;         /* that was taken last */
  struct err refused; /* why what is there now is not taken; OK if it is */
};

/* Reads it: a line as of quotas_add for each tenant, comments from '#' on. Errors: NOT_FOUND, IO, INVALID
   with file and line; nothing is kept then. quotas: zeroed. */
int quota_file_read(struct quota_file *file, struct quotas *quotas, struct err *err);

/* True: the file says something else now, which *quotas (zeroed before) has. One that cannot be used changes
   nothing, and a line in the log says why. */
bool quota_file_look(struct quota_file *file, struct quotas *quotas);

void quota_file_fini(struct quota_file *file);

#endif
