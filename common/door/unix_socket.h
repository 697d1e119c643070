/* Sockets in the file system, at addresses unix:/ABSOLUTE/PATH. Who may enter a socket's folder may connect
   to it, and who may write there may put another socket in its place. So both ends want a folder that is this
   user's own and lets nobody else in (mode 0700). Nothing else says who the other end is. */
#ifndef WEIR_COMMON_DOOR_UNIX_SOCKET_H
#define WEIR_COMMON_DOOR_UNIX_SOCKET_H

#include <stdbool.h>

#include "common/base/err.h"

/* Whether an address is one of these, right or wrong: it begins with "unix:". */
bool unix_socket_is(const char *address);

/* Errors: INVALID for a path that is not absolute, is longer than the system takes, or has a comma, a blank
 * or a control character. */
int unix_socket_check(const char *address, struct err *err);

/* Whether the socket's folder is as it has to be. Errors: those of unix_socket_check; INVALID, naming the
   folder and what to do. */
int unix_socket_trust(const char *address, struct err *err);

/* Before listening: what unix_socket_trust wants, and that nobody listens there. The socket of a process that
   has ended is removed. Until unix_socket_release other processes of ours wait that would claim one in this
   folder. Errors: those of unix_socket_trust; INVALID for a file that is no socket, UNAVAILABLE with the
   process that listens there. */
int unix_socket_claim(const char *address, int *claim, struct err *err);
void unix_socket_release(int claim); /* < 0 is ignored */

/* An address beside that one, in its folder; freed by the caller. */
char *unix_socket_beside(const char *address, const char *name);

#endif
