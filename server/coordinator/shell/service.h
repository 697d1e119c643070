/* The coordinator role: the Training and Cluster services around the core's decisions. One coordinator of a
   store leads. The others stand by: they answer UNAVAILABLE, and one of them takes over when the leader is
   gone. */
#ifndef WEIR_SERVER_COORDINATOR_SHELL_SERVICE_H
#define WEIR_SERVER_COORDINATOR_SHELL_SERVICE_H

#include "common/metrics/metric.h"
#include "common/rpc/server.h"
#include "storage/store.h"

struct coordinator_service;
struct quotas;

struct coordinator_service_options {
  struct store *store;          /* outlives the role */
  int missing_after_ms;         /* a member not heard of for longer is gone; 0: 5000 */
  int server_grace_ms;          /* how long a run waits for a lost server; 0: 3000 */
  int follow_ms;                /* a worker that follows a run for longer is named; 0: 30000 */
  int upload_idle_ms;           /* how long a submission may be silent before all of it has come; 0: 30000 */
  int upload_slow_ms;           /* how long it may be slow; 0: 60000 */
  struct quotas *quotas;        /* of tenants; taken; NULL: none */
  struct rpc_security security; /* members' addresses must be allowed by it; clients are told */
  int lease_ms;                 /* how long a leader may be silent before another takes over; 0: 3000 */
  /* We lead from now on, and members and clients are answered. On a thread of the role; may be NULL. */
  void (*on_leading)(void *user);
  /* Another coordinator leads: nothing is answered or decided here any more, the role is to be stopped. On a
     thread of the role, once; may be NULL. */
  void (*on_deposed)(void *user, const char *reason);
  void *user;
};

/* Calls can be answered when it returns: as a standby's, until coordinator_service_lead and its success. */
struct coordinator_service *coordinator_service_new(const struct coordinator_service_options *options);

/* The services for rpc_server_start, COORDINATOR_SERVICES of them; good until coordinator_service_free. */
enum { COORDINATOR_SERVICES = 2 };
const struct rpc_service *coordinator_service_list(const struct coordinator_service *service);

/* Leads as soon as no other does: once the server listens. holder: host and listening address; the
   coordinator that led under the same name is taken for dead. address: where members and clients reach us.
   Both are copied. */
void coordinator_service_lead(struct coordinator_service *service, const char *holder, const char *address);

/* Waits until it leads, or it is known why it does not yet; at most so long. True: it leads. */
bool coordinator_service_wait(struct coordinator_service *service, int timeout_ms);

/* A source of metrics (struct metric_source), whose user is the service. Waits for the event loop; one thread
   at a time, and none once coordinator_service_free is called. */
void coordinator_service_measure(void *service, struct metric_page *page);

/* From now on tenants have these quotas, which are taken. Any thread. */
void coordinator_service_set_quotas(struct coordinator_service *service, struct quotas *quotas);

/* Ends the streams of members and watchers and refuses new calls (UNAVAILABLE). Before rpc_server_stop, which
   waits for calls. Runs are not told: members keep them for a while. */
void coordinator_service_stop(struct coordinator_service *service);

/* After rpc_server_stop. What is to be kept is written to the store first, unless the store does not answer;
   then the lease is set free. NULL is ignored. */
void coordinator_service_free(struct coordinator_service *service);

#endif
