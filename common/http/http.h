/* HTTP/1.1 on a port of its own, for what gRPC is not spoken with: scrapers and browsers. libmicrohttpd reads
   and writes; this bounds what others may take of the process (common/base/limits.h) and says who may ask:
   - an address beyond this machine needs certificates or --insecure, by the rule of rpc_security_check;
   - with certificates the port speaks TLS, and whoever asks must show a certificate of our authorities that
     has not ended and is not in denied.txt; a folder whose files change is read again;
   - without, a port on this machine answers only requests whose Host is this machine, so that no page of
     somebody's browser reads it by a name of its own. */
#ifndef WEIR_COMMON_HTTP_HTTP_H
#define WEIR_COMMON_HTTP_HTTP_H

#include "common/base/memory.h"
#include "common/rpc/tls.h"

struct http;

/* A request, all of which has come. Good until its answer_function returns, unless said otherwise. */
struct http_request {
  const char *method; /* "GET"; a HEAD is answered as a GET */
  const char *path;   /* decoded; without what follows '?' */
  const char *rest;   /* of the path, behind that of a route with is_prefix; else "" */
  const void *body;   /* of a route with body_max_bytes */
  size_t body_bytes;
  const struct cert_holder *holder; /* who asks; NULL: the port is plaintext */
  struct arena *arena;              /* good until the answer was sent */
  void *connection;                 /* libmicrohttpd's */
};

/* NULL: it has none of that name. */
const char *http_header(const struct http_request *request, const char *name);
const char *http_query(const struct http_request *request, const char *name); /* decoded */

/* An answer is zeroed, but for its status, 200, and its type, plain text. Everything that it points to is
   constant or in the request's arena. */
enum { HTTP_HEADERS_MAX = 8 };
struct http_answer {
  int status;
  const char *type; /* of the body */
  const void *body;
  size_t body_bytes;
  struct http_field {
    const char *name, *value;
  } headers[HTTP_HEADERS_MAX]; /* beside those that every answer has; the first without a name is the last */
};

/* On a thread of the listener: while it runs, the thread's other connections wait. */
typedef void http_answer_function(void *user, const struct http_request *request, struct http_answer *answer);

/* An answer of one line of text. */
void http_answer_text(const struct http_request *request, struct http_answer *answer, int status,
                      const char *format, ...) __attribute__((format(printf, 4, 5)));

/* What is answered at a path. A path without a route is NOT FOUND, another method is refused. */
struct http_route {
  const char *method, *path;
  http_answer_function *answer;
  size_t body_max_bytes; /* 0: a request has no body */
  bool is_prefix;        /* also paths that begin with this one */
};

struct http_options {
  const char *listen;              /* HOST:PORT; port 0 takes a free one */
  const struct rpc_tls *tls;       /* outlives the listener; NULL: plaintext */
  bool is_insecure;                /* plaintext may go beyond this machine */
  const struct http_route *routes; /* outlive it, likewise */
  int n_routes;
  void *user;  /* of the routes */
  int threads; /* that answer; 0: one */
  int late_ms; /* a connection that takes no answer for so long is cut; 0: LIMIT_HTTP_MS */
};

/* Whether somebody may listen there, by the rule of all ports. Errors: INVALID, with the address. */
int http_address_check(const struct rpc_security *security, const char *address, struct err *err);

/* Listens, and answers on threads of its own, which block all signals. Errors: INVALID for an address that is
   none or must not be listened on; UNAVAILABLE where listening fails; those of the certificates. */
int http_open(const struct http_options *options, struct http **out, struct err *err);
int http_port(const struct http *http); /* the bound one */

/* Answers that are being made are waited for; connections are closed. NULL is ignored. */
void http_close(struct http *http);

#endif
