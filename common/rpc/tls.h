/* The certificates of this process: who it is on every connection, and whom it believes. */
#ifndef WEIR_COMMON_RPC_TLS_H
#define WEIR_COMMON_RPC_TLS_H

#include "common/certs/folder.h"

/* A folder of certificates, as common/certs/folder.h says. It is read again when its files change, at each
   connection that comes and every second for those that are made: connections that are open stay as they are.
   Immutable; outlives the clients and servers that are made with it. */
struct rpc_tls {
  char *folder;
  struct cert_facts facts; /* at the start */
};

/* The folder that an option names, else WEIR_TLS; NULL: neither. */
const char *rpc_tls_folder(const char *option);

/* folder NULL: *out is NULL, and connections are plaintext. Errors: those of cert_files_read,
 * cert_files_check and cert_denied_read. */
int rpc_tls_open(const char *folder, struct rpc_tls **out, struct err *err);
void rpc_tls_close(struct rpc_tls *tls); /* NULL is ignored */

/* Whether a process with these certificates may be that; NULL may be anything. Errors: INVALID, naming both.
 */
int rpc_tls_require(const struct rpc_tls *tls, enum cert_role role, struct err *err);

/* Whether a process that is given the folder could be that. Errors: those of rpc_tls_open and
 * rpc_tls_require. */
int rpc_tls_check(const char *folder, enum cert_role role, struct err *err);

#endif
