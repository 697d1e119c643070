/* How many bytes of its clients' payloads a server holds at a time: of messages that are coming, and of those
   that have come until their owner frees them. A call for which there is no room is not read; it waits for
   its turn, and flow control keeps its client from sending more than a stream's window. */
#ifndef WEIR_COMMON_RPC_INTAKE_H
#define WEIR_COMMON_RPC_INTAKE_H

#include <stdbool.h>
#include <stddef.h>

struct rpc_bytes;
struct rpc_intake;

/* A call's place, embedded in it. */
struct rpc_intake_place {
  struct rpc_intake *intake;
  /* The turn has come; on any thread, without locks of the intake. */
  void (*admitted)(struct rpc_intake_place *place);
  size_t bytes;    /* that are kept free for its message */
  bool is_waiting; /* for its turn */
  struct rpc_intake_place *next;
};

struct rpc_intake *rpc_intake_new(size_t bytes_max); /* 0: without a bound */
/* No place is in use any more; bytes that came may outlive it. */
void rpc_intake_free(struct rpc_intake *intake);

/* Takes room for a message of up to so many bytes: at once (true), or later, when `admitted` is called. What
   is larger than all there is comes alone. */
bool rpc_intake_enter(struct rpc_intake_place *place, size_t bytes);
/* The message has come: its bytes (may be NULL) take the room until they are freed, whatever was kept free.
 */
void rpc_intake_came(struct rpc_intake_place *place, struct rpc_bytes *bytes);
/* The message does not come: what was kept free for it is free for others, and it may come all the same. True
   if the place still waits for its turn. */
bool rpc_intake_lapse(struct rpc_intake_place *place);
/* Gives the room back, or the turn up; true if it was waiting. Also of a place that has neither. */
bool rpc_intake_leave(struct rpc_intake_place *place);

/* For rpc_bytes_free: so many bytes are free. */
void rpc_intake_release(struct rpc_intake *intake, size_t bytes);

/* Bytes that are held or kept free. */
size_t rpc_intake_bytes(struct rpc_intake *intake);

#endif
