/* One item on its way to a server: what its call asks, what the answer says, what the timeline shows of it.
 */
#ifndef WEIR_WORKER_TRAIN_TRANSFER_TRANSFER_H
#define WEIR_WORKER_TRAIN_TRANSFER_TRANSFER_H

#include "parameters.pb-c.h"
#include "worker/train/transfer/link_share.h"
#include "worker/train/transfer/transfers.h"

struct server_link;

/* One item and the call that carries it now. Belongs to its link for good, whose lock holds. */
struct transfer {
  struct rpc_request request; /* first */
  struct transfer_item item;
  struct transfers_sender sender;
  struct server_link *link;
  struct transfer *next;   /* in the link's queue, waits, pauses or spares */
  bool is_started;         /* between rpc_request_start and the end of the call */
  bool is_sending;         /* counts in the window */
  bool is_parked;          /* its call may wait for a version, and counts among those that do */
  bool is_taken;           /* a push whose part the server has: what is left is to pull the version */
  struct shared_with with; /* while a call is under way */
  bool is_named;           /* of a push: its bytes are named, not sent */
  Weir__SharedBytes name;
  struct transfer *further; /* pushes that its call brings, too, each the next one's */
  int attempt;
  uint64_t due_ns;            /* while it pauses */
  uint64_t begin_ns, sent_ns; /* of the call, on the timeline; 0: tracing is off */
};

/* True of a call that only asks for a version, which it may have to wait for. */
bool transfer_is_pull(const struct transfer *transfer);

/* How many bytes a push has. */
size_t transfer_bytes(const struct transfer_item *push);

/* Names the push's bytes in the memory that it shares with the server, if it can. */
void transfer_name(struct transfer *transfer);

/* Whether the second push may go with the first one, once its bytes are named. */
bool transfer_fits(const struct transfer *push, const struct transfer *further);

/* Starts the call, with what goes with it; the callbacks of its request are set. A push asks for the version
   if it is_parked. */
void transfer_send(struct transfer *transfer, const struct transfers_options *options,
                   struct rpc_channel *channel);

/* Starts a call that asks the server where it is in the run. */
void transfer_ask(struct rpc_request *request, const struct transfers_options *options,
                  struct rpc_channel *channel);

/* The bytes that the answer names instead of bringing them; of no segment, if it names none. Errors: CORRUPT
   for what no segment of the server's has. */
int transfer_find_shared(const struct transfer *transfer, const void *reply, struct shared_bytes *shared,
                         struct err *err);

/* True if the answer says that the part of a push was taken, and that the version that it waits for is to be
   pulled. */
bool transfer_is_put_off(const struct transfer *transfer, const struct received *received);

/* The version that the reply to its call names. */
uint64_t transfer_reply_version(const struct transfer *transfer, const void *reply);

/* The bytes of its call were written; the call has ended. */
void transfer_trace_sent(struct transfer *transfer, const struct transfers_options *options);
void transfer_trace_answered(const struct transfer *transfer, const struct transfers_options *options);

#endif
