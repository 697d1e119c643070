/* Where the weights of an export come from, bit by bit. Each is ended by its close. */
#ifndef WEIR_CLIENT_CLUSTER_WEIGHTS_SOURCES_H
#define WEIR_CLIENT_CLUSTER_WEIGHTS_SOURCES_H

#include "client/cluster/connect.h"
#include "client/files/export.h"
#include "storage/checkpoint/checkpoint.h"
#include "training.pb-c.h"

/* A checkpoint, from its coordinator. The connection outlives it. */
void weights_from_coordinator(struct connection *connection, const Weir__WeightsRequest *request,
                              struct weights_source *out);
/* A checkpoint, from its store, which outlives it. Takes the manifest. Errors: those of weights_stream_open;
   the manifest is freed all the same. */
int weights_from_store(struct store *store, Weir__Manifest *manifest, bool is_average,
                       struct weights_source *out, struct err *err);
/* Version 0, which needs no checkpoint: the weights of the file. model's bytes and pieces outlive it. *elems
   (may be NULL): how many there are. Errors: those of model_open. */
int weights_from_file(const struct submitted_model *model, struct weights_source *out, uint64_t *elems,
                      struct err *err);

/* Pieces that the file of a run's model names, from its coordinator. A struct piece_source's read; user is
 * this. */
struct piece_download {
  struct connection *connection;
  const char *run;
};
int piece_download_read(void *user, const struct piece_read *reads, int n, struct err *err);
/* The same from a store; user is the store. */
int piece_stored_read(void *user, const struct piece_read *reads, int n, struct err *err);

#endif
