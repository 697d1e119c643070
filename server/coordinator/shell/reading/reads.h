/* What tenants read at a time. Downloads hold memory for as long as their clients read, and verifications the
   disk, so each tenant may have so many under way, and none has those of another. A checkpoint that is read
   is not deleted meanwhile. */
#ifndef WEIR_SERVER_COORDINATOR_SHELL_READING_READS_H
#define WEIR_SERVER_COORDINATOR_SHELL_READING_READS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "server/coordinator/quotas/quota.h"

enum read_kind {
  READ_DOWNLOAD,     /* of a client: a model, pieces of one, weights, a layout */
  READ_VERIFICATION, /* of a run's checkpoints */
  READ_OF_MEMBER,    /* a model or pieces of one: no quota bounds what a worker needs */
  READ_KINDS
};

struct read;

struct reads {
  pthread_mutex_t lock;
  struct read *list;
};

void reads_init(struct reads *reads);
void reads_fini(struct reads *reads); /* all have ended */

/* The tenant ("": members that are for all) has one more under way; NULL: it may not. quotas NULL: there are
   none. Any thread, if none changes the quotas meanwhile. Errors: QUOTA; BUSY where the tenant has no quota
   of them, and as many as anybody may have. */
struct read *read_begin(struct reads *reads, const struct quotas *quotas, const char *tenant,
                        enum read_kind kind, struct err *err);
void read_end(struct read *read); /* any thread; NULL is ignored */

/* The n checkpoints of the run are held until the read ends, or holds others. Any thread; but it begins to
   hold where it is known that none of them is being deleted: on the event loop. */
void read_hold(struct read *read, const char *run, const uint64_t *steps, int n);
/* Whether a read holds that checkpoint, or any of the run. Any thread. */
bool reads_hold(struct reads *reads, const char *run, uint64_t step);
bool reads_hold_any(struct reads *reads, const char *run);

#endif
