/* Who may call a method, by its certificate; without TLS everybody may. The column of methods.def. */
#ifndef WEIR_COMMON_RPC_CALLERS_H
#define WEIR_COMMON_RPC_CALLERS_H

#include "common/certs/names.h"

/* The holder of a certificate of the role `all` is all of them: any member, and an operator. */
enum rpc_callers {
  CALLERS_ANYBODY, /* with a certificate */
  CALLERS_MEMBERS, /* servers and workers */
  CALLERS_SERVERS,
  CALLERS_WORKERS,
  CALLERS_VIEWERS,    /* clients, of any access */
  CALLERS_SUBMITTERS, /* clients that may submit, operators among them */
  CALLERS_OPERATORS,
};

bool rpc_callers_hold(enum rpc_callers callers, const struct cert_holder *holder);

/* "servers and workers", for what is said to those that are not. */
const char *rpc_callers_name(enum rpc_callers callers);

#endif
