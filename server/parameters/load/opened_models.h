/* The models with which runs were loaded lately, opened: the next run of the same program needs neither the
   download nor the reading of the file. */
#ifndef WEIR_SERVER_PARAMETERS_LOAD_OPENED_MODELS_H
#define WEIR_SERVER_PARAMETERS_LOAD_OPENED_MODELS_H

#include "cluster.pb-c.h"
#include "common/rpc/model_fetch.h"
#include "model/model.h"

/* One that was zeroed is empty. */
struct opened_models {
  struct opened_model *first; /* from the one used last */
};

/* A run's model, as it is to be opened. */
struct model_wanted {
  const Weir__LoadRun *order;
  const Weir__RunSpec *spec; /* of the order; settled */
  int64_t samples;           /* of a microbatch */
  /* Gets the file, which is freed by the callee; called where the model is not there yet. */
  int (*fetch)(void *user, struct fetched_model *file, struct err *err);
  void *user;
};

/* *out is there until the next call. Blocks. Errors: those of fetch and of model_open. */
int opened_models_get(struct opened_models *models, const struct model_wanted *wanted,
                      const struct model **out, struct err *err);

/* Closes all of them but the newest few, as many as are of files of OPENED_BYTES_MAX together. */
enum { OPENED_MODELS_MAX = 4, OPENED_BYTES_MAX = 16 << 20 };
void opened_models_trim(struct opened_models *models);
void opened_models_fini(struct opened_models *models);

#endif
