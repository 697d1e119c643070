/* Which devices are in quarantine, and who the workers are and were. A device is what a worker's Hello says
   of its host and device, so that a new process, or another worker of the same machine, does not escape, and
   the holder of its certificate, so that nobody brings another's device into quarantine by its name. */
#ifndef WEIR_SERVER_COORDINATOR_STATE_QUARANTINES_H
#define WEIR_SERVER_COORDINATOR_STATE_QUARANTINES_H

#include <stdbool.h>
#include <stdint.h>

struct coordinator;
struct member;
struct viewer;

enum { QUARANTINES_MAX = 1000, PAST_WORKERS_MAX = 1024 }; /* the oldest are forgotten */

struct quarantine {
  char *host, *device;
  char *holder;       /* the URI of its certificate; empty: without TLS, or not known */
  char *worker;       /* its id at the time */
  char *run, *reason; /* the run that found it out, and what it found */
  char *tenant;       /* whose run that was */
  int64_t since_unix_ms;
};

/* A worker that has left: servers may yet ask after what it pushed. */
struct past_worker {
  uint32_t number; /* N of worker-N; 0: the place is empty */
  char *id, *host, *device, *holder;
};

struct quarantines {
  struct quarantine *items; /* the oldest first */
  int count, capacity;
  struct past_worker past[PAST_WORKERS_MAX]; /* a ring */
  uint32_t n_past;                           /* of all that ever left */
};

/* Who a worker is, or was. Texts are the coordinator's. */
struct worker_identity {
  const char *id, *host, *device, *holder;
};

void quarantine_fini(struct quarantine *quarantine);
void quarantines_fini(struct quarantines *quarantines);

/* False: no worker of this number is there, nor left a while ago. */
bool coordinator_identify(const struct coordinator *coordinator, uint32_t number,
                          struct worker_identity *identity);
bool coordinator_is_same_device(const struct worker_identity *a, const struct worker_identity *b);
/* The holder of the newest of the workers of this id that have left a while ago; NULL: there was none. */
const char *coordinator_past_holder(const struct coordinator *coordinator, const char *id);
void coordinator_worker_past(struct coordinator *coordinator, const struct member *worker);
/* NULL: its device is not in quarantine. */
const struct quarantine *coordinator_quarantine_of(const struct coordinator *coordinator,
                                                   const struct worker_identity *worker);
struct worker_identity coordinator_identity(const struct member *worker);
/* Of those that the viewer sees: its index in items, by the id of a worker on it, now or then, or by
 * HOST/DEVICE; -1: none. */
int coordinator_quarantine_find(const struct coordinator *coordinator, const struct viewer *viewer,
                                const char *name);

#endif
