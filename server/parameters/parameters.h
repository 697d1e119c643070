/* The parameters role: owns blocks of runs, sums their gradients, makes new versions and serves them. */
#ifndef WEIR_SERVER_PARAMETERS_PARAMETERS_H
#define WEIR_SERVER_PARAMETERS_PARAMETERS_H

#include "cluster.pb-c.h"
#include "common/base/err.h"
#include "common/metrics/metric.h"
#include "common/rpc/client.h"
#include "common/rpc/server.h"
#include "spec.pb-c.h"

struct pace_options;
struct parameters;
struct store;

struct parameters_options {
  struct store *store; /* outlives the role; NULL: WriteBlocks is answered with an error */
  const char
      *store_url; /* of it, for messages, which do not show its password; outlives the role; may be NULL */
  int shards;     /* threads that do the arithmetic; 0: the cores, at most 4 */
  int keeper_patience_ms;          /* for which a server that keeps sums may be out of reach; 0: 15 s */
  const struct pace_options *pace; /* when a step is late; NULL: pace_defaults. Copied */
};

/* Threads are up and calls can be answered when it returns. */
struct parameters *parameters_new(const struct parameters_options *options);

/* The service for rpc_server_start; good until parameters_free. */
const struct rpc_service *parameters_service(const struct parameters *parameters);

/* Joins the coordinator at HOST:PORT (or one of several, separated by commas) as the server that hello
   describes (copied; its address is where workers reach the service, so the service listens already), and
   again whenever the link breaks. Runs outlive the link: while there is no coordinator they go on. Once.
   client outlives the role. */
void parameters_join(struct parameters *parameters, struct rpc_client *client, const char *coordinator,
                     const Weir__Hello *hello);

/* A source of metrics (struct metric_source), whose user is the role. Any thread, until parameters_free. */
void parameters_measure(void *parameters, struct metric_page *page);

/* After parameters_join: asks that other servers take all blocks, and returns at once. parameters_may_leave
   says from then on whether there is nothing to wait for any more: no block is here, or no other server can
   take what is. */
void parameters_ask_to_leave(struct parameters *parameters);
bool parameters_may_leave(struct parameters *parameters);

/* Leaves the coordinator and unloads every run: parked calls are finished with CANCELLED. Before
   rpc_server_stop, which waits for them. */
void parameters_leave(struct parameters *parameters);

/* After rpc_server_stop. NULL is ignored. */
void parameters_free(struct parameters *parameters);

#endif
