/* Credentials of ports and channels. */
#include "common/rpc/credentials.h"

#include <grpc/support/string_util.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/memory.h"

enum { REFRESH_S = 1 };

struct rpc_port_keys {
  const struct rpc_tls *tls; /* NULL: plaintext */
  struct cert_files given;   /* to gRPC, the last time; the port's lock is held */
  struct err refused;        /* why the files that are there now are not taken; OK if they are */
};

/* How a channel looks at the certificate that its server shows, in the handshake: it must have the name that
   the channel asks for, and pass the guard, which connections keep for as long as they need it. */
struct verifier {
  grpc_tls_certificate_verifier_external external;
  grpc_tls_certificate_verifier *names; /* gRPC's own: of the name that is asked for */
  struct rpc_guard *guard;
};

static void destruct(void *user) {
  struct verifier *verifier = user;
  grpc_tls_certificate_verifier_release(verifier->names);
  rpc_guard_put(verifier->guard);
  free(verifier);
}

/* True: it was done at once. */
static int verify(void *user, grpc_tls_custom_verification_check_request *request,
                  grpc_tls_on_custom_verification_check_done_cb callback, void *callback_arg,
                  grpc_status_code *status, char **details) {
  struct verifier *verifier = user;
  const char *pem = request->peer_info.peer_cert ? request->peer_info.peer_cert : "";
  struct rpc_guest *guest;
  struct err err = ERR_NONE;
  CHECK(grpc_tls_certificate_verifier_verify(verifier->names, request, callback, callback_arg, status,
                                             details));
  if (*status != GRPC_STATUS_OK)
    return 1;
  guest = rpc_guard_meet_pem(verifier->guard, pem, strlen(pem));
  if (rpc_guard_check(verifier->guard, guest, &err)) {
    *status = GRPC_STATUS_PERMISSION_DENIED;
    *details = gpr_strdup(err.text);
  }
  rpc_guest_put(guest);
  return 1;
}

static void cancel(void *user, grpc_tls_custom_verification_check_request *request) {
  (void)user, (void)request; /* nothing of it is ever under way */
}

static grpc_tls_certificate_verifier *verifier_new(struct rpc_guard *guard) {
  struct verifier *verifier = mem_new(sizeof *verifier);
  verifier->external = (grpc_tls_certificate_verifier_external){verifier, verify, cancel, destruct};
  verifier->names = grpc_tls_certificate_verifier_host_name_create();
  verifier->guard = rpc_guard_get(guard);
  return grpc_tls_certificate_verifier_external_create(&verifier->external);
}

static grpc_tls_credentials_options *options_new(const struct rpc_tls *tls, struct rpc_guard *guard) {
  char *ca = mem_printf("%s/ca.pem", tls->folder), *certificate = mem_printf("%s/cert.pem", tls->folder);
  char *key = mem_printf("%s/key.pem", tls->folder);
  grpc_tls_certificate_provider *provider =
      grpc_tls_certificate_provider_file_watcher_create(key, certificate, ca, REFRESH_S);
  grpc_tls_certificate_verifier *verifier = verifier_new(guard);
  grpc_tls_credentials_options *options = grpc_tls_credentials_options_create();
  grpc_tls_credentials_options_set_certificate_provider(options, provider);
  grpc_tls_certificate_provider_release(provider);
  grpc_tls_credentials_options_set_certificate_verifier(options, verifier);
  grpc_tls_certificate_verifier_release(verifier);
  grpc_tls_credentials_options_watch_root_certs(options);
  grpc_tls_credentials_options_watch_identity_key_cert_pairs(options);
  free(key);
  free(certificate);
  free(ca);
  return options;
}

grpc_channel_credentials *rpc_channel_credentials(const struct rpc_tls *tls, struct rpc_guard *guard) {
  return tls ? grpc_tls_credentials_create(options_new(tls, guard)) : grpc_insecure_credentials_create();
}

struct rpc_port_keys *rpc_port_keys_new(const struct rpc_tls *tls) {
  struct rpc_port_keys *keys = mem_new(sizeof *keys);
  keys->tls = tls;
  return keys;
}

void rpc_port_keys_free(struct rpc_port_keys *keys) {
  if (!keys)
    return;
  cert_files_free(&keys->given);
  free(keys);
}

/* Takes the files that are there now, if they can be used. */
static void keys_read(struct rpc_port_keys *keys) {
  struct cert_files files;
  struct cert_facts facts;
  struct err err = ERR_NONE;
  if (cert_files_read(keys->tls->folder, &files, &err) == 0) {
    if (keys->given.ca && cert_files_same(&files, &keys->given)) {
      cert_files_free(&files);
    } else if (cert_files_check(&files, keys->tls->folder, &facts, &err) == 0) {
      if (keys->given.ca)
        log_event(LOG_INFO, "tls", "new_certificate", "folder=\"%s\" serial=%s", keys->tls->folder,
                  facts.serial);
      cert_files_free(&keys->given);
      keys->given = files;
    } else
      cert_files_free(&files);
  }
  if (err.code && strcmp(keys->refused.text, err.text) != 0)
    log_event(LOG_WARN, "tls", "certificates_not_taken", "reason=\"%s\"", err.text);
  keys->refused = err;
}

/* Before each handshake, which gets keys for tickets of its own: no session is ever resumed, so every
   connection shows a certificate and has it looked at. */
static grpc_ssl_certificate_config_reload_status keys_fetch(void *user,
                                                            grpc_ssl_server_certificate_config **config) {
  struct rpc_port_keys *keys = user;
  grpc_ssl_pem_key_cert_pair pair;
  keys_read(keys);
  if (!keys->given.ca)
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_FAIL;
  pair = (grpc_ssl_pem_key_cert_pair){.private_key = keys->given.key, .cert_chain = keys->given.cert};
  *config = grpc_ssl_server_certificate_config_create(keys->given.ca, &pair, 1);
  return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
}

grpc_server_credentials *rpc_server_credentials(struct rpc_port_keys *keys) {
  if (!keys->tls)
    return grpc_insecure_server_credentials_create();
  return grpc_ssl_server_credentials_create_with_options(
      grpc_ssl_server_credentials_create_options_using_config_fetcher(
          GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY, keys_fetch, keys));
}
