/* What each client of a port asks for: calls that it has open, and calls a second. A client is whoever shows
   one certificate, or comes from one address where there is no TLS. No calls of the system. Any thread. */
#ifndef WEIR_COMMON_DOOR_CLIENTS_H
#define WEIR_COMMON_DOOR_CLIENTS_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"

struct clients;
struct client; /* one with a call that is open */

struct clients *clients_new(void);
void clients_free(struct clients *clients); /* no call is open; NULL is ignored */

/* One more call of the client with that name, now. Errors: BUSY beyond LIMIT_CLIENT_CALLS, and beyond
   LIMIT_CLIENT_RATE for longer than LIMIT_CLIENT_BURST calls: with the name, the bound, and what to do. */
int clients_enter(struct clients *clients, const char *name, uint64_t now_ns, struct client **out,
                  struct err *err);
void clients_leave(struct clients *clients, struct client *client); /* NULL is ignored */

#endif
