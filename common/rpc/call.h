/* A call on the server's side of RPC, for the files that implement it. */
#ifndef WEIR_COMMON_RPC_CALL_H
#define WEIR_COMMON_RPC_CALL_H

#include "common/rpc/core.h"
#include "common/rpc/guard.h"
#include "common/rpc/intake.h"
#include "common/rpc/server.h"

/* Where a path leads. */
struct rpc_route {
  const struct rpc_method_def *def;
  const struct rpc_method *method;
  void *context;
};

/* The calls of a queue with TLS, whose callers are looked at each second; the queue's thread's own. */
struct rpc_watch {
  struct rpc_server *server;
  struct rpc_queue *queue;
  struct rpc_call *calls;
  struct rpc_timer timer;
};

void rpc_watch_begin(struct rpc_watch *watch); /* before the queue's thread runs; ends with the queue */

/* Waits for one more call on the queue; every call that comes waits for the next. */
void rpc_call_accept(struct rpc_server *server, struct rpc_queue *queue);

/* The server's part: NULL for a path that leads nowhere. */
const struct rpc_route *rpc_server_route(const struct rpc_server *server, grpc_slice path);
grpc_server *rpc_server_core(struct rpc_server *server);
struct rpc_intake *rpc_server_intake(struct rpc_server *server);
struct clients *rpc_server_clients(struct rpc_server *server);
struct rpc_guard *rpc_server_guard(struct rpc_server *server); /* NULL without TLS */
struct rpc_watch *rpc_server_watch(struct rpc_server *server, const struct rpc_queue *queue);
void rpc_server_call_begins(struct rpc_server *server);
void rpc_server_call_ended(struct rpc_server *server); /* its memory is gone */

/* The names of the services that a server serves, health and reflection among them. */
struct rpc_names {
  char **names;
  int count, capacity;
};

/* The standard health service; `names` outlives it. */
struct rpc_health;
/* is_insecure: what rpc_health_probe_insecure is told. */
struct rpc_health *rpc_health_new(const struct rpc_names *names, bool is_insecure);
void rpc_health_free(struct rpc_health *health); /* its calls have ended */
void rpc_health_set(struct rpc_health *health, bool is_serving);
extern const struct rpc_method rpc_health_methods[2];

/* The standard reflection service, v1 and v1alpha; `names` outlives it. */
struct rpc_reflection;
struct rpc_reflection *rpc_reflection_new(const struct rpc_names *names);
void rpc_reflection_free(struct rpc_reflection *reflection);
extern const struct rpc_method rpc_reflection_methods[2];

#endif
