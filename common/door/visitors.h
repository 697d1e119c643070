/* Who has connections open to this process, and how many each may have. No calls of the system: the door
   makes them. Not for several threads at a time. */
#ifndef WEIR_COMMON_DOOR_VISITORS_H
#define WEIR_COMMON_DOOR_VISITORS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

#include "common/base/err.h"

struct visitors;

/* Bounds of a process that may have so many descriptors open: its own files, its store and the connections
   that it makes keep a quarter of them, and one address gets half of the rest; never more than
   LIMIT_CONNECTIONS and LIMIT_ADDRESS_CONNECTIONS. */
struct visitors *visitors_new(size_t descriptors);
void visitors_free(struct visitors *visitors);

/* One connection of the address; what a Unix socket brings is our own user's, and counts only for the whole.
   Errors: BUSY, naming the address and the bound. */
struct visitor; /* an address with connections; NULL for a Unix socket */
int visitors_enter(struct visitors *visitors, const struct sockaddr *address, struct visitor **out,
                   struct err *err);
void visitors_leave(struct visitors *visitors, struct visitor *visitor);

size_t visitors_count(const struct visitors *visitors); /* connections */

/* "10.0.0.7", "2001:db8::1", "unix". */
enum { VISITOR_NAME_SIZE = 64 };
void visitor_name(const struct sockaddr *address, char name[VISITOR_NAME_SIZE]);

#endif
