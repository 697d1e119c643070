/* The certificates of this process. */
#include "common/rpc/tls.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/memory.h"
#include "common/certs/denied.h"
#include "common/door/unix_socket.h"
#include "common/rpc/address.h"

static const char *variable(const char *name) {
  const char *value = getenv(name);
  return value && *value ? value : NULL;
}

int rpc_security_choose(const char *tls, bool insecure, struct rpc_security *out, struct err *err) {
  const char *usual = variable("WEIR_INSECURE");
  *out = (struct rpc_security){.folder = tls, .is_insecure = insecure};
  if (tls && insecure)
    return err_set(err, ERR_INVALID, "--tls and --insecure exclude each other");
  if (!tls && !insecure && !(out->folder = variable("WEIR_TLS")))
    out->is_insecure = usual && strcmp(usual, "1") == 0;
  return 0;
}

int rpc_security_check(const struct rpc_security *security, const char *addresses, struct err *err) {
  char *list, *rest, *address;
  bool goes_beyond = security->folder || security->is_insecure;
  int code = 0;
  list = rest = mem_strdup(addresses);
  while (!code && (address = strsep(&rest, ",")))
    if (unix_socket_is(address))
      code = unix_socket_trust(address, err);
    else if (!goes_beyond && !rpc_address_is_loopback(address))
      code = err_set(err, ERR_INVALID,
                     "%s leads beyond this machine, and there are no certificates: give --tls DIR, which "
                     "`weir certs init` "
                     "makes, or --insecure for plaintext on a network that you trust",
                     address);
  free(list);
  return code;
}

void rpc_security_warn(const struct rpc_security *security) {
  if (!security->folder && security->is_insecure)
    log_event(LOG_WARN, "tls", "insecure",
              "reason=\"connections are plaintext, and nobody shows who they are: --insecure\"");
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

bool rpc_tls_holder(const struct rpc_tls *tls, char uri[CERT_TEXT_SIZE]) {
  struct cert_files files = {0};
  struct cert_facts facts;
  struct err err = ERR_NONE;
  bool is_read = cert_files_read(tls->folder, &files, &err) == 0 &&
                 cert_facts_parse(files.cert, "cert.pem", &facts, &err) == 0;
  if (is_read)
    cert_holder_uri(&facts.holder, uri);
  cert_files_free(&files);
  return is_read;
}

int rpc_tls_require(const struct rpc_tls *tls, enum cert_role role, struct err *err) {
  const struct cert_holder *holder = tls ? &tls->facts.holder : NULL;
  if (!tls || cert_role_covers(holder->role, role))
    return 0;
  return err_set(err, ERR_INVALID,
                 "TLS: %s/cert.pem is that of the %s '%s': a certificate of the role %s is needed",
                 tls->folder, cert_role_name(holder->role), holder->name, cert_role_name(role));
}
