/* The worker process: a member of the cluster that computes some runs beside each other, as the coordinator
   orders, and keeps others loaded that may come back. */
#ifndef WEIR_WORKER_WORKER_H
#define WEIR_WORKER_WORKER_H

#include <stdbool.h>

#include "common/agree/labels.h"
#include "common/rpc/tls.h"
#include "worker/data/data_root.h"
#include "worker/device.h"

struct worker_options {
  const char *coordinator;        /* HOST:PORT, or several separated by commas */
  const char *listen, *advertise; /* for other workers, as in peers_options; NULL: as it finds */
  struct rpc_security security;
  struct rpc_tls *tls; /* of all connections; NULL: they are plaintext */
  struct data_root data_root;
  struct device_choice device;
  struct labels labels;
  const char *http;      /* HOST:PORT of /metrics; NULL: none */
  const char *trace;     /* the file of its timeline; NULL: none */
  uint64_t memory_bytes; /* that programs may take together, where a run asks; of each GPU; 0: what is free */
  int threads;           /* executors on a CPU, which also read ahead; beside GPUs they only read ahead */
  int leave_ms;          /* how long one that leaves waits until its work was given to others; 0: 5000 */
  int end_ms;            /* how long a run that is given up waits for executions that hang; 0: 10000 */
};

/* The signals that worker_serve waits for come to nobody else. To be called before any thread is started:
   libraries start some, too, a GPU's driver as soon as it is asked for its devices. */
void worker_block_signals(void);

/* Serves until SIGTERM or SIGINT, or until its device fails, then leaves the cluster: says so, and returns
   once its work was given to others, or after leave_ms. A second signal ends the process at once; so does,
   with a line in the log, a run that is given up while an execution hangs. False: err says why; LOST_DEVICE:
   it has failed, and this process can no longer use it; else those of metrics_page_open. After
   worker_block_signals. Where workers were to listen and cannot, one line in
   the log says so, and this one takes no part in teams with others. */
bool worker_serve(const struct worker_options *options, struct err *err);

#endif
