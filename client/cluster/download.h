/* A run's model and weights, fetched from its coordinator. */
#ifndef WEIR_CLIENT_CLUSTER_DOWNLOAD_H
#define WEIR_CLIENT_CLUSTER_DOWNLOAD_H

#include <stddef.h>
#include <stdint.h>

#include "client/cluster/connect.h"
#include "client/files/export.h"
#include "model/export_tensors.h"
#include "training.pb-c.h"

/* The ONNX file as submitted. *bytes is freed by the caller. */
int download_model(struct connection *connection, const char *run, void **bytes, size_t *size,
                   struct err *err);

/* The state lies behind the parameters, in the same memory. n_params: RunInfo.parameters. Errors: CORRUPT
   when fewer bytes or half a float came. Released with download_fini. */
int download_weights(struct connection *connection, const Weir__WeightsRequest *request, uint64_t n_params,
                     struct trained_weights *weights, struct err *err);
/* The same of version 0, which needs no checkpoint: model->weights, from its file and spec. */
int download_initial_weights(struct trained_model *model, uint64_t n_params, struct err *err);
void download_fini(struct trained_weights *weights); /* safe on zeroed ones */

/* A file to make of a run's model and weights: export_onnx or export_safetensors, and what it is given. */
struct download_export {
  int (*write)(const struct export_source *source, const char *path, struct err *err);
  const char *path;
  uint64_t bytes_max; /* of struct export_source */
};

/* wanted->run: an id or a unique prefix. Errors: the coordinator's, the file's. */
int download_export(struct connection *connection, const Weir__WeightsRequest *wanted,
                    const struct download_export *export, struct err *err);

#endif
