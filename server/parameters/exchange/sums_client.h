/* The sums client takes messages of runs to other servers and brings their answers back. A message that fails
   on the way is sent again, after a pause, until it is answered, refused or cancelled. Any thread, never
   blocks, except where this says otherwise. */
#ifndef WEIR_SERVER_PARAMETERS_EXCHANGE_SUMS_CLIENT_H
#define WEIR_SERVER_PARAMETERS_EXCHANGE_SUMS_CLIENT_H

#include "common/rpc/client.h"
#include "parameters.pb-c.h"

struct sums_client;
struct sums_route; /* to one server, for one run: a connection of its own */

/* One message on its way: embedded in the caller's struct, left alone from send until done is called. */
struct errand {
  const Weir__SumsRequest *request; /* outlives the errand */
  /* Called once. err OK: the reply, which ends with the callback. CANCELLED: the route was cancelled. Any
     other: the server refuses. On a queue's thread, or on the thread that sends or cancels; must not block.
   */
  void (*done)(struct errand *errand, const struct err *err, const Weir__SumsReply *reply);

  struct rpc_request rpc; /* the sums client's own, as all that follows */
  struct sums_route *route;
  struct errand *next; /* of the route's */
  uint64_t due_ns;     /* when it is sent again */
  int attempt;
  bool is_sent; /* and not answered */
};

struct sums_client *sums_client_new(struct rpc_client *client); /* which outlives it */
/* Cancels all that is under way and all that still comes; waits until no callback runs. */
void sums_client_stop(struct sums_client *sums_client);
void sums_client_free(struct sums_client *sums_client); /* when no route is open. NULL is ignored */

/* ticket: of the messages; copied. */
struct sums_route *sums_client_open(struct sums_client *sums_client, const char *target, const char *ticket);
void sums_client_close(struct sums_route *route); /* nothing of it is under way. NULL is ignored */

/* Blocks: whether the server answers at all. */
int sums_client_reach(const struct sums_route *route, int deadline_ms, struct err *err);
void sums_client_send(struct sums_route *route, struct errand *errand);
void sums_client_cancel(struct sums_route *route); /* also what is sent later. NULL is ignored */

#endif
