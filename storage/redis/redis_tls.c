/* Certificates of connections to a Redis. */
#include "storage/redis/redis_tls.h"

#include <openssl/err.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/memory.h"

struct redis_tls {
  pthread_mutex_t lock; /* what follows */
  SSL_CTX *context;     /* of the newest files that could be used */
  struct err refused;   /* why those that are there now cannot; OK if they can */
};

static const char *tls_reason(void) {
  const char *reason = ERR_reason_error_string(ERR_peek_last_error());
  return reason ? reason : "no reason given";
}

static SSL_CTX *context_read(const struct redis_config *config, struct err *err) {
  SSL_CTX *context;
  const char *wrong = NULL;
  ERR_clear_error();
  context = SSL_CTX_new(TLS_client_method());
  if (!context) {
    err_set(err, ERR_NO_MEMORY, "store: TLS: %s", tls_reason());
    return NULL;
  }
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION);
  if (config->ca ? !SSL_CTX_load_verify_locations(context, config->ca, NULL)
                 : !SSL_CTX_set_default_verify_paths(context))
    wrong = config->ca ? config->ca : "the system's certificates";
  else if (config->cert && SSL_CTX_use_certificate_chain_file(context, config->cert) != 1)
    wrong = config->cert;
  else if (config->key && (SSL_CTX_use_PrivateKey_file(context, config->key, SSL_FILETYPE_PEM) != 1 ||
                           SSL_CTX_check_private_key(context) != 1))
    wrong = config->key;
  if (!wrong)
    return context;
  err_set(err, ERR_INVALID, "store: TLS: %.300s: %s", wrong, tls_reason());
  ERR_clear_error();
  SSL_CTX_free(context);
  return NULL;
}

int redis_tls_init(struct redis_config *config, struct err *err) {
  SSL_CTX *context;
  struct redis_tls *tls;
  if (!config->has_tls)
    return 0;
  context = context_read(config, err);
  if (!context)
    return err->code;
  config->tls = tls = mem_new(sizeof *tls);
  tls->context = context;
  pthread_mutex_init(&tls->lock, NULL);
  return 0;
}

void redis_tls_fini(struct redis_config *config) {
  struct redis_tls *tls = config->tls;
  if (!tls)
    return;
  SSL_CTX_free(tls->context);
  pthread_mutex_destroy(&tls->lock);
  free(tls);
  config->tls = NULL;
}

SSL_CTX *redis_tls_context(const struct redis_config *config) {
  struct redis_tls *tls = config->tls;
  struct err err = ERR_NONE;
  SSL_CTX *context = context_read(config, &err), *chosen;
  pthread_mutex_lock(&tls->lock);
  if (context) {
    SSL_CTX_free(tls->context);
    tls->context = context;
  } else if (strcmp(tls->refused.text, err.text) != 0)
    log_event(LOG_WARN, "store", "certificates_not_taken", "reason=\"%s\"", err.text);
  tls->refused = err;
  chosen = tls->context;
  SSL_CTX_up_ref(chosen);
  pthread_mutex_unlock(&tls->lock);
  return chosen;
}
