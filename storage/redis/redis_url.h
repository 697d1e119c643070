/* What a redis URL and the environment say: where the servers are and how to talk to them. */
#ifndef WEIR_STORAGE_REDIS_REDIS_URL_H
#define WEIR_STORAGE_REDIS_REDIS_URL_H

#include <stdbool.h>

#include "common/base/err.h"

enum { REDIS_ENDPOINTS_MAX = 16, REDIS_HOST_SIZE = 256, REDIS_PREFIX_MAX = 64 };

enum redis_kind { REDIS_SINGLE, REDIS_SENTINEL, REDIS_CLUSTER };

struct redis_endpoint {
  char host[REDIS_HOST_SIZE]; /* name, address, or with port 0 the path of a unix socket */
  int port;
};

struct redis_config {
  enum redis_kind kind;
  bool has_tls;
  struct redis_endpoint endpoints[REDIS_ENDPOINTS_MAX]; /* the server, the sentinels or some of the nodes */
  int n_endpoints;
  char *user, *password; /* NULL: none */
  char *master;          /* REDIS_SENTINEL: the name that the sentinels know it by */
  int db;
  char *prefix; /* letters, digits and "._:-": means nothing to SCAN's patterns and to a cluster's slots */
  int replicas, timeout_ms;
  char *ca, *cert, *key; /* files; NULL: the system's authorities, no certificate of ours */
  char *name;            /* that every server's certificate must have; NULL: the server's host */
  struct redis_tls *tls; /* of has_tls; NULL before redis_tls_init */
};

/* Also reads WEIR_STORE_PASSWORD_FILE and WEIR_STORE_PASSWORD. Errors: INVALID, the text without anything
   that may be a password; fini is due all the same. */
int redis_config_init(struct redis_config *config, const char *url, struct err *err);
void redis_config_fini(struct redis_config *config);

/* Whether a server may be asked there. Errors: INVALID for plaintext beyond this machine, unless
   store_allow_plaintext; the text goes after the server's name. */
int redis_endpoint_allow(const struct redis_endpoint *endpoint, const struct redis_config *config,
                         struct err *err);

/* False if there is none such. */
bool redis_endpoint_make(const char *host, const char *port, struct redis_endpoint *endpoint);

#endif
