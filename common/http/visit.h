/* What libmicrohttpd asks of a listener about one connection and its requests: for the files of this folder
   alone. Everything here runs on the thread that has the connection. */
#ifndef WEIR_COMMON_HTTP_VISIT_H
#define WEIR_COMMON_HTTP_VISIT_H

#include <microhttpd.h>

#include "common/http/http.h"
#include "common/rpc/guard.h"

/* What all threads of a listener read, and none changes. */
struct http_setting {
  const struct http_route *routes;
  int n_routes;
  void *user;
  const struct rpc_tls *tls; /* NULL: plaintext */
  struct rpc_guard *guard;   /* with tls */
  int late_ms;               /* as in http_options */
  bool is_local;             /* plaintext for this machine alone */
};

/* An open connection. */
struct http_visit {
  int fd;
  uint64_t late_ns; /* it is cut then, unless it has had another answer */
  struct http_visit *next, **back;
};

/* The connections of one thread. */
struct http_visits {
  const struct http_setting *setting;
  struct http_visit *first;
  uint64_t n_ended; /* so far */
};

/* Cuts those that have had no answer for too long. */
void http_visits_cut(struct http_visits *visits, uint64_t now_ns);
uint64_t
http_visits_next_ns(const struct http_visits *visits); /* when one is to be cut; UINT64_MAX: none is */

/* Functions of MHD_start_daemon; `visits` is their struct http_visits. */
void http_on_connection(void *visits, struct MHD_Connection *connection, void **visit,
                        enum MHD_ConnectionNotificationCode code);
enum MHD_Result http_on_request(void *visits, struct MHD_Connection *connection, const char *path,
                                const char *method, const char *version, const char *data, size_t *size,
                                void **asked);
void http_on_completed(void *visits, struct MHD_Connection *connection, void **asked,
                       enum MHD_RequestTerminationCode code);

#endif
