/* Quotas: what each tenant may have at a time. They are the coordinator's options, and nothing of them is in
   the store. */
#ifndef WEIR_SERVER_COORDINATOR_QUOTAS_QUOTA_H
#define WEIR_SERVER_COORDINATOR_QUOTAS_QUOTA_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/memory.h"
#include "common/certs/names.h"

struct coordinator;
struct run;

/* In the order of kinds[] in quota.c. */
enum quota_kind {
  QUOTA_RUNS,      /* that are live */
  QUOTA_EXECUTORS, /* that compute for them: what is above waits in the queue */
  QUOTA_MEMORY,    /* bytes of servers that they take */
  QUOTA_STORE,     /* bytes of models and checkpoints, of all runs */
  QUOTA_UPLOADS,   /* submissions that are coming */
  QUOTA_DOWNLOADS, /* of models and weights, by clients */
  QUOTA_VERIFICATIONS,
  QUOTA_KINDS
};
#define QUOTA_NONE UINT64_MAX

struct quota {
  char tenant[CERT_WORD_SIZE]; /* "*": each that has no row of its own */
  uint64_t limits[QUOTA_KINDS];
  char *data_root; /* as it was given; NULL: none */
};

/* Zeroed before first use. */
struct quotas {
  struct quota *rows;
  int n, capacity;
};

/* Takes one of --quota: "vision:runs=4,executors=8,memory=8GB,store=100GB,uploads=2,data_root=vision", or of
   "*". Errors: INVALID. */
int quotas_add(struct quotas *quotas, const char *text, struct err *err);
void quotas_fini(struct quotas *quotas);
void quotas_move(struct quotas *to, struct quotas *from); /* from, which may be NULL, has none then */

/* quotas NULL: there are none. */
uint64_t quota_limit(const struct quotas *quotas, const char *tenant, enum quota_kind kind);
/* The folder below the workers' data roots to which the tenant's runs are confined, with its name for each
   '*' that it was given with. In the arena; NULL: they are not. */
char *quota_data_root(const struct quotas *quotas, const char *tenant, struct arena *arena);
/* Says of the run whether it is confined, by the quotas that there are now. */
void quota_confine(const struct coordinator *coordinator, struct run *run);

/* Whether the tenant, which uses so much, may have more. Errors: QUOTA with both, and what to do. */
struct quota_use {
  uint64_t used, more;
};
int quota_check(const struct quotas *quotas, const char *tenant, enum quota_kind kind,
                const struct quota_use *use, struct err *err);

/* What the tenant's runs use of that kind, which is one of the first four. A trial that is held is not live.
 */
uint64_t quota_used(const struct coordinator *coordinator, const char *tenant, enum quota_kind kind);

/* Whether the tenant may have one more run that is live, and takes that. Errors: QUOTA. */
struct quota_demand {
  uint64_t memory_bytes;
  const char *model; /* its key in the store; NULL: of a run that is there */
  uint64_t model_bytes, checkpoint_bytes;
};
int quota_admit(const struct coordinator *coordinator, const char *tenant, const struct quota_demand *demand,
                struct err *err);
/* The same of the run, which is over and is to go on. */
int quota_admit_again(const struct coordinator *coordinator, const char *run, struct err *err);
/* Whether the run's tenant may have another checkpoint, beside those that it must have. Errors: QUOTA. */
int quota_admit_checkpoint(const struct coordinator *coordinator, const struct run *run, struct err *err);

#endif
