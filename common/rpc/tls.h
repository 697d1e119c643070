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

/* What protects the connections of a process. */
struct rpc_security {
  const char *folder; /* of certificates; NULL: there are none, and connections are plaintext */
  bool is_insecure;   /* plaintext may go beyond this machine */
};

/* By the options --tls (NULL: not given) and --insecure, else by WEIR_TLS, else by WEIR_INSECURE. folder
   belongs to the option or the environment. Errors: INVALID for both options, and for a WEIR_INSECURE that is
   neither 1 nor 0. */
int rpc_security_choose(const char *tls, bool insecure, struct rpc_security *out, struct err *err);

/* Whether a process may listen at an address, connect there, or tell others to; or at several, separated by
   commas. Errors: INVALID for one beyond this machine without certificates, unless is_insecure, and for a
   socket in a folder that others may enter: it begins with the address and says what to do. */
int rpc_security_check(const struct rpc_security *security, const char *addresses, struct err *err);

/* One line in the log of a process whose plaintext may go beyond this machine. */
void rpc_security_warn(const struct rpc_security *security);

/* folder NULL: *out is NULL, and connections are plaintext. Errors: those of cert_files_read,
 * cert_files_check and cert_denied_read. */
int rpc_tls_open(const char *folder, struct rpc_tls **out, struct err *err);
void rpc_tls_close(struct rpc_tls *tls); /* NULL is ignored */

/* The URI of the holder of the certificate that the folder has now. False: it cannot be read. */
bool rpc_tls_holder(const struct rpc_tls *tls, char uri[CERT_TEXT_SIZE]);

/* Whether a process with these certificates may be that; NULL may be anything. Errors: INVALID, naming both.
 */
int rpc_tls_require(const struct rpc_tls *tls, enum cert_role role, struct err *err);

/* Whether a process that is given the folder could be that. Errors: those of rpc_tls_open and
 * rpc_tls_require. */
int rpc_tls_check(const char *folder, enum cert_role role, struct err *err);

#endif
