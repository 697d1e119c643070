/* Certificates of those who ask by TLS, which GnuTLS makes for libmicrohttpd. */
#include "common/http/caller.h"

#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <microhttpd.h>

/* GnuTLS has asked for a certificate in the handshake, and not looked at it. */
static int check_signature(gnutls_session_t session, struct err *err) {
  gnutls_typed_vdata_st purpose = {.type = GNUTLS_DT_KEY_PURPOSE_OID,
                                   .data = (unsigned char *)GNUTLS_KP_TLS_WWW_CLIENT};
  gnutls_datum_t text = {0};
  unsigned status = 0;
  int rc = gnutls_certificate_verify_peers(session, &purpose, 1, &status);
  if (rc == GNUTLS_E_NO_CERTIFICATE_FOUND)
    return err_set(err, ERR_DENIED, "a certificate of this cluster's authority is needed here");
  if (rc < 0)
    return err_set(err, ERR_DENIED, "the certificate cannot be read: %s", gnutls_strerror(rc));
  if (!status)
    return 0;
  gnutls_certificate_verification_status_print(status, GNUTLS_CRT_X509, &text, 0);
  err_set(err, ERR_DENIED, "%s", text.data ? (const char *)text.data : "the certificate is not trusted");
  gnutls_free(text.data);
  return err->code;
}

int http_caller_check(struct rpc_guard *guard, struct MHD_Connection *connection, struct rpc_guest **guest,
                      struct err *err) {
  const union MHD_ConnectionInfo *info =
      MHD_get_connection_info(connection, MHD_CONNECTION_INFO_GNUTLS_SESSION);
  const gnutls_datum_t *chain;
  gnutls_datum_t pem = {0};
  unsigned count = 0;
  *guest = NULL;
  if (!info || !info->tls_session)
    return err_set(err, ERR_DENIED, "a certificate of this cluster's authority is needed here");
  if (check_signature(info->tls_session, err))
    return err->code;
  chain = gnutls_certificate_get_peers(info->tls_session, &count);
  if (!chain || count == 0 || gnutls_pem_base64_encode2("CERTIFICATE", &chain[0], &pem) < 0)
    return err_set(err, ERR_DENIED, "the certificate cannot be read");
  *guest = rpc_guard_meet_pem(guard, (const char *)pem.data, pem.size);
  gnutls_free(pem.data);
  return rpc_guard_check(guard, *guest, err);
}
