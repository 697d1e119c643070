/* What the worker process gives a run. */
#ifndef WEIR_WORKER_TRAIN_RUN_RUN_OPTIONS_H
#define WEIR_WORKER_TRAIN_RUN_RUN_OPTIONS_H

#include "cluster.pb-c.h"
#include "common/rpc/client.h"
#include "worker/backend/backend.h"
#include "worker/data/data_root.h"

struct kept_data;
struct promises;
struct run;

struct run_options {
  struct rpc_client *client;       /* outlives the run, as all pointers here */
  struct rpc_channel *coordinator; /* to fetch the model */
  const struct backend_def *backend;
  struct data_root data_root;
  int threads;        /* executors; never more than microbatches */
  const int *devices; /* of a backend that has several: executor i computes on devices[i mod n_devices] */
  int n_devices;
  const uint64_t *device_bytes; /* [n_devices] of memory */
  uint64_t memory_bytes;       /* that all programs of this process may take, on each device, where they adapt
                                  to it; 0: what is free */
  struct promises *promises;   /* of this machine's memory, to all runs of this process; NULL: to this one */
  int readers;                 /* threads that read ahead, at least */
  int parked_max;              /* as in transfers_options */
  int question_ms;             /* how long a server that is asked where it is may take; 0: 3000 */
  int silent_ms, unreached_ms; /* as in transfers_options */
  int meeting_ms;              /* how long a group's members wait until all of them are there; 0: 10000 */
  struct kept_data *kept;      /* of run_stop_but_data, for the same run; taken; NULL: nothing is kept */
  int end_ms;                  /* how long a run that is stopped waits for executions; 0: 10000 */
  /* Says something to the coordinator. Any thread, under the run's lock: never blocks, calls nothing back. */
  void (*send)(void *user, const Weir__MemberMessage *message);
  /* Likewise, once, instead of a refusal: the device has failed, and others have to go on. */
  void (*device_lost)(void *user);
  /* Memory does not suffice to load, or programs adapt to what there is: gives up what else this process can
     do without. False: there is nothing. The run's thread, without its lock; may block. NULL: as if false. */
  bool (*make_room)(void *user, const struct run *run);
  /* Whether this process computes other runs beside this one. Threads as above; NULL: as if false. */
  bool (*are_others_beside)(void *user, const struct run *run);
  void *user;
};

#endif
