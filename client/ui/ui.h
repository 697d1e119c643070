/* The dashboard: HTTP on the user's own machine for a browser, gRPC to the coordinator for what it asks. A
   page's calls are those of commands, by the same connection and certificate: client/ui/call.def lists them.
 */
#ifndef WEIR_CLIENT_UI_UI_H
#define WEIR_CLIENT_UI_UI_H

#include "common/rpc/tls.h"

struct ui;

struct ui_options {
  const char *listen;      /* HOST:PORT of this machine; port 0 takes a free one */
  const char *coordinator; /* as connection_open takes it */
  const struct rpc_security *security;
};

/* Serves until ui_close, on threads of its own; asks no coordinator before a page does. options: outlive it.
   Errors: INVALID for an address that is not this machine's; those of http_open and connection_open. */
int ui_open(const struct ui_options *options, struct ui **out, struct err *err);

/* What a browser is to open. Whoever has it may do what our certificate may. */
const char *ui_url(const struct ui *ui);

void ui_close(struct ui *ui); /* NULL is ignored */

#endif
