/* The coordinator role: the Training and Cluster services around the core's decisions. */
#ifndef WEIR_SERVER_COORDINATOR_SERVICE_H
#define WEIR_SERVER_COORDINATOR_SERVICE_H

#include "common/rpc/server.h"
#include "storage/store.h"

struct coordinator_service;

struct coordinator_service_options {
  struct store *store;  /* outlives the role */
  int missing_after_ms; /* a member not heard of for longer is gone; 0: 5000 */
};

/* Threads are up and calls can be answered when it returns. */
struct coordinator_service *coordinator_service_new(const struct coordinator_service_options *options);

/* The services for rpc_server_start, COORDINATOR_SERVICES of them; good until coordinator_service_free. */
enum { COORDINATOR_SERVICES = 2 };
const struct rpc_service *coordinator_service_list(const struct coordinator_service *service);

/* Ends the streams of members and watchers and refuses new calls (UNAVAILABLE). Before rpc_server_stop, which
   waits for calls. Runs are not told: members unload them by themselves. */
void coordinator_service_stop(struct coordinator_service *service);

/* After rpc_server_stop. What is being written to the store is finished first. NULL is ignored. */
void coordinator_service_free(struct coordinator_service *service);

#endif
