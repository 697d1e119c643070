/* The exchange of a run turns sums of blocks into totals. The keeper, the first server of the run's order,
   adds contributions in the order of blocks in the model, whatever server they come from and whenever they
   come. The other servers send the keeper what their blocks contribute, and get the totals of the same
   windows back. Only one shard's thread touches an exchange, except where this says otherwise. */
#ifndef WEIR_SERVER_PARAMETERS_EXCHANGE_EXCHANGE_H
#define WEIR_SERVER_PARAMETERS_EXCHANGE_EXCHANGE_H

#include "common/rpc/server.h"
#include "server/parameters/exchange/sums_client.h"
#include "server/parameters/run/shard.h"

struct hosted_block;
struct hosted_run;

struct exchange {
  struct hosted_run *run;
  struct job_queue *queue;        /* the run's at the exchange's shard */
  struct collection *collections; /* [run->sums.n_phases] */
  struct sums_route *keeper; /* where we send contributions; NULL if we keep the sums, or none are needed */
  struct batch *batches;     /* of contributions, to be used again */
};

struct exchange_setup {
  struct hosted_run *run;          /* knows its place among servers, but has no blocks yet */
  struct job_queue *queue;         /* outlives the exchange */
  struct sums_client *sums_client; /* outlives the run; may be NULL with one server */
  const char *keeper;              /* the address of the order's first server */
};

/* Errors: NO_MEMORY; fini is due all the same. */
int exchange_init(struct exchange *exchange, const struct exchange_setup *setup, struct err *err);
void exchange_fini(struct exchange *exchange); /* safe on a zeroed one */

/* The sums that one of our blocks has made of the phase that it is in. hosted_block_take_totals follows
   unless the run is unloaded; if there will be no totals, hosted_block_set_fault comes before it. On the
   block's shard. */
void exchange_contribute(struct exchange *exchange, struct hosted_block *block);

/* The call of another server, by a message that names the run: parked until the totals are there. On a
   thread of the completion queue. */
void exchange_serve(struct exchange *exchange, struct rpc_call *rpc, const Weir__SumsRequest *request);
void exchange_on_closed(
    struct rpc_call *rpc); /* of a call that was served: its client is gone, or has its answer */

/* The run is unloaded: nothing is kept back any more, parked calls are finished with the error. */
void exchange_cancel(struct exchange *exchange, const struct err *err);

#endif
