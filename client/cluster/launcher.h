/* A private cluster on this machine: a coordinator, parameter servers and workers as direct children, which
   never outlive us. */
#ifndef WEIR_CLIENT_CLUSTER_LAUNCHER_H
#define WEIR_CLIENT_CLUSTER_LAUNCHER_H

#include <stdbool.h>

#include "client/cluster/connect.h"
#include "common/agree/labels.h"

struct launcher;

struct launcher_options {
  const char *logs;      /* folder of the children's output, NAME.log each; exists */
  const char *store;     /* URL; the children are told by their environment, for it may be a secret */
  const char *data_root; /* of the workers, who follow links out of it: an absolute path */
  int servers, workers;
  int threads; /* of a worker */
  const char
      *device;     /* --device of the workers, to whom several GPUs are dealt out; NULL: theirs to choose */
  const char *tls; /* --tls of all children: a certificate of the role all; NULL: they are plaintext */
  const char *memory;   /* --memory of each worker; NULL: what the machine has free */
  struct labels labels; /* of each worker */
  bool sockets;         /* they listen at sockets in a folder that only this user enters, not on ports */
  const char *trace;    /* of each worker's timeline: of several, FILE-N.json for FILE.json; NULL: none */
  bool is_insecure;     /* plaintext may go to a store beyond this machine */
  bool restart;         /* start a child again that died */
};

/* Of each worker: as many as given, or by default (0) this machine's cores, those that we may use, shared out
   among the workers. */
int launcher_threads(int given, int workers);
/* Of each server, for calls; as many again work on blocks. These cores are divided among the servers, and
   each gets 2 to 16. */
int launcher_server_threads(int servers);

/* What one of the workers gets of --device; freed by the caller. */
char *launcher_deal_device(const char *device, int worker, int workers);

/* Starts the coordinator on a free port of 127.0.0.1 or at a socket, waits until it listens, and starts the
   others. A thread watches over all of them. It starts a child that has died again, on the port that it had,
   unless the child dies over and over right after its start. A worker that cannot work on this machine (exit
   status 2) is not started again either. STOP_CHILD is requested once no coordinator, no server or no worker
   is left; before all have joined, also for such a worker. Each child is a process group of its own, so that
   the terminal's Ctrl-C reaches us alone. The kernel sends it SIGTERM should we be killed. Errors: NOT_FOUND
   for a missing program, those of rpc_tls_open, IO, INTERNAL with the log's last line when the coordinator
   does not come up; CANCELLED on a stop.
 */
int launcher_start(const struct launcher_options *options, struct launcher **out, struct err *err);

const char *
launcher_address(const struct launcher *launcher); /* of the coordinator, HOST:PORT or unix:/PATH */

/* Waits until the coordinator leads and every server and worker has joined. Errors: INTERNAL when one died
   for good or a minute passed, CANCELLED on a stop, those of connection_call. */
int launcher_wait_members(struct launcher *launcher, struct connection *connection, struct err *err);

/* After a stop with STOP_CHILD: which child died, how, and the last line of its log, as INTERNAL; of a worker
   that cannot work on this machine that line alone, as INVALID. */
void launcher_explain(struct launcher *launcher, struct err *err);

/* Stops the children: SIGTERM, after five seconds SIGKILL; waits for them; frees. NULL is ignored. */
void launcher_stop(struct launcher *launcher);

#endif
