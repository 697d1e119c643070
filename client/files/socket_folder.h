/* The folder of a private cluster's sockets: temporary, and nobody else's. */
#ifndef WEIR_CLIENT_FILES_SOCKET_FOLDER_H
#define WEIR_CLIENT_FILES_SOCKET_FOLDER_H

#include <stdbool.h>

#include "common/base/err.h"

/* Whether there is to be one: where --sockets says so, else where WEIR_SOCKETS does. */
bool socket_folder_is_wanted(bool is_given);

/* In TMPDIR, or in /tmp where that is none or too long for sockets. *address: "unix:/tmp/weir-a1b2c3", to
   which
   "/NAME" is added for a process's. NULL on an error. Errors: IO. */
int socket_folder_make(char **address, struct err *err);
/* Removes it, with what killed processes left; frees. NULL is ignored. */
void socket_folder_remove(char *address);

#endif
