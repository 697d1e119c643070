/* The client's side of RPC, for the files that implement it. */
#ifndef WEIR_COMMON_RPC_CLIENT_CORE_H
#define WEIR_COMMON_RPC_CLIENT_CORE_H

#include "common/rpc/client.h"
#include "common/rpc/core.h"

struct rpc_channel {
  struct rpc_client *client;
  struct rpc_queue *queue; /* of its calls */
  enum rpc_peer peer;
  char *target;
  pthread_mutex_t lock; /* what follows */
  grpc_channel *core;
  uint64_t made_ns;  /* when the core was */
  bool has_outlived; /* the certificate that its connection has shown */
};

/* A call on the queue. deadline_ms < 0: none. */
grpc_call *rpc_channel_call(struct rpc_channel *channel, grpc_completion_queue *cq, enum rpc_method_id method,
                            int deadline_ms);

/* Whether what has come by the call is believed: the other end's certificate may have ended meanwhile, or
   been denied. Errors: UNAVAILABLE with its name; calls that follow go by a new connection. */
int rpc_channel_check(struct rpc_channel *channel, grpc_call *call, struct err *err);

/* What a call begins with: a ticket, or nothing. Kept until the operation has ended. */
struct rpc_opening {
  grpc_metadata ticket;
  bool has_ticket;
};

/* ticket: NULL, "" and what metadata cannot carry are none. */
void rpc_opening_init(struct rpc_opening *opening, const char *ticket, grpc_op *op);
void rpc_opening_fini(struct rpc_opening *opening);

/* How a call ends: where gRPC writes its answer to. */
struct rpc_ending {
  grpc_metadata_array initial, trailing;
  grpc_status_code status;
  grpc_slice text;
};

void rpc_ending_init(struct rpc_ending *ending);
void rpc_ending_fini(struct rpc_ending *ending);
/* The two operations that fill it. */
void rpc_ending_ops(struct rpc_ending *ending, grpc_op ops[2]);

/* What the ending of a call of the channel means, as one line that names the target; gRPC's long descriptions
   are cut to their point. Returns the code. */
int rpc_ending_err(const struct rpc_ending *ending, struct rpc_channel *channel, int deadline_ms,
                   struct err *err);

#endif
