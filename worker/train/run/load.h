/* A loaded run: the model, the datasets and the plan that a worker has in memory before it computes. */
#ifndef WEIR_WORKER_TRAIN_RUN_LOAD_H
#define WEIR_WORKER_TRAIN_RUN_LOAD_H

#include "common/agree/plan.h"
#include "common/base/sha256.h"
#include "common/rpc/model_fetch.h"
#include "model/model.h"
#include "worker/backend/backend.h"
#include "worker/data/data_root.h"
#include "worker/data/loader.h"
#include "worker/train/run/promises.h"

/* What a run has read of its data: the spec that it was read by, and the datasets, as in struct loaded. */
struct kept_data {
  Weir__RunSpec *spec;
  struct dataset *train, *eval;
};

struct load_options {
  struct rpc_channel *coordinator;
  struct data_root data_root;
  const struct backend_def *backend;
  int executors;
  int readers;        /* threads that read ahead, at least */
  const int *devices; /* [executors] GPUs with memory of their own, each for one of them; NULL: none */
  const uint64_t *device_bytes; /* [executors] */
  int stage_begin, stage_end;   /* the stages of the model that are computed here; equal: all of them */
  struct model_fetch *fetch;    /* lets another thread end the download of the model */
  struct kept_data *kept;       /* of a load of the same run; taken, freed; NULL: the data is to be read */
  int trace_number;             /* of trace_run_begin */
  struct promises *promises;    /* of this machine's memory; NULL: there is no other run */
};

struct loaded {
  Weir__RunSpec *spec; /* checked, with its defaults */
  struct plan plan;
  struct model *model;
  struct dataset *train;
  struct dataset *eval; /* NULL without an eval set; train, where one is split */
  struct loader *loader;
  char dataset_sha256[SHA256_HEX_SIZE]; /* of both sets */
  struct promises *promises;
  struct promise promise; /* what this run was promised; loaded_close gives it back */
};

/* Blocks: downloads the model and reads the datasets. *is_bad_input: the spec, the model or the data is at
   fault, not this machine. Errors: those of the network, CORRUPT for a model whose hash does not match, those
   of spec_check, model_open, dataset_open and loader_new; CANCELLED. After an error *out is empty. */
int loaded_open(const struct load_options *options, const Weir__LoadRun *load, struct loaded *out,
                bool *is_bad_input, struct err *err);

/* Appends the microbatch that would fit on the executor's GPU to an error that says that this one does not.
 */
int loaded_advise_memory(const struct load_options *options, const struct loaded *loaded, int executor,
                         struct err *err);

void loaded_close(struct loaded *loaded); /* safe on an empty one */

/* As loaded_close, but for the data, which is for loading the same run again; NULL if there is none, or it
   can be read no more. */
struct kept_data *loaded_close_but_data(struct loaded *loaded);

#endif
