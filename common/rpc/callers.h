/* Who may call a method, by its certificate; without TLS everybody may. The column of methods.def. */
#ifndef WEIR_COMMON_RPC_CALLERS_H
#define WEIR_COMMON_RPC_CALLERS_H

#include <grpc/grpc.h>
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

/* By what name a caller's calls are counted (common/door/clients.h): its certificate's URI; without one
   (NULL) the address of its peer, "10.0.0.7" of "ipv4:10.0.0.7:44490". To be freed. */
char *rpc_callers_client(const struct cert_holder *holder, const char *peer);

/* For servers and workers alone. */
bool rpc_callers_are_members(enum rpc_callers callers);

/* Whether the holder of a certificate may call a method. Errors: DENIED, with both. */
int rpc_callers_check(const char *path, enum rpc_callers callers, const struct cert_holder *holder,
                      struct err *err);

/* "servers and workers", for what is said to those that are not. */
const char *rpc_callers_name(enum rpc_callers callers);

/* The ticket that came with a call; NULL: none did. Freed by the caller. */
char *rpc_callers_ticket(const grpc_metadata_array *metadata);

/* The audit log: a line for each call that changes something, by whom and from where. Which methods those are
   follows from their callers: all that are for submitters and operators alone. Of other calls, and of what
   was denied or was no message, there is no line. */
struct rpc_audit {
  char *of, *reply; /* what the first request and the first reply name, escaped; NULL: there was none yet */
};

/* Runs, the sweep, the worker or the server that a message names. */
void rpc_audit_request(struct rpc_audit *audit, enum rpc_callers callers, const ProtobufCMessage *message);
void rpc_audit_reply(struct rpc_audit *audit, enum rpc_callers callers, const ProtobufCMessage *message);
/* `of` must be there. holder: NULL if it has shown no certificate. err: what the call is answered with; NULL
 * or code 0: done. */
void rpc_audit_log(const struct rpc_audit *audit, const char *method, const char *peer,
                   const struct cert_holder *holder, const struct err *err);
void rpc_audit_fini(struct rpc_audit *audit);

#endif
