/* A run's model and weights, fetched from its coordinator. */
#ifndef WEIR_CLIENT_CLUSTER_DOWNLOAD_H
#define WEIR_CLIENT_CLUSTER_DOWNLOAD_H

#include <stddef.h>
#include <stdint.h>

#include "client/cluster/connect.h"
#include "training.pb-c.h"

/* The ONNX file as submitted. *bytes is freed by the caller. */
int download_model(struct connection *connection, const char *run, void **bytes, size_t *size,
                   struct err *err);

struct weights {
  float *params; /* f32[n_params]: the flat parameter vector */
  uint64_t n_params;
  float *state; /* f32[n_state]: the flat vector of running statistics, behind params in the same memory */
  uint64_t n_state;
};

/* n_params: RunInfo.parameters. Errors: CORRUPT when fewer bytes or half a float came. Released with
   weights_fini. */
int download_weights(struct connection *connection, const Weir__WeightsRequest *request, uint64_t n_params,
                     struct weights *weights, struct err *err);
/* The same of version 0, which needs no checkpoint: from the run's model and spec. */
int download_initial_weights(const void *onnx, size_t onnx_size, const Weir__RunSpec *spec, uint64_t n_params,
                             struct weights *weights, struct err *err);
void weights_fini(struct weights *weights); /* safe on a zeroed one */

#endif
