/* Clients and channels. */
#include "common/rpc/client.h"

#include <grpc/support/time.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/agree/random.h"
#include "common/base/clock.h"
#include "common/rpc/client_core.h"
#include "common/rpc/credentials.h"

/* RECONNECT_MAX_MS: whoever comes back is found within a second. */
enum { BACKOFF_FIRST_MS = 50, BACKOFF_MAX_MS = 2000, RECONNECT_MAX_MS = 500 };

struct rpc_client {
  struct rpc_queue *queues;
  int n_queues;
  grpc_channel_credentials *credentials;
  bool has_tls;
  unsigned next; /* atomic: the queue of the next channel */
};

struct rpc_client *rpc_client_new(int threads, const struct rpc_tls *tls) {
  struct rpc_client *client = mem_new(sizeof *client);
  rpc_init();
  client->credentials = rpc_channel_credentials(tls);
  client->has_tls = tls;
  client->n_queues = threads > 0 ? threads : 1;
  client->queues = mem_new((size_t)client->n_queues * sizeof *client->queues);
  for (int i = 0; i < client->n_queues; i++) {
    rpc_queue_open(&client->queues[i]);
    rpc_queue_start(&client->queues[i]);
  }
  return client;
}

void rpc_client_free(struct rpc_client *client) {
  for (int i = 0; i < client->n_queues; i++) {
    rpc_queue_stop(&client->queues[i]);
    rpc_queue_close(&client->queues[i]);
  }
  grpc_channel_credentials_release(client->credentials);
  free(client->queues);
  free(client);
  rpc_fini();
}

struct rpc_channel *rpc_channel_open(struct rpc_client *client, const char *target, enum rpc_peer peer) {
  static const char *const names[] = {"coordinator.weir", "server.weir", "worker.weir", "member.weir"};
  struct rpc_channel *channel = mem_new(sizeof *channel);
  unsigned turn = __atomic_fetch_add(&client->next, 1, __ATOMIC_RELAXED);
  struct rpc_args args;
  rpc_args_init(&args);
  rpc_args_add(&args, GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1); /* a connection of its own */
  rpc_args_add(&args, GRPC_ARG_ENABLE_RETRIES, 0);
  rpc_args_add(&args, GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  rpc_args_add(&args, GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, RECONNECT_MAX_MS);
  rpc_args_add(&args, GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 5000); /* really: how long connecting may take */
  rpc_args_add(&args, GRPC_ARG_DNS_MIN_TIME_BETWEEN_RESOLUTIONS_MS, 1000);
  rpc_args_add(&args, GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  rpc_args_add(&args, GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  if (client->has_tls)
    rpc_args_add_text(&args, GRPC_SSL_TARGET_NAME_OVERRIDE_ARG, names[peer]);
  channel->client = client;
  channel->queue = &client->queues[turn % (unsigned)client->n_queues];
  channel->target = mem_strdup(target);
  channel->core = grpc_channel_create(target, client->credentials, &args.list);
  return channel;
}

void rpc_channel_close(struct rpc_channel *channel) {
  if (!channel)
    return;
  grpc_channel_destroy(channel->core);
  free(channel->target);
  free(channel);
}

const char *rpc_channel_target(const struct rpc_channel *channel) {
  return channel->target;
}

bool rpc_channel_has_tls(const struct rpc_channel *channel) {
  return channel->client->has_tls;
}

bool rpc_channel_is_connected(const struct rpc_channel *channel) {
  return grpc_channel_check_connectivity_state(channel->core, 0) == GRPC_CHANNEL_READY;
}

grpc_call *rpc_channel_call(struct rpc_channel *channel, grpc_completion_queue *cq, enum rpc_method_id method,
                            int deadline_ms) {
  gpr_timespec deadline = gpr_inf_future(GPR_CLOCK_MONOTONIC);
  if (deadline_ms >= 0)
    deadline = gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(deadline_ms, GPR_TIMESPAN));
  return grpc_channel_create_call(channel->core, NULL, GRPC_PROPAGATE_DEFAULTS, cq,
                                  grpc_slice_from_static_string(rpc_method_defs[method].path), NULL, deadline,
                                  NULL);
}

int rpc_backoff_ms(int attempt) {
  static uint64_t draws;
  uint64_t key = random_key(clock_now_ns(), (uint64_t)getpid(), 0, 0);
  int pause = attempt < 6 ? BACKOFF_FIRST_MS << (attempt < 0 ? 0 : attempt) : BACKOFF_MAX_MS;
  float jitter = random_uniform(key, __atomic_fetch_add(&draws, 1, __ATOMIC_RELAXED)) - 0.5f;
  pause = pause < BACKOFF_MAX_MS ? pause : BACKOFF_MAX_MS;
  return pause + (int)(0.5f * jitter * (float)pause);
}
