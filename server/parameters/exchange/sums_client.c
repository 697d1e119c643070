/* Messages to other servers. */
#include "server/parameters/exchange/sums_client.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "common/base/clock.h"
#include "common/base/log.h"

enum { LOG_PAUSE_MS = 5000, MS_NS = 1000000 };

struct sums_route {
  struct sums_client *sums_client;
  struct rpc_channel *channel;
  struct sums_route *next;
  struct errand *errands; /* not over */
  uint64_t logged_ns;     /* when a failure was last written down */
  bool is_cancelled;
  char *ticket;
};

struct sums_client {
  struct rpc_client *client;
  pthread_t thread;
  pthread_mutex_t lock; /* what follows, and all routes and errands */
  pthread_cond_t changed;
  struct sums_route *routes;
  int n_busy; /* errands whose done has not returned */
  bool is_stopping;
};

static void *sums_client_main(void *argument);
static void on_done(struct rpc_request *rpc, const struct err *err, const void *reply,
                    struct rpc_bytes *bytes);

struct sums_client *sums_client_new(struct rpc_client *client) {
  struct sums_client *sums_client = mem_new(sizeof *sums_client);
  sums_client->client = client;
  pthread_mutex_init(&sums_client->lock, NULL);
  clock_condition_init(&sums_client->changed);
  CHECK(pthread_create(&sums_client->thread, NULL, sums_client_main, sums_client) == 0);
  return sums_client;
}

void sums_client_free(struct sums_client *sums_client) {
  if (!sums_client)
    return;
  CHECK(!sums_client->routes && sums_client->n_busy == 0);
  pthread_cond_destroy(&sums_client->changed);
  pthread_mutex_destroy(&sums_client->lock);
  free(sums_client);
}

struct sums_route *sums_client_open(struct sums_client *sums_client, const char *target, const char *ticket) {
  struct sums_route *route = mem_new(sizeof *route);
  route->sums_client = sums_client;
  route->ticket = mem_strdup(ticket);
  route->channel = rpc_channel_open(sums_client->client, target, PEER_SERVER);
  pthread_mutex_lock(&sums_client->lock);
  route->next = sums_client->routes;
  sums_client->routes = route;
  pthread_mutex_unlock(&sums_client->lock);
  return route;
}

void sums_client_close(struct sums_route *route) {
  struct sums_route **link;
  if (!route)
    return;
  pthread_mutex_lock(&route->sums_client->lock);
  CHECK(!route->errands);
  for (link = &route->sums_client->routes; *link != route;)
    link = &(*link)->next;
  *link = route->next;
  pthread_mutex_unlock(&route->sums_client->lock);
  rpc_channel_close(route->channel);
  free(route->ticket);
  free(route);
}

int sums_client_reach(const struct sums_route *route, int deadline_ms, struct err *err) {
  bool is_serving;
  return rpc_health_probe(route->channel, deadline_ms, &is_serving, err);
}

static void errand_send_locked(struct errand *errand) {
  struct rpc_question question = {RPC_SUMS, errand->request, -1};
  errand->is_sent = true;
  errand->rpc = (struct rpc_request){.on_done = on_done, .ticket = errand->route->ticket};
  rpc_request_start(&errand->rpc, errand->route->channel, &question, NULL);
}

/* The caller has taken it out of its route's list, and holds no lock. */
static void errand_end(struct errand *errand, const struct err *err, const Weir__SumsReply *reply) {
  struct sums_client *sums_client = errand->route->sums_client;
  errand->done(errand, err, reply);
  pthread_mutex_lock(&sums_client->lock);
  sums_client->n_busy--;
  pthread_cond_broadcast(&sums_client->changed);
  pthread_mutex_unlock(&sums_client->lock);
}

static void errand_end_cancelled(struct errand *errand) {
  struct err err;
  err_set(&err, ERR_CANCELLED, "%s: its run is unloaded", rpc_channel_target(errand->route->channel));
  errand_end(errand, &err, NULL);
}

void sums_client_send(struct sums_route *route, struct errand *errand) {
  struct sums_client *sums_client = route->sums_client;
  bool is_cancelled;
  errand->route = route;
  errand->attempt = 0;
  pthread_mutex_lock(&sums_client->lock);
  sums_client->n_busy++;
  is_cancelled = route->is_cancelled || sums_client->is_stopping;
  if (!is_cancelled) {
    errand->next = route->errands;
    route->errands = errand;
    errand_send_locked(errand);
  }
  pthread_mutex_unlock(&sums_client->lock);
  if (is_cancelled)
    errand_end_cancelled(errand);
}

static void route_remove_locked(struct sums_route *route, const struct errand *errand) {
  struct errand **link = &route->errands;
  while (*link != errand)
    link = &(*link)->next;
  *link = errand->next;
}

/* Those that are paused are returned, to be ended; on_done ends the others. */
static struct errand *route_cancel_locked(struct sums_route *route) {
  struct errand *paused = NULL, *errand, *next;
  route->is_cancelled = true;
  for (errand = route->errands; errand; errand = next) {
    next = errand->next;
    if (errand->is_sent)
      rpc_request_cancel(&errand->rpc);
    else {
      route_remove_locked(route, errand);
      errand->next = paused;
      paused = errand;
    }
  }
  return paused;
}

static void errands_end_cancelled(struct errand *errand) {
  struct errand *next;
  for (; errand; errand = next) {
    next = errand->next;
    errand_end_cancelled(errand);
  }
}

void sums_client_cancel(struct sums_route *route) {
  struct errand *paused;
  if (!route)
    return;
  pthread_mutex_lock(&route->sums_client->lock);
  paused = route_cancel_locked(route);
  pthread_mutex_unlock(&route->sums_client->lock);
  errands_end_cancelled(paused);
}

void sums_client_stop(struct sums_client *sums_client) {
  struct errand *paused;
  pthread_mutex_lock(&sums_client->lock);
  sums_client->is_stopping = true;
  pthread_cond_broadcast(&sums_client->changed);
  for (struct sums_route *route = sums_client->routes; route;) {
    paused = route_cancel_locked(route);
    route = route->next;
    if (!paused)
      continue;
    pthread_mutex_unlock(&sums_client->lock);
    errands_end_cancelled(paused);
    pthread_mutex_lock(&sums_client->lock);
    route = sums_client->routes; /* others may have been closed meanwhile */
  }
  while (sums_client->n_busy > 0)
    pthread_cond_wait(&sums_client->changed, &sums_client->lock);
  pthread_mutex_unlock(&sums_client->lock);
  pthread_join(sums_client->thread, NULL);
}

/* The server that was asked is away, or is not yet (or no more) what we think: whoever watches servers sees
   to that, and unloads the run where it has to. */
static bool is_refusal(enum err_code code) {
  return code == ERR_INVALID || code == ERR_UNSUPPORTED || code == ERR_CORRUPT;
}

/* True if the errand pauses before another attempt. Says so once in a while. */
static bool errand_pause_locked(struct errand *errand, const struct err *err) {
  struct sums_route *route = errand->route;
  uint64_t now_ns = clock_now_ns();
  if (!err->code || is_refusal(err->code) || route->is_cancelled)
    return false;
  errand->due_ns = now_ns + (uint64_t)rpc_backoff_ms(errand->attempt++) * MS_NS;
  pthread_cond_broadcast(&route->sums_client->changed);
  if (route->logged_ns == 0 || now_ns - route->logged_ns >= (uint64_t)LOG_PAUSE_MS * MS_NS) {
    route->logged_ns = now_ns;
    log_event(LOG_WARN, "parameters", "sums_retried", "run=%s step=%llu code=%s error=\"%s\"",
              errand->request->run, (unsigned long long)errand->request->step, err_name(err->code),
              err->text);
  }
  return true;
}

static void on_done(struct rpc_request *rpc, const struct err *err, const void *reply,
                    struct rpc_bytes *bytes) {
  struct errand *errand = (struct errand *)((char *)rpc - offsetof(struct errand, rpc));
  struct sums_route *route = errand->route;
  bool is_paused, is_cancelled;
  rpc_bytes_free(bytes);
  pthread_mutex_lock(&route->sums_client->lock);
  errand->is_sent = false;
  is_paused = errand_pause_locked(errand, err);
  is_cancelled = err->code && !is_paused && !is_refusal(err->code);
  if (!is_paused)
    route_remove_locked(route, errand);
  pthread_mutex_unlock(&route->sums_client->lock);
  if (is_cancelled)
    errand_end_cancelled(errand);
  else if (!is_paused)
    errand_end(errand, err, reply);
}

/* Sends again what is due. When the next one is: UINT64_MAX if nothing pauses. */
static uint64_t sums_client_send_due_locked(struct sums_client *sums_client) {
  uint64_t now_ns = clock_now_ns(), next_ns = UINT64_MAX;
  for (struct sums_route *route = sums_client->routes; route; route = route->next)
    for (struct errand *errand = route->errands; errand; errand = errand->next) {
      if (errand->is_sent)
        continue;
      if (errand->due_ns <= now_ns)
        errand_send_locked(errand);
      else if (errand->due_ns < next_ns)
        next_ns = errand->due_ns;
    }
  return next_ns;
}

static void *sums_client_main(void *argument) {
  struct sums_client *sums_client = argument;
  pthread_mutex_lock(&sums_client->lock);
  while (!sums_client->is_stopping) {
    uint64_t next_ns = sums_client_send_due_locked(sums_client);
    if (next_ns == UINT64_MAX)
      pthread_cond_wait(&sums_client->changed, &sums_client->lock);
    else {
      uint64_t now_ns = clock_now_ns();
      struct timespec until = clock_after_ms(next_ns > now_ns ? (int)((next_ns - now_ns) / MS_NS) + 1 : 1);
      pthread_cond_timedwait(&sums_client->changed, &sums_client->lock, &until);
    }
  }
  pthread_mutex_unlock(&sums_client->lock);
  return NULL;
}
