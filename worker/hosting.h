/* The runs of a worker: those that it computes, beside each other, and those that rest (worker/resting.h). */
#ifndef WEIR_WORKER_HOSTING_H
#define WEIR_WORKER_HOSTING_H

#include "cluster.pb-c.h"
#include "common/base/memory.h"
#include "common/rpc/client.h"
#include "peers.pb-c.h"
#include "worker/data/data_root.h"
#include "worker/device.h"

/* The most runs that are computed at a time; on GPUs, whose memory one run has, it is one. */
enum { HOSTED_MAX = 4 };

struct hosting;

/* What runs are given: see run_options. All of it outlives the runs. */
struct hosting_options {
  struct rpc_client *client;
  const struct device_choice *device;
  struct data_root data_root;
  uint64_t memory_bytes;
  int executors;
  int readers;
  int end_ms;
  void (*send)(void *user, const Weir__MemberMessage *message);
  void (*device_lost)(void *user);
  void *user;
};

struct hosting *hosting_new(const struct hosting_options *options);
void hosting_free(struct hosting *hosting); /* after hosting_end */

/* The following may be called by one thread at a time. A run that is to end while one of its executions hangs
   ends the process. */

/* The run is to be computed, too. What is loaded of it already is not loaded again. A run beyond HOSTED_MAX
   is refused. */
void hosting_load(struct hosting *hosting, const Weir__LoadRun *load, struct rpc_channel *coordinator);
/* It is to be computed no more. This and the following ignore runs that are not there. */
void hosting_unload(struct hosting *hosting, const Weir__UnloadRun *unload);
void hosting_view(struct hosting *hosting, const Weir__View *view, const char *worker);
void hosting_reissue(struct hosting *hosting, const Weir__Reissue *order);
/* The membership has ended: see run_mute. */
void hosting_mute(struct hosting *hosting);
void hosting_end(struct hosting *hosting); /* all runs; waits for them */
/* Forgets runs that have rested for long. Returns when there will be others (clock_now_ns); 0: never. */
uint64_t hosting_forget_old(struct hosting *hosting);

/* Any thread. */

int hosting_count(struct hosting *hosting);    /* runs that it computes */
bool hosting_is_idle(struct hosting *hosting); /* it computes none */
/* What Hello says of all of them; what Heartbeat says of those that it computes, and messages of their teams.
 */
void hosting_hello(struct hosting *hosting, Weir__Hello *hello, struct arena *arena);
void hosting_beat(struct hosting *hosting, Weir__Heartbeat *heartbeat, struct arena *arena);
/* Whether another worker, the holder of a certificate (its URI; "" without TLS), may send what crosses
   between stages of a run, by its ticket (NULL: it has none). Errors: DENIED; BUSY where that run is not
   here. */
int hosting_admit_peer(struct hosting *hosting, const char *ticket, const char *holder, struct err *err);
/* From one that was admitted with that ticket. Errors: also DENIED if the piece is not for the ticket's run
   and incarnation. */
int hosting_take_boundary(struct hosting *hosting, const char *ticket, const Weir__BoundaryPiece *piece,
                          const struct rpc_bytes *bytes, struct err *err);

#endif
