/* What a redis URL and the environment say. */
#include "storage/redis/redis_url.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/loopback.h"
#include "common/base/memory.h"
#include "storage/store.h"

enum { PORT_DEFAULT = 6379, SENTINEL_PORT_DEFAULT = 26379, PASSWORD_FILE_MAX = 4096 };
enum { UNIX_PATH_MAX = 106 }; /* hiredis 0.14 does not end a path of 107 */

struct scheme {
  const char *name;
  enum redis_kind kind;
  bool has_tls, is_unix;
};

static const struct scheme schemes[] = {
    {"redis://", REDIS_SINGLE, false, false},
    {"rediss://", REDIS_SINGLE, true, false},
    {"redis+unix://", REDIS_SINGLE, false, true},
    {"redis+sentinel://", REDIS_SENTINEL, false, false},
    {"rediss+sentinel://", REDIS_SENTINEL, true, false},
    {"redis+cluster://", REDIS_CLUSTER, false, false},
    {"rediss+cluster://", REDIS_CLUSTER, true, false},
};

static const struct scheme *find_scheme(const char *url);
static int parse_user(struct redis_config *config, const char *text, size_t length, struct err *err);
static int parse_place(struct redis_config *config, const struct scheme *scheme, char *place,
                       struct err *err);
static bool parse_endpoint(const char *text, int default_port, struct redis_endpoint *endpoint);
static int parse_path(struct redis_config *config, const char *path, struct err *err);
static int parse_options(struct redis_config *config, char *options, struct err *err);
static int parse_option(struct redis_config *config, const char *name, const char *value, struct err *err);
static int check_config(const struct redis_config *config, struct err *err);
static int read_password(struct redis_config *config, struct err *err);
static bool parse_number(const char *text, int least, int most, int *out);
static char *percent_decoded(const char *text, size_t length);

int redis_config_init(struct redis_config *config, const char *url, struct err *err) {
  const struct scheme *scheme = find_scheme(url);
  const char *rest, *at;
  char *place, *options;
  int rc = 0;
  *config = (struct redis_config){.prefix = mem_strdup("weir"), .timeout_ms = 5000};
  if (!scheme)
    return err_set(err, ERR_INVALID, "store: not a redis URL");
  config->kind = scheme->kind;
  config->has_tls = scheme->has_tls;
  rest = url + strlen(scheme->name);
  /* To the last '@', so that no letter of a password can end up in a host's name and so in a message. */
  at = scheme->is_unix && rest[0] == '/' ? NULL : strrchr(rest, '@');
  if (at)
    rc = parse_user(config, rest, (size_t)(at - rest), err);
  place = mem_strdup(at ? at + 1 : rest);
  options = strchr(place, '?');
  if (options)
    *options++ = 0;
  rc = rc ? rc : parse_place(config, scheme, place, err);
  rc = rc || !options ? rc : parse_options(config, options, err);
  rc = rc ? rc : check_config(config, err);
  rc = rc || config->password ? rc : read_password(config, err);
  free(place);
  return rc;
}

void redis_config_fini(struct redis_config *config) {
  if (config->password)
    explicit_bzero(config->password, strlen(config->password));
  free(config->user);
  free(config->password);
  free(config->master);
  free(config->prefix);
  free(config->ca);
  free(config->cert);
  free(config->key);
  free(config->name);
}

static const struct scheme *find_scheme(const char *url) {
  for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++)
    if (strncmp(url, schemes[i].name, strlen(schemes[i].name)) == 0)
      return &schemes[i];
  return NULL;
}

static int parse_user(struct redis_config *config, const char *text, size_t length, struct err *err) {
  const char *colon = memchr(text, ':', length);
  size_t user_length = colon ? (size_t)(colon - text) : length;
  if (user_length > 0 && !(config->user = percent_decoded(text, user_length)))
    return err_set(err, ERR_INVALID, "store: redis URL: a %%XX in the user's name is none");
  if (!colon)
    return 0;
  config->password = percent_decoded(colon + 1, length - user_length - 1);
  if (!config->password)
    return err_set(err, ERR_INVALID, "store: redis URL: a %%XX in the password is none (%% itself is %%25)");
  return 0;
}

/* Hosts, then '/' and what the scheme has there; or a socket's path. */
static int parse_place(struct redis_config *config, const struct scheme *scheme, char *place,
                       struct err *err) {
  char *path, *rest = place, *host;
  if (scheme->is_unix) {
    char *decoded = percent_decoded(place, strlen(place));
    bool is_good = decoded && decoded[0] == '/' && strlen(decoded) <= UNIX_PATH_MAX;
    if (is_good)
      strcpy(config->endpoints[config->n_endpoints++].host, decoded);
    free(decoded);
    return is_good ? 0
                   : err_set(err, ERR_INVALID,
                             "store: redis URL: redis+unix:// needs an absolute path of at most %d bytes",
                             UNIX_PATH_MAX);
  }
  path = strchr(place, '/');
  if (path)
    *path++ = 0;
  while ((host = strsep(&rest, ","))) {
    int port = scheme->kind == REDIS_SENTINEL ? SENTINEL_PORT_DEFAULT : PORT_DEFAULT;
    if (config->n_endpoints == (scheme->kind == REDIS_SINGLE ? 1 : REDIS_ENDPOINTS_MAX))
      return err_set(err, ERR_INVALID, "store: redis URL: too many hosts for %s (at most %d)", scheme->name,
                     config->n_endpoints);
    if (!parse_endpoint(host, port, &config->endpoints[config->n_endpoints++]))
      return err_set(err, ERR_INVALID,
                     "store: redis URL: host %d after %s is not HOST or HOST:PORT (a password ends with @)",
                     config->n_endpoints, scheme->name);
  }
  return parse_path(config, path ? path : "", err);
}

static int parse_path(struct redis_config *config, const char *path, struct err *err) {
  const char *db = path;
  if (config->kind == REDIS_SENTINEL) {
    size_t length = strcspn(path, "/");
    config->master = length ? percent_decoded(path, length) : NULL;
    if (!config->master)
      return err_set(err, ERR_INVALID,
                     "store: redis URL: redis+sentinel://HOST,HOST/MASTER needs the master's name");
    db = path + length + (path[length] == '/');
  }
  if (*db && !parse_number(db, 0, 65535, &config->db))
    return err_set(err, ERR_INVALID, "store: redis URL: the database after the last '/' is not a number");
  return 0;
}

static int parse_options(struct redis_config *config, char *options, struct err *err) {
  char *option;
  int rc = 0;
  while (!rc && (option = strsep(&options, "&"))) {
    char *value = strchr(option, '=');
    char *decoded;
    if (!*option)
      continue;
    if (!value)
      return err_set(err, ERR_INVALID, "store: redis URL: option '%.40s' has no value", option);
    *value++ = 0;
    decoded = percent_decoded(value, strlen(value));
    if (!decoded || !*decoded)
      rc = err_set(err, ERR_INVALID, "store: redis URL: option '%.40s' has a bad value", option);
    else
      rc = parse_option(config, option, decoded, err);
    free(decoded);
  }
  return rc;
}

static int parse_option(struct redis_config *config, const char *name, const char *value, struct err *err) {
  static const char prefix_letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:-";
  char **text = NULL;
  bool is_good = true;
  if (strcmp(name, "replicas") == 0)
    is_good = parse_number(value, 0, 64, &config->replicas);
  else if (strcmp(name, "timeout_ms") == 0)
    is_good = parse_number(value, 10, 600000, &config->timeout_ms);
  else if (strcmp(name, "db") == 0)
    is_good = parse_number(value, 0, 65535, &config->db);
  else if (strcmp(name, "prefix") == 0) {
    is_good = strlen(value) <= REDIS_PREFIX_MAX && strspn(value, prefix_letters) == strlen(value);
    text = &config->prefix;
  } else if (strcmp(name, "ca") == 0)
    text = &config->ca;
  else if (strcmp(name, "cert") == 0)
    text = &config->cert;
  else if (strcmp(name, "key") == 0)
    text = &config->key;
  else if (strcmp(name, "name") == 0)
    text = &config->name;
  else
    return err_set(err, ERR_INVALID,
                   "store: redis URL: unknown option '%.40s' (known: prefix, replicas, timeout_ms, db, ca, "
                   "cert, key, name)",
                   name);
  if (!is_good)
    return err_set(err, ERR_INVALID, "store: redis URL: %s='%.80s' is out of range%s", name, value,
                   text ? " (letters, digits and ._:- , at most 64)" : "");
  if (text) {
    free(*text);
    *text = mem_strdup(value);
  }
  return 0;
}

static int check_config(const struct redis_config *config, struct err *err) {
  if (config->kind == REDIS_CLUSTER && config->db != 0)
    return err_set(err, ERR_INVALID, "store: redis URL: a cluster has the database 0 only");
  if ((config->ca || config->cert || config->key || config->name) && !config->has_tls)
    return err_set(err, ERR_INVALID, "store: redis URL: ca, cert, key and name are for TLS: rediss://");
  if (!config->cert != !config->key)
    return err_set(err, ERR_INVALID, "store: redis URL: cert and key go together");
  return 0;
}

int redis_endpoint_allow(const struct redis_endpoint *endpoint, const struct redis_config *config,
                         struct err *err) {
  if (config->has_tls || endpoint->port == 0 || store_may_send_plaintext() ||
      host_is_loopback(endpoint->host))
    return 0;
  return err_set(err, ERR_INVALID,
                 "plaintext would lead beyond this machine: use TLS (rediss://), or --insecure on a network "
                 "that you trust");
}

/* A user without a password may be one that needs none. */
static int read_password(struct redis_config *config, struct err *err) {
  const char *path = getenv("WEIR_STORE_PASSWORD_FILE"), *password = getenv("WEIR_STORE_PASSWORD");
  char text[PASSWORD_FILE_MAX];
  size_t size;
  FILE *file;
  if (!path || !*path) {
    config->password = password && *password ? mem_strdup(password) : NULL;
    return 0;
  }
  file = fopen(path, "re");
  if (!file)
    return err_set(err, ERR_INVALID, "store: WEIR_STORE_PASSWORD_FILE: %.200s: %s", path, strerror(errno));
  size = fread(text, 1, sizeof text - 1, file);
  fclose(file);
  text[size] = 0;
  text[strcspn(text, "\r\n")] = 0;
  if (*text)
    config->password = mem_strdup(text);
  explicit_bzero(text, sizeof text);
  return config->password ? 0
                          : err_set(err, ERR_INVALID,
                                    "store: WEIR_STORE_PASSWORD_FILE: %.200s: the first line is empty", path);
}

/* "HOST:PORT", "[V6]:PORT", the port may be missing. False if it is none. */
static bool parse_endpoint(const char *text, int default_port, struct redis_endpoint *endpoint) {
  const char *end, *host = text;
  char *name, port[8];
  bool is_good;
  if (text[0] == '[') {
    end = strchr(++host, ']');
    if (!end)
      return false;
  } else
    end = text + strcspn(text, ":");
  name = mem_printf("%.*s", (int)(end - host), host);
  end += *end == ']';
  snprintf(port, sizeof port, "%d", default_port);
  is_good = (!*end || *end == ':') && redis_endpoint_make(name, *end ? end + 1 : port, endpoint);
  free(name);
  return is_good;
}

bool redis_endpoint_make(const char *host, const char *port, struct redis_endpoint *endpoint) {
  size_t length = strlen(host);
  if (length == 0 || length >= REDIS_HOST_SIZE)
    return false;
  for (const char *c = host; *c; c++)
    if (*c <= ' ' || *c >= 127 || *c == '/')
      return false;
  memcpy(endpoint->host, host, length + 1);
  return parse_number(port, 1, 65535, &endpoint->port);
}

static bool parse_number(const char *text, int least, int most, int *out) {
  size_t length = strlen(text);
  if (length == 0 || length > 9 || strspn(text, "0123456789") != length)
    return false;
  *out = atoi(text);
  return *out >= least && *out <= most;
}

/* NULL for a bad escape, and for %00. */
static char *percent_decoded(const char *text, size_t length) {
  char *decoded = mem_new(length + 1), *to = decoded;
  for (size_t i = 0; i < length; i++) {
    char hex[3] = "";
    if (text[i] != '%') {
      *to++ = text[i];
      continue;
    }
    if (i + 2 < length)
      memcpy(hex, text + i + 1, 2);
    if (strspn(hex, "0123456789abcdefABCDEF") != 2 || !(*to++ = (char)strtol(hex, NULL, 16))) {
      free(decoded);
      return NULL;
    }
    i += 2;
  }
  return decoded;
}
