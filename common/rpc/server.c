/* The server: queues, routes, start and stop. */
#include "common/rpc/server.h"

#include <grpc/slice.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/limits.h"
#include "common/door/clients.h"
#include "common/door/door.h"
#include "common/door/unix_socket.h"
#include "common/rpc/address.h"
#include "common/rpc/call.h"
#include "common/rpc/credentials.h"

enum { ACCEPTS_PER_QUEUE = 32 };

struct rpc_server {
  grpc_server *core;
  struct rpc_queue *queues;
  int n_queues;
  int port;
  struct rpc_route *routes; /* sorted by compare_routes */
  int n_routes, routes_capacity;
  struct rpc_names names;
  struct rpc_health *health;
  struct rpc_reflection *reflection;
  struct rpc_intake *intake;
  struct clients *clients;
  struct rpc_port_keys *keys;
  struct rpc_guard *guard;   /* NULL: plaintext */
  struct rpc_watch *watches; /* [n_queues], with a guard */
  struct rpc_event shut;

  pthread_mutex_t lock;
  pthread_cond_t changed;
  int n_calls; /* accepting ones included */
  bool is_shut;
};

static void add_services(struct rpc_server *server, const struct rpc_server_options *options);
static int listen_on(struct rpc_server *server, const struct rpc_server_options *options, struct err *err);
static void server_release(struct rpc_server *server);

static void on_shut(struct rpc_event *event, bool ok) {
  struct rpc_server *server = RPC_EVENT_OWNER(event, struct rpc_server, shut);
  (void)ok;
  pthread_mutex_lock(&server->lock);
  server->is_shut = true;
  pthread_cond_broadcast(&server->changed);
  pthread_mutex_unlock(&server->lock);
}

static grpc_server *core_new(void) {
  struct rpc_args args;
  rpc_args_init(&args);
  rpc_args_add(&args, GRPC_ARG_ALLOW_REUSEPORT, 0); /* two servers on one port are a mistake */
  rpc_args_add(&args, GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 100);
  rpc_args_add(&args, GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
  rpc_args_add(&args, GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, LIMIT_HANDSHAKE_MS);
  rpc_args_add(&args, GRPC_ARG_MAX_CONCURRENT_STREAMS, LIMIT_STREAMS);
  return grpc_server_create(&args.list, NULL);
}

int rpc_server_start(const struct rpc_server_options *options, struct rpc_server **out, struct err *err) {
  struct rpc_server *server = mem_new(sizeof *server);
  rpc_init();
  door_open();
  pthread_mutex_init(&server->lock, NULL);
  pthread_cond_init(&server->changed, NULL);
  server->shut.done = on_shut;
  server->intake = rpc_intake_new(options->received_bytes_max);
  server->clients = clients_new();
  add_services(server, options);
  server->core = core_new();
  server->keys = rpc_port_keys_new(options->tls);
  server->guard = rpc_guard_new(options->tls, true);
  server->n_queues = options->threads > 0 ? options->threads : 1;
  server->queues = mem_new((size_t)server->n_queues * sizeof *server->queues);
  server->watches = mem_new((size_t)server->n_queues * sizeof *server->watches);
  for (int i = 0; i < server->n_queues; i++) {
    server->watches[i] = (struct rpc_watch){.server = server, .queue = &server->queues[i]};
    rpc_queue_open(&server->queues[i]);
    grpc_server_register_completion_queue(server->core, server->queues[i].cq, NULL);
  }
  if (listen_on(server, options, err))
    goto out;
  grpc_server_start(server->core);
  for (int i = 0; i < server->n_queues * ACCEPTS_PER_QUEUE; i++)
    rpc_call_accept(server, &server->queues[i % server->n_queues]);
  for (int i = 0; i < server->n_queues; i++) {
    if (server->guard)
      rpc_watch_begin(&server->watches[i]);
    rpc_queue_start(&server->queues[i]);
  }
  *out = server;
  return ERR_OK;
out:
  grpc_server_shutdown_and_notify(server->core, server->queues[0].cq, &server->shut);
  for (int i = 0; i < server->n_queues; i++) {
    rpc_queue_start(&server->queues[i]);
    rpc_queue_stop(&server->queues[i]);
  }
  server_release(server);
  return err->code;
}

static void names_add(struct rpc_names *names, enum rpc_method_id id) {
  char name[128];
  rpc_method_service(id, name, sizeof name);
  for (int i = 0; i < names->count; i++)
    if (strcmp(names->names[i], name) == 0)
      return;
  array_reserve((void **)&names->names, &names->capacity, names->count, sizeof *names->names);
  names->names[names->count++] = mem_strdup(name);
}

static void add_service(struct rpc_server *server, const struct rpc_service *service) {
  for (int i = 0; i < service->n_methods; i++) {
    const struct rpc_method *method = &service->methods[i];
    array_reserve((void **)&server->routes, &server->routes_capacity, server->n_routes,
                  sizeof *server->routes);
    server->routes[server->n_routes++] =
        (struct rpc_route){&rpc_method_defs[method->id], method, service->context};
    names_add(&server->names, method->id);
  }
}

/* Shorter paths first: gRPC's own order of slices, see compare_path. */
static int compare_routes(const void *a, const void *b) {
  const char *left = ((const struct rpc_route *)a)->def->path;
  const char *right = ((const struct rpc_route *)b)->def->path;
  size_t left_size = strlen(left), right_size = strlen(right);
  if (left_size != right_size)
    return left_size < right_size ? -1 : 1;
  return memcmp(left, right, left_size);
}

static void add_services(struct rpc_server *server, const struct rpc_server_options *options) {
  server->health = rpc_health_new(&server->names, !options->tls && options->is_insecure);
  rpc_health_set(server->health, !options->begins_not_serving);
  server->reflection = rpc_reflection_new(&server->names);
  for (int i = 0; i < options->n_services; i++)
    add_service(server, &options->services[i]);
  add_service(server, &(struct rpc_service){rpc_health_methods, 2, server->health});
  add_service(server, &(struct rpc_service){rpc_reflection_methods, 2, server->reflection});
  qsort(server->routes, (size_t)server->n_routes, sizeof *server->routes, compare_routes);
}

static int compare_path(const void *key, const void *element) {
  const struct rpc_route *route = element;
  return grpc_slice_str_cmp(*(const grpc_slice *)key, route->def->path);
}

const struct rpc_route *rpc_server_route(const struct rpc_server *server, grpc_slice path) {
  return bsearch(&path, server->routes, (size_t)server->n_routes, sizeof *server->routes, compare_path);
}

static int listen_on(struct rpc_server *server, const struct rpc_server_options *options, struct err *err) {
  const struct rpc_security security = {options->tls ? options->tls->folder : NULL, options->is_insecure};
  const char *address = options->listen;
  grpc_server_credentials *credentials;
  int claim = -1;
  if (rpc_address_check(address, err) || rpc_security_check(&security, address, err) ||
      (unix_socket_is(address) && unix_socket_claim(address, &claim, err)))
    return err->code;
  credentials = rpc_server_credentials(server->keys);
  server->port = grpc_server_add_http2_port(server->core, address, credentials);
  grpc_server_credentials_release(credentials);
  unix_socket_release(claim);
  return server->port ? ERR_OK : rpc_address_explain(address, err);
}

grpc_server *rpc_server_core(struct rpc_server *server) {
  return server->core;
}

struct clients *rpc_server_clients(struct rpc_server *server) {
  return server->clients;
}

struct rpc_guard *rpc_server_guard(struct rpc_server *server) {
  return server->guard;
}

struct rpc_watch *rpc_server_watch(struct rpc_server *server, const struct rpc_queue *queue) {
  return &server->watches[queue - server->queues];
}

struct rpc_intake *rpc_server_intake(struct rpc_server *server) {
  return server->intake;
}

void rpc_server_call_begins(struct rpc_server *server) {
  pthread_mutex_lock(&server->lock);
  server->n_calls++;
  pthread_mutex_unlock(&server->lock);
}

void rpc_server_call_ended(struct rpc_server *server) {
  pthread_mutex_lock(&server->lock);
  if (--server->n_calls == 0)
    pthread_cond_broadcast(&server->changed);
  pthread_mutex_unlock(&server->lock);
}

int rpc_server_port(const struct rpc_server *server) {
  return server->port;
}

void rpc_server_set_serving(struct rpc_server *server, bool is_serving) {
  rpc_health_set(server->health, is_serving);
}

void rpc_server_stop(struct rpc_server *server) {
  if (!server)
    return;
  grpc_server_shutdown_and_notify(server->core, server->queues[0].cq, &server->shut);
  grpc_server_cancel_all_calls(server->core);
  pthread_mutex_lock(&server->lock);
  while (!server->is_shut || server->n_calls)
    pthread_cond_wait(&server->changed, &server->lock);
  pthread_mutex_unlock(&server->lock);
  for (int i = 0; i < server->n_queues; i++)
    rpc_queue_stop(&server->queues[i]);
  server_release(server);
}

static void server_release(struct rpc_server *server) {
  grpc_server_destroy(server->core);
  for (int i = 0; i < server->n_queues; i++)
    rpc_queue_close(&server->queues[i]);
  for (int i = 0; i < server->names.count; i++)
    free(server->names.names[i]);
  rpc_health_free(server->health);
  rpc_reflection_free(server->reflection);
  rpc_intake_free(server->intake);
  clients_free(server->clients);
  rpc_port_keys_free(server->keys);
  rpc_guard_put(server->guard);
  free(server->names.names);
  free(server->routes);
  free(server->watches);
  free(server->queues);
  pthread_cond_destroy(&server->changed);
  pthread_mutex_destroy(&server->lock);
  free(server);
  rpc_fini();
}
