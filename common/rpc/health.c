/* The standard gRPC health service: Check answers at once, Watch again at each change. And its client. */
#include <string.h>
#include <stdlib.h>

#include "common/rpc/call.h"
#include "common/rpc/client.h"
#include "grpc/health/v1/health.pb-c.h"

enum { WATCHERS_MAX = 1024 };

/* A service that is known, and serves, where connections beyond the machine are plaintext. */
static char insecure[] = "weir.insecure";

typedef Grpc__Health__V1__HealthCheckResponse__ServingStatus health_status;

struct watcher {
  struct rpc_call *call;
  bool is_known; /* the service that it asks for */
};

struct rpc_health {
  const struct rpc_names *names;
  pthread_mutex_t lock;
  bool is_serving, is_insecure;
  struct watcher *watchers;
  int n_watchers, capacity;
};

struct rpc_health *rpc_health_new(const struct rpc_names *names, bool is_insecure) {
  struct rpc_health *health = mem_new(sizeof *health);
  health->names = names;
  health->is_serving = true;
  health->is_insecure = is_insecure;
  pthread_mutex_init(&health->lock, NULL);
  return health;
}

void rpc_health_free(struct rpc_health *health) {
  pthread_mutex_destroy(&health->lock);
  free(health->watchers);
  free(health);
}

static bool is_known(const struct rpc_health *health, const char *service) {
  if (service[0] == '\0') /* the server as a whole */
    return true;
  for (int i = 0; i < health->names->count; i++)
    if (strcmp(health->names->names[i], service) == 0)
      return true;
  return health->is_insecure && strcmp(service, insecure) == 0;
}

static Grpc__Health__V1__HealthCheckResponse answer_locked(const struct rpc_health *health) {
  Grpc__Health__V1__HealthCheckResponse answer = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;
  answer.status = health->is_serving ? GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING
                                     : GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__NOT_SERVING;
  return answer;
}

void rpc_health_set(struct rpc_health *health, bool is_serving) {
  pthread_mutex_lock(&health->lock);
  if (health->is_serving != is_serving) {
    Grpc__Health__V1__HealthCheckResponse answer;
    health->is_serving = is_serving;
    answer = answer_locked(health);
    for (int i = 0; i < health->n_watchers; i++)
      if (health->watchers[i].is_known)
        rpc_call_send(health->watchers[i].call, &answer, NULL);
  }
  pthread_mutex_unlock(&health->lock);
}

static void health_check(struct rpc_call *call, const void *message, struct rpc_bytes *bytes) {
  struct rpc_health *health = rpc_call_context(call);
  const char *service = ((const Grpc__Health__V1__HealthCheckRequest *)message)->service;
  Grpc__Health__V1__HealthCheckResponse answer;
  (void)bytes;
  pthread_mutex_lock(&health->lock);
  answer = answer_locked(health);
  pthread_mutex_unlock(&health->lock);
  if (is_known(health, service))
    rpc_call_reply(call, &answer, NULL);
  else
    rpc_call_fail(call, ERR_NOT_FOUND, "no service '%.200s' is served here", service);
}

static void health_watch(struct rpc_call *call, const void *message, struct rpc_bytes *bytes) {
  struct rpc_health *health = rpc_call_context(call);
  struct watcher watcher = {
      call, is_known(health, ((const Grpc__Health__V1__HealthCheckRequest *)message)->service)};
  Grpc__Health__V1__HealthCheckResponse answer;
  bool is_full;
  (void)bytes;
  pthread_mutex_lock(&health->lock);
  is_full = health->n_watchers == WATCHERS_MAX;
  if (!is_full) {
    array_reserve((void **)&health->watchers, &health->capacity, health->n_watchers,
                  sizeof *health->watchers);
    health->watchers[health->n_watchers++] = watcher;
    answer = answer_locked(health);
    if (!watcher.is_known)
      answer.status = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVICE_UNKNOWN;
    rpc_call_send(call, &answer, NULL);
  }
  pthread_mutex_unlock(&health->lock);
  if (is_full)
    rpc_call_fail(call, ERR_BUSY, "more than %d calls watch this server's health", WATCHERS_MAX);
}

static void watch_closed(struct rpc_call *call) {
  struct rpc_health *health = rpc_call_context(call);
  bool is_found = false;
  pthread_mutex_lock(&health->lock);
  for (int i = 0; i < health->n_watchers && !is_found; i++) {
    is_found = health->watchers[i].call == call;
    if (is_found)
      health->watchers[i] = health->watchers[--health->n_watchers];
  }
  pthread_mutex_unlock(&health->lock);
  if (is_found)
    rpc_call_finish(call, NULL);
}

/* service: "" is the server as a whole. */
static int probe(struct rpc_channel *channel, char *service, int deadline_ms, bool *is_serving,
                 struct err *err) {
  Grpc__Health__V1__HealthCheckRequest request = GRPC__HEALTH__V1__HEALTH_CHECK_REQUEST__INIT;
  Grpc__Health__V1__HealthCheckResponse *reply = NULL;
  struct rpc_question question = {RPC_HEALTH_CHECK, &request, deadline_ms};
  request.service = service;
  if (rpc_unary(channel, &question, false, (void **)&reply, err))
    return err->code;
  *is_serving = reply->status == GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING;
  grpc__health__v1__health_check_response__free_unpacked(reply, NULL);
  return ERR_OK;
}

int rpc_health_probe(struct rpc_channel *channel, int deadline_ms, bool *is_serving, struct err *err) {
  return probe(channel, (char *)"", deadline_ms, is_serving, err);
}

int rpc_health_probe_insecure(struct rpc_channel *channel, int deadline_ms, bool *is_insecure,
                              struct err *err) {
  bool is_serving;
  int code = probe(channel, insecure, deadline_ms, &is_serving, err);
  *is_insecure = code == ERR_OK;
  if (code != ERR_NOT_FOUND)
    return code;
  *err = ERR_NONE;
  return ERR_OK;
}

const struct rpc_method rpc_health_methods[2] = {
    {.id = RPC_HEALTH_CHECK, .on_message = health_check},
    {.id = RPC_HEALTH_WATCH, .on_message = health_watch, .on_closed = watch_closed},
};
