/* The certificates of this process. */
#include "common/rpc/tls.h"

#include <stdlib.h>

#include "common/base/memory.h"
#include "common/certs/denied.h"

const char *rpc_tls_folder(const char *option) {
  const char *usual = getenv("WEIR_TLS");
  if (option)
    return option;
  return usual && *usual ? usual : NULL;
}

int rpc_tls_open(const char *folder, struct rpc_tls **out, struct err *err) {
  struct cert_files files;
  struct cert_facts facts;
  struct cert_denied denied;
  *out = NULL;
  if (!folder)
    return 0;
  if (cert_files_read(folder, &files, err))
    return err_prefix(err, "TLS");
  if (cert_files_check(&files, folder, &facts, err) || cert_denied_read(folder, &denied, err)) {
    err_prefix(err, "TLS");
  } else {
    cert_denied_free(&denied);
    *out = mem_new(sizeof **out);
    **out = (struct rpc_tls){.folder = mem_strdup(folder), .facts = facts};
  }
  cert_files_free(&files);
  return err->code;
}

void rpc_tls_close(struct rpc_tls *tls) {
  if (!tls)
    return;
  free(tls->folder);
  free(tls);
}

int rpc_tls_check(const char *folder, enum cert_role role, struct err *err) {
  struct rpc_tls *tls;
  if (rpc_tls_open(folder, &tls, err) == 0)
    rpc_tls_require(tls, role, err);
  rpc_tls_close(tls);
  return err->code;
}

int rpc_tls_require(const struct rpc_tls *tls, enum cert_role role, struct err *err) {
  const struct cert_holder *holder = tls ? &tls->facts.holder : NULL;
  if (!tls || cert_role_covers(holder->role, role))
    return 0;
  return err_set(err, ERR_INVALID,
                 "TLS: %s/cert.pem is that of the %s '%s': a certificate of the role %s is needed",
                 tls->folder, cert_role_name(holder->role), holder->name, cert_role_name(role));
}
