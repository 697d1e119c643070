/* Devices in quarantine: their workers are given no work in any run. A device is what a worker's Hello says
   of its host and device, so that a new process, or another worker of the same machine, does not escape. */
#ifndef WEIR_SERVER_COORDINATOR_STATE_QUARANTINE_H
#define WEIR_SERVER_COORDINATOR_STATE_QUARANTINE_H

#include "server/coordinator/state/core.h"

struct coordinator;
struct member;
struct run;

enum { QUARANTINES_MAX = 1000, PAST_WORKERS_MAX = 1024 }; /* the oldest are forgotten */

struct quarantine {
  char *host, *device;
  char *worker;       /* its id at the time */
  char *run, *reason; /* the run that found it out, and what it found */
  int64_t since_unix_ms;
};

/* A worker that has left: servers may yet ask after what it pushed. */
struct past_worker {
  uint32_t number; /* N of worker-N; 0: the place is empty */
  char *id, *host, *device;
};

struct quarantines {
  struct quarantine *items; /* the oldest first */
  int count, capacity;
  struct past_worker past[PAST_WORKERS_MAX]; /* a ring */
  uint32_t n_past;                           /* of all that ever left */
};

/* Who a worker is, or was. Texts are the coordinator's. */
struct worker_identity {
  const char *id, *host, *device;
};

void quarantines_fini(struct quarantines *quarantines);

/* False: no worker of this number is there, nor left a while ago. */
bool coordinator_identify(const struct coordinator *coordinator, uint32_t number,
                          struct worker_identity *identity);
bool coordinator_is_same_device(const struct worker_identity *a, const struct worker_identity *b);
void coordinator_worker_past(struct coordinator *coordinator, const struct member *worker);

/* NULL: it is not in quarantine. */
const struct quarantine *coordinator_quarantine_of(const struct coordinator *coordinator, const char *host,
                                                   const char *device);
/* From now on; workers on the device lose what they compute at once. Nothing happens if it is there already.
 */
void coordinator_quarantine(struct coordinator *coordinator, const struct worker_identity *identity,
                            const struct run *run, const char *reason);
/* Of a worker that joins. */
void coordinator_quarantine_newcomer(struct coordinator *coordinator, struct member *worker);
/* What a former coordinator knew of members: its quarantines, and which ids were used. */
void coordinator_members_restored(struct coordinator *coordinator, const Weir__Members *members);
/* name: as of coordinator_find_quarantine. One that is not in quarantine is ignored. */
void coordinator_readmit(struct coordinator *coordinator, const char *name);

#endif
