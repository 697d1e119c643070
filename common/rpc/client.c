/* Clients and channels. */
#include "common/rpc/client.h"

#include <grpc/slice.h>
#include <grpc/support/time.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/agree/random.h"
#include "common/base/clock.h"
#include "common/rpc/client_core.h"
#include "common/rpc/credentials.h"

/* RECONNECT_MAX_MS: whoever comes back is found within a second. */
enum { BACKOFF_FIRST_MS = 50, BACKOFF_MAX_MS = 2000, RECONNECT_MAX_MS = 500, RENEW_MS = 1000 };
/* LEAVE_MS: for so long the end of a client waits for connections that are being made. */
enum { CONNECT_MS = 5000, LEAVE_MS = 500 };

/* The core of a channel that was closed while it connected. gRPC 1.51 forgets a connection that is made after
   its channel was destroyed: nobody would ever close it, nor could gRPC end. */
struct leaving {
  struct rpc_event connected; /* or not */
  struct rpc_client *client;
  grpc_channel *core; /* NULL: destroyed */
  struct leaving *next, **back;
};

struct rpc_client {
  struct rpc_queue *queues;
  int n_queues;
  grpc_channel_credentials *credentials;
  const struct rpc_tls *tls; /* NULL: plaintext */
  struct rpc_guard *guard;   /* likewise */
  struct rpc_security security;
  unsigned next;        /* atomic: the queue of the next channel */
  pthread_mutex_t lock; /* what follows */
  pthread_cond_t changed;
  struct leaving *leaving;
};

struct rpc_client *rpc_client_new(int threads, const struct rpc_tls *tls) {
  struct rpc_client *client = mem_new(sizeof *client);
  rpc_init();
  client->guard = rpc_guard_new(tls, false);
  client->credentials = rpc_channel_credentials(tls, client->guard);
  client->tls = tls;
  client->security.folder = tls ? tls->folder : NULL;
  pthread_mutex_init(&client->lock, NULL);
  clock_condition_init(&client->changed);
  client->n_queues = threads > 0 ? threads : 1;
  client->queues = mem_new((size_t)client->n_queues * sizeof *client->queues);
  for (int i = 0; i < client->n_queues; i++) {
    rpc_queue_open(&client->queues[i]);
    rpc_queue_start(&client->queues[i]);
  }
  return client;
}

void rpc_client_set_insecure(struct rpc_client *client) {
  client->security.is_insecure = true;
}

int rpc_client_threads(const struct rpc_client *client) {
  return client->n_queues;
}

static void on_connected(struct rpc_event *event, bool ok) {
  struct leaving *leaving = RPC_EVENT_OWNER(event, struct leaving, connected);
  struct rpc_client *client = leaving->client;
  (void)ok;
  pthread_mutex_lock(&client->lock);
  if (leaving->core)
    grpc_channel_destroy(leaving->core);
  if (leaving->next)
    leaving->next->back = leaving->back;
  *leaving->back = leaving->next;
  pthread_cond_signal(&client->changed);
  pthread_mutex_unlock(&client->lock);
  free(leaving);
}

/* Destroys the core, once it does not connect. */
static void core_leave(struct rpc_client *client, const struct rpc_queue *queue, grpc_channel *core) {
  const gpr_timespec deadline =
      gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(CONNECT_MS, GPR_TIMESPAN));
  struct leaving *leaving;
  if (grpc_channel_check_connectivity_state(core, 0) != GRPC_CHANNEL_CONNECTING) {
    grpc_channel_destroy(core);
    return;
  }
  leaving = mem_new(sizeof *leaving);
  *leaving = (struct leaving){.connected.done = on_connected, .client = client, .core = core};
  pthread_mutex_lock(&client->lock);
  leaving->back = &client->leaving;
  leaving->next = client->leaving;
  if (leaving->next)
    leaving->next->back = &leaving->next;
  client->leaving = leaving;
  RPC_HAND_OVER(&leaving->connected);
  grpc_channel_watch_connectivity_state(core, GRPC_CHANNEL_CONNECTING, deadline, queue->cq,
                                        &leaving->connected);
  pthread_mutex_unlock(&client->lock);
}

/* Watches end with what they watch. */
static void wait_for_leaving(struct rpc_client *client) {
  const struct timespec until = clock_after_ms(LEAVE_MS);
  pthread_mutex_lock(&client->lock);
  while (client->leaving && pthread_cond_timedwait(&client->changed, &client->lock, &until) == 0)
    continue;
  for (struct leaving *leaving = client->leaving; leaving; leaving = leaving->next) {
    grpc_channel_destroy(leaving->core);
    leaving->core = NULL;
  }
  while (client->leaving)
    pthread_cond_wait(&client->changed, &client->lock);
  pthread_mutex_unlock(&client->lock);
}

void rpc_client_free(struct rpc_client *client) {
  wait_for_leaving(client);
  for (int i = 0; i < client->n_queues; i++) {
    rpc_queue_stop(&client->queues[i]);
    rpc_queue_close(&client->queues[i]);
  }
  grpc_channel_credentials_release(client->credentials);
  rpc_guard_put(client->guard);
  pthread_cond_destroy(&client->changed);
  pthread_mutex_destroy(&client->lock);
  free(client->queues);
  free(client);
  rpc_fini();
}

/* A channel that connects nowhere and says why: the error's text begins with the target. */
static grpc_channel *lame_new(const char *target, const struct err *err) {
  const char *text = err->text + strlen(target);
  char *why = *text == ':' ? mem_strdup(text + 2) : mem_printf("it%s", text);
  grpc_channel *core = grpc_lame_client_channel_create(target, GRPC_STATUS_UNIMPLEMENTED, why);
  free(why);
  return core;
}

static grpc_channel *core_new(const struct rpc_channel *channel) {
  static const char *const names[] = {"coordinator.weir", "server.weir", "worker.weir", "member.weir"};
  struct rpc_args args;
  struct err err = ERR_NONE;
  if (rpc_security_check(&channel->client->security, channel->target, &err))
    return lame_new(channel->target, &err);
  rpc_args_init(&args);
  rpc_args_add(&args, GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1); /* a connection of its own */
  rpc_args_add(&args, GRPC_ARG_ENABLE_RETRIES, 0);
  rpc_args_add(&args, GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  rpc_args_add(&args, GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, RECONNECT_MAX_MS);
  rpc_args_add(&args, GRPC_ARG_MIN_RECONNECT_BACKOFF_MS,
               CONNECT_MS); /* really: how long connecting may take */
  rpc_args_add(&args, GRPC_ARG_DNS_MIN_TIME_BETWEEN_RESOLUTIONS_MS, 1000);
  rpc_args_add(&args, GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  rpc_args_add(&args, GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  if (channel->client->tls)
    rpc_args_add_text(&args, GRPC_SSL_TARGET_NAME_OVERRIDE_ARG, names[channel->peer]);
  return grpc_channel_create(channel->target, channel->client->credentials, &args.list);
}

struct rpc_channel *rpc_channel_open(struct rpc_client *client, const char *target, enum rpc_peer peer) {
  struct rpc_channel *channel = mem_new(sizeof *channel);
  unsigned turn = __atomic_fetch_add(&client->next, 1, __ATOMIC_RELAXED);
  channel->client = client;
  channel->queue = &client->queues[turn % (unsigned)client->n_queues];
  channel->peer = peer;
  channel->target = mem_strdup(target);
  pthread_mutex_init(&channel->lock, NULL);
  channel->core = core_new(channel);
  channel->made_ns = clock_now_ns();
  return channel;
}

void rpc_channel_close(struct rpc_channel *channel) {
  if (!channel)
    return;
  core_leave(channel->client, channel->queue, channel->core);
  pthread_mutex_destroy(&channel->lock);
  free(channel->target);
  free(channel);
}

const char *rpc_channel_target(const struct rpc_channel *channel) {
  return channel->target;
}

bool rpc_channel_has_tls(const struct rpc_channel *channel) {
  return channel->client->tls;
}

const struct rpc_tls *rpc_channel_tls(const struct rpc_channel *channel) {
  return channel->client->tls;
}

bool rpc_channel_is_connected(const struct rpc_channel *channel) {
  struct rpc_channel *own = (struct rpc_channel *)channel;
  bool is_connected;
  pthread_mutex_lock(&own->lock);
  is_connected = grpc_channel_check_connectivity_state(own->core, 0) == GRPC_CHANNEL_READY;
  pthread_mutex_unlock(&own->lock);
  return is_connected;
}

void rpc_channel_renew(struct rpc_channel *channel) {
  pthread_mutex_lock(&channel->lock);
  channel->has_outlived = true;
  pthread_mutex_unlock(&channel->lock);
}

int rpc_channel_check(struct rpc_channel *channel, grpc_call *call, struct err *err) {
  struct rpc_guard *guard = channel->client->guard;
  struct rpc_guest *guest;
  struct err why = ERR_NONE;
  if (!guard)
    return 0;
  guest = rpc_guard_meet(guard, call);
  rpc_guard_check(guard, guest, &why);
  rpc_guest_put(guest);
  if (!why.code)
    return 0;
  rpc_channel_renew(channel);
  return err_set(err, ERR_UNAVAILABLE, "%s: TLS: %s", channel->target, why.text);
}

/* The core whose calls would be refused, to be destroyed; its calls go on to their ends. Many calls may end
   of one certificate: a core is not replaced again within RENEW_MS. */
static grpc_channel *take_outlived_locked(struct rpc_channel *channel) {
  uint64_t now_ns = clock_now_ns();
  grpc_channel *core = channel->core;
  if (!channel->has_outlived || now_ns - channel->made_ns < RENEW_MS * UINT64_C(1000000))
    return NULL;
  channel->core = core_new(channel);
  channel->made_ns = now_ns;
  channel->has_outlived = false;
  return core;
}

grpc_call *rpc_channel_call(struct rpc_channel *channel, grpc_completion_queue *cq, enum rpc_method_id method,
                            int deadline_ms) {
  gpr_timespec deadline = gpr_inf_future(GPR_CLOCK_MONOTONIC);
  grpc_channel *outlived;
  grpc_call *call;
  if (deadline_ms >= 0)
    deadline = gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(deadline_ms, GPR_TIMESPAN));
  pthread_mutex_lock(&channel->lock);
  outlived = take_outlived_locked(channel);
  call = grpc_channel_create_call(channel->core, NULL, GRPC_PROPAGATE_DEFAULTS, cq,
                                  grpc_slice_from_static_string(rpc_method_defs[method].path), NULL, deadline,
                                  NULL);
  pthread_mutex_unlock(&channel->lock);
  if (outlived)
    core_leave(channel->client, channel->queue, outlived);
  return call;
}

void rpc_opening_init(struct rpc_opening *opening, const char *ticket, grpc_op *op) {
  *op = (grpc_op){.op = GRPC_OP_SEND_INITIAL_METADATA};
  *opening = (struct rpc_opening){0};
  if (!ticket || !*ticket)
    return;
  opening->ticket.key = grpc_slice_from_static_string(RPC_TICKET_KEY);
  opening->ticket.value = grpc_slice_from_copied_string(ticket);
  opening->has_ticket = grpc_header_nonbin_value_is_legal(opening->ticket.value);
  if (!opening->has_ticket) {
    grpc_slice_unref(opening->ticket.value);
    return;
  }
  op->data.send_initial_metadata.count = 1;
  op->data.send_initial_metadata.metadata = &opening->ticket;
}

void rpc_opening_fini(struct rpc_opening *opening) {
  if (opening->has_ticket)
    grpc_slice_unref(opening->ticket.value);
}

int rpc_backoff_ms(int attempt) {
  static uint64_t draws;
  uint64_t key = random_key(clock_now_ns(), (uint64_t)getpid(), 0, 0);
  int pause = attempt < 6 ? BACKOFF_FIRST_MS << (attempt < 0 ? 0 : attempt) : BACKOFF_MAX_MS;
  float jitter = random_uniform(key, __atomic_fetch_add(&draws, 1, __ATOMIC_RELAXED)) - 0.5f;
  pause = pause < BACKOFF_MAX_MS ? pause : BACKOFF_MAX_MS;
  return pause + (int)(0.5f * jitter * (float)pause);
}
