/* Pushes and pulls of blocks that are under way to the servers of a run. Each server has two channels, a
   queue and a window. The window limits how many pushes have their bytes on the way at a time. As few calls
   as parked_max wait for a version at a server, whatever the model's size: beyond them a push is answered
   when its part is taken, and its version is pulled when one of the others has been answered. A call that
   fails in passing is sent again until it succeeds or all is stopped. A server that has answered nothing for
   two seconds is asked where it is. With a server of this host blocks are not sent but named, in shared
   memory. */
#ifndef WEIR_WORKER_TRAIN_TRANSFER_TRANSFERS_H
#define WEIR_WORKER_TRAIN_TRANSFER_TRANSFERS_H

#include "cluster.pb-c.h"
#include "common/agree/tree.h"
#include "common/base/memory.h"
#include "common/rpc/client.h"
#include "common/share/shared.h"

struct transfers;

/* VERSIONS asks a server for the lowest of its blocks' newest versions. */
enum transfer_kind { TRANSFER_PUSH, TRANSFER_PULL, TRANSFER_VERSIONS };

struct transfer_item {
  enum transfer_kind kind;
  uint32_t server; /* index in the options' servers */
  uint32_t block;
  uint64_t step;    /* push: of the part, or the version that an evaluation's row is of */
  uint64_t version; /* pull: the one wanted; push that waits: the one that the part brings */
  struct tree_node node;
  bool is_evaluation;
  bool wait;             /* push: the version is to come, with the reply or by a pull that follows it */
  struct buffer *buffer; /* push: what is sent; kept until `ended` */
  size_t size_bytes;     /* so many of its bytes, from the first on; 0: all of them */
};

/* What came of a block: received, or named in the memory of a server of this host. */
struct received {
  const struct rpc_bytes *bytes;
  struct shared_bytes shared; /* in place of bytes */
};

size_t received_bytes(const struct received *received);
/* Copies all of it. Errors: STALE where the server has given it up meanwhile: `out` counts for nothing. */
int received_copy(const struct received *received, void *out, struct err *err);

/* The servers that have answered nothing for six seconds, while calls failed. */
struct transfers_unreached {
  uint64_t incarnation;
  const char **servers; /* [n] ids */
  size_t n;
  const char *error; /* of a call to the first; "" if there is none */
};

/* Who pushes, and by which view: what each push says of itself. */
struct transfers_sender {
  uint32_t worker; /* N of the id worker-N; 0: the coordinator gave none */
  uint64_t view;
};

struct transfers_options {
  struct rpc_client *client; /* outlives it */
  const char *run;           /* outlives it */
  int trace_number;          /* of trace_run_begin */
  uint64_t incarnation;
  const char *ticket; /* of each call; copied; "" or NULL: none */
  struct transfers_sender sender;
  Weir__Endpoint *const *servers; /* copied */
  uint32_t n_servers;
  int parked_max;   /* calls to a server that may wait for a version at a time; 0: 64, of its host 1024 */
  int question_ms;  /* the deadline of VERSIONS, after which the server is asked again */
  int silent_ms;    /* after how long without an answer a server is asked whether it is there; 0: 2000 */
  int unreached_ms; /* and after how long, if calls fail, it is told to be unreached; 0: 6000 */

  /* All on a queue's thread (`ended` also on the one that stops): they may lock but never wait for the
     network.

     A block came, with a pull's reply or that of a push that waits, or a version alone (nothing is
     received). It ends with the callback. */
  void (*received)(void *user, const struct transfer_item *item, uint64_t version,
                   const struct received *received);
  /* It failed for good: err is not retryable. `ended` follows. */
  void (*failed)(void *user, const struct transfer_item *item, const struct err *err);
  /* The last of each item, however it ended: the buffer is the caller's again. */
  void (*ended)(void *user, const struct transfer_item *item);
  /* On a thread of the transfers': when those servers change, and again and again while there are some. What
     it points to ends with the callback. */
  void (*unreached)(void *user, const struct transfers_unreached *unreached);
  void *user;
};

struct transfers *transfers_new(const struct transfers_options *options);
/* Cancels everything, waits until every item has ended, closes the channels, frees. Not from a callback, and
   without locks that callbacks take. NULL is ignored. */
void transfers_free(struct transfers *transfers);

/* Starts n items: pushes of the same node that are started together may go to their server in one call. Any
   thread. Never waits for the network, calls nothing back. */
void transfers_start(struct transfers *transfers, const struct transfer_item *items, int n);

/* Of what is started from here on: a newer view that changes neither servers nor group. Any thread. */
void transfers_set_sender(struct transfers *transfers, const struct transfers_sender *sender);

const char *transfers_address(const struct transfers *transfers, uint32_t server);

/* Fills ids with the servers that have answered within the last two seconds, and to which a connection is
   open; returns how many. ids[n_servers]; each holds as long as the transfers. Any thread. */
size_t transfers_reached(struct transfers *transfers, const char **ids);

#endif
