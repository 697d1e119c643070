/* The certificates of a store's connections: the files that its URL names, read again for each connection. */
#ifndef WEIR_STORAGE_REDIS_REDIS_TLS_H
#define WEIR_STORAGE_REDIS_REDIS_TLS_H

#include <openssl/ssl.h>

#include "storage/redis/redis_url.h"

/* Reads ca, cert and key, and keeps them in config->tls. Errors: INVALID, names the file. */
int redis_tls_init(struct redis_config *config, struct err *err);
void redis_tls_fini(struct redis_config *config);

/* What the files say now. Files that cannot be used, as those of a folder that is being replaced, leave it as
   it was, and the log says so once. Released by SSL_CTX_free. Any thread. */
SSL_CTX *redis_tls_context(const struct redis_config *config);

#endif
