/* Who may call a method, by its certificate; without TLS everybody may. The column of methods.def. */
#ifndef WEIR_COMMON_RPC_CALLERS_H
#define WEIR_COMMON_RPC_CALLERS_H

#include <protobuf-c/protobuf-c.h>

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

/* The audit log: a line for each call that changes something, by whom and from where. Which methods those are
   follows from their callers in methods.def: all that are for submitters and operators alone. */
struct rpc_audit {
  const char *method, *peer;
  const struct cert_holder *holder; /* NULL: it has shown no certificate */
  const char *of, *reply; /* what request and reply name, by rpc_audit_names; NULL: there was none */
};

bool rpc_audit_covers(enum rpc_callers callers);

/* The runs, the sweep, the worker or the server that a message names, escaped, with commas between them; NULL
   where memory is short. Freed by the caller. */
char *rpc_audit_names(const ProtobufCMessage *message);

/* err: what the call is answered with; NULL or code 0: it was done. */
void rpc_audit_log(const struct rpc_audit *audit, const struct err *err);

#endif
