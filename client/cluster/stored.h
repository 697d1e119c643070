/* Runs as a store holds them, for commands that are given --store in place of a coordinator. */
#ifndef WEIR_CLIENT_CLUSTER_STORED_H
#define WEIR_CLIENT_CLUSTER_STORED_H

#include "client/option.h"
#include "storage/checkpoint/checkpoint.h"

/* A row for a command's option table. */
#define STORED_OPTION                                                                                        \
  {                                                                                                          \
    .name = "store", .kind = OPTION_TEXT, .value = "URL",                                                    \
    .help = "read this store itself; no coordinator is asked, and none need run. The URL is the one that "   \
            "the coordinator was given; a password in it is refused: set WEIR_STORE_PASSWORD_FILE or "       \
            "WEIR_STORE_PASSWORD instead. WEIR_STORE alone does not turn a command away from the "           \
            "coordinator."                                                                                   \
  }

/* The row of commands that take a run's weights. */
#define WEIGHTS_STEP_OPTION                                                                                  \
  {                                                                                                          \
    .name = "step", .kind = OPTION_COUNT, .value = "N", .most = OPTION_COUNT_MAX,                            \
    .help = "the weights of the checkpoint at this step; 0: those that the run began with. Default: the "    \
            "newest."                                                                                        \
  }

/* A command line can be read by everyone on the machine. Errors: INVALID for a URL that holds a password;
   those of store_url_check. */
int stored_url_check(const char *url, struct err *err);

/* The store that --store names; *out = NULL when it is not given. Errors: as above, and the store's. */
int stored_open(const struct args *args, struct store **out, struct err *err);

/* What --step says: NULL when it is not given, else step. */
const uint64_t *stored_step(const struct args *args, uint64_t *step);

/* Which weights --step and --average say; the run is left to the caller. */
void stored_wanted(const struct args *args, Weir__WeightsRequest *wanted);

struct stored_run {
  struct store *store;
  Weir__RunRecord *record;
  uint64_t *steps; /* of its checkpoints, ascending */
  int n_steps;
};

/* run: an id or a unique prefix. Errors: those of checkpoint_find_run. fini is due all the same. */
int stored_run_open(struct store *store, const char *run, struct stored_run *out, struct err *err);
void stored_run_fini(struct stored_run *run); /* safe on a zeroed one */

/* Every run of the store, in no order. Errors: the store's; CORRUPT for an unreadable record, and *runs has
   the others then. Freed with stored_runs_close. */
int stored_runs_open(struct store *store, struct stored_run **runs, int *n, struct err *err);
void stored_runs_close(struct stored_run *runs, int n);

/* What a coordinator would say of a run that nobody computes. info is initialised; its texts belong to run.
 */
void stored_run_info(const struct stored_run *run, Weir__RunInfo *info);

/* A checkpoint's manifest, freed with message_free. step: NULL for the newest. Errors: NOT_FOUND, saying
   which there are; CORRUPT. */
int stored_manifest(const struct stored_run *run, const uint64_t *step, Weir__Manifest **out,
                    struct err *err);

/* The ONNX file of a run, and weights as GetWeights sends them; at step 0, which needs no checkpoint, the
   model's own. Both are the caller's; fini is due all the same.
   Errors: as above; CORRUPT or NOT_FOUND for blocks. */
int stored_weights(const struct stored_run *run, const Weir__WeightsRequest *request, struct buffer **onnx,
                   struct buffer **flat, struct err *err);

#endif
