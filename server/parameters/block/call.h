/* A push or a pull on its way through a shard. It ends answered, or forgotten when its client has gone; it
   may be parked before. */
#ifndef WEIR_SERVER_PARAMETERS_BLOCK_CALL_H
#define WEIR_SERVER_PARAMETERS_BLOCK_CALL_H

#include "common/rpc/server.h"
#include "server/parameters/round/part.h"
#include "server/parameters/run/shard.h"

struct bundle;
struct hosted_block;
struct hosted_run;

struct parameters_call {
  struct job arrival, departure;
  struct hosted_run *run; /* a reference */
  struct hosted_block *block;
  bool is_push;
  bool waits; /* for `version`: pulls always, pushes with `wait` */
  uint64_t version;
  struct part part;           /* of a push */
  struct rpc_bytes *bytes;    /* of a push, until it was taken or refused */
  struct shared_bytes shared; /* likewise, in place of bytes */
  struct share *share;        /* a reference: the reply may name bytes in it; NULL: they go by socket */

  /* A reference: of a push that came with others, and is part number `place` of them. NULL: it is alone. */
  struct bundle *bundle;
  uint32_t place;

  struct rpc_call *rpc;         /* the shard's; not to be touched once answered */
  struct parameters_call *next; /* among the block's parked ones */
  bool is_parked;               /* it takes of its shard's budget for calls */
  bool is_answered;             /* atomic */
  uint32_t refs;                /* atomic: the shard's until answered, the service's until closed */
};

/* Two references; takes one of the run's. */
struct parameters_call *parameters_call_new(struct rpc_call *rpc, struct hosted_run *run,
                                            struct hosted_block *block);
void parameters_call_put(struct parameters_call *call);

/* What a call that waits takes of a server's memory, most of it in gRPC (tests/bench/crowd_bench.c). */
enum { PARKED_CALL_BYTES = 12 * 1024 };

/* True if there is room for another call that waits; until the call ends it takes PARKED_CALL_BYTES. version:
   its block's. On the shard's thread. */
bool parameters_call_park(struct parameters_call *call, uint64_t version);

/* The part was taken: a call that waits keeps none of it. */
void parameters_call_drop_part(struct parameters_call *call);

/* Each ends the call and gives up the shard's reference. `data` (may be NULL): the version's bytes, sent from
   where they lie, or named there. On the shard's thread, or before the shard has it. */
void parameters_call_reply(struct parameters_call *call, uint64_t version, struct buffer *data);
void parameters_call_refuse(struct parameters_call *call, const struct err *err);

#endif
