/* The page's calls to the coordinator: a row of client/ui/call.def each. */
#ifndef WEIR_CLIENT_UI_CALL_H
#define WEIR_CLIENT_UI_CALL_H

#include <pthread.h>

#include "client/cluster/connect.h"
#include "common/http/http.h"

/* A connection to the coordinator that threads take turns at. */
struct call_line {
  pthread_mutex_t lock;
  struct connection connection;
};

/* Errors: those of connection_open. */
int call_line_open(struct call_line *line, const char *coordinator, const struct rpc_security *security,
                   struct err *err);
void call_line_close(struct call_line *line); /* safe on a zeroed one */

struct call_def;

/* NULL: there is none of that name. */
const struct call_def *call_find(const char *name);
bool call_is_write(const struct call_def *call);

/* Asks the coordinator and answers with its reply as JSON; an error is {"error": TEXT}, under the HTTP status
   that is nearest to it. Fields that are 0, false or empty are left out. */
void call_answer(struct call_line *line, const struct call_def *call, const struct http_request *request,
                 struct http_answer *answer);

#endif
