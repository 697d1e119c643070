/* The link of a member (a parameter server or a worker) to the coordinator: one stream that says Hello, beats
   every second, brings orders, and is opened again whenever it broke or its coordinator fell silent. The
   stream is the membership. What a member has of runs outlives it: the next Hello tells, and the coordinator
   says what is to be kept. */
#ifndef WEIR_COMMON_RPC_MEMBER_H
#define WEIR_COMMON_RPC_MEMBER_H

#include "cluster.pb-c.h"
#include "common/base/err.h"
#include "common/base/memory.h"
#include "common/rpc/client.h"

struct member;

struct member_options {
  struct rpc_client *client; /* outlives the member */
  const char *coordinator;   /* HOST:PORT, or several separated by commas: where it may be; copied */
  const Weir__Hello *hello;  /* copied */
  int silent_after_ms;       /* how long a coordinator may say nothing, not even a beat; 0: 5000 */

  /* Fills hello->runs, in the arena: what we still have of former memberships. id and term are filled
     already. On the member's own thread, before each Hello. May be NULL. */
  void (*on_hello)(void *user, Weir__Hello *hello, struct arena *arena);
  /* Fills a heartbeat, in the arena. On the member's own thread, about every second; never blocks: the
     coordinator takes a member for dead whose beats stay out. May be NULL. */
  void (*on_beat)(void *user, Weir__Heartbeat *heartbeat, struct arena *arena);
  /* The coordinator took us in (its Welcome came), under this id: before any order of this membership. On a
     queue's thread: never blocks. May be NULL. */
  void (*on_connected)(void *user, const char *id);
  /* An order other than Welcome and Beat, in the order sent; it ends with the callback (message_copy keeps
     it). On a queue's thread: never blocks. One of a lower term than was seen before does not get here, but
     ends the membership: its coordinator leads no more. */
  void (*on_order)(void *user, const Weir__Order *order);
  /* The membership that on_connected began has ended; err says why (OK: the coordinator ended it). On the
     member's own thread, so it may block; neither order nor on_connected comes before it returns. Also called
     by member_stop. May be NULL. */
  void (*on_lost)(void *user, const struct err *err);
  void *user;
};

/* Starts the member's thread and returns at once; it tries until it is stopped, however long the coordinator
   is away. on_connected may fire before it returns. */
struct member *member_start(const struct member_options *options);

/* Sends a message in the present membership. Any thread, never blocks. Errors: CANCELLED while there is none,
   BUSY when too many messages wait: the membership ends then, for the coordinator would miss this one. */
int member_send(struct member *member, const Weir__MemberMessage *message);

/* Likewise for what can wait: BUSY when 1024 messages do, and the membership goes on. */
int member_offer(struct member *member, const Weir__MemberMessage *message);

/* The channel to the coordinator of the present membership, of the last one, or to the first named. It lives
   as long as the member. Any thread. */
struct rpc_channel *member_channel(struct member *member);

/* Ends the membership, waits for the last callback, frees. Not from a callback. NULL is ignored. */
void member_stop(struct member *member);

#endif
