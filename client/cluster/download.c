/* A run's model and weights, fetched from its coordinator. */
#include "client/cluster/download.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/cluster/initial_weights.h"
#include "client/cluster/stop.h"
#include "client/cluster/weights_sources.h"
#include "common/base/message.h"

/* Bytes that grow as chunks come: the stream does not say its length in advance. */
struct bytes {
  void *data;
  size_t size, capacity;
};

static int stream_read(struct connection *connection, enum rpc_method_id method, const void *request,
                       struct bytes *bytes, struct err *err);
static int bytes_add(struct bytes *bytes, const ProtobufCBinaryData *chunk, struct err *err);
static int weights_part(void *bytes, size_t size, uint64_t n_params, struct trained_weights *weights,
                        struct err *err);

int download_model(struct connection *connection, const char *run, void **data, size_t *size,
                   struct err *err) {
  Weir__RunRequest request = WEIR__RUN_REQUEST__INIT;
  struct bytes bytes = {0};
  request.run = (char *)run;
  if (stream_read(connection, RPC_GET_MODEL, &request, &bytes, err)) {
    free(bytes.data);
    return err->code;
  }
  *data = bytes.data;
  *size = bytes.size;
  return ERR_OK;
}

int download_weights(struct connection *connection, const Weir__WeightsRequest *request, uint64_t n_params,
                     struct trained_weights *weights, struct err *err) {
  struct bytes bytes = {0};
  *weights = (struct trained_weights){0};
  if (stream_read(connection, RPC_GET_WEIGHTS, request, &bytes, err))
    goto out;
  if (weights_part(bytes.data, bytes.size, n_params, weights, err))
    err_prefix(err, "run '%s'", request->run);
out:
  if (err->code)
    free(bytes.data);
  return err->code;
}

int download_initial_weights(struct trained_model *model, uint64_t n_params, struct err *err) {
  struct buffer *flat = NULL;
  void *bytes = NULL;
  model->weights = (struct trained_weights){0};
  if (initial_weights(&(struct submitted_model){model->onnx, model->onnx_size, model->spec, model->pieces},
                      &flat, err) == 0) {
    bytes = malloc(flat->size_bytes);
    if (bytes)
      memcpy(bytes, flat->data, flat->size_bytes);
    if (!bytes)
      err_set(err, ERR_NO_MEMORY, "no memory for the weights");
    else if (weights_part(bytes, flat->size_bytes, n_params, &model->weights, err))
      free(bytes);
  }
  buffer_put(flat);
  return err->code;
}

/* Takes the bytes, unless there is an error. */
static int weights_part(void *bytes, size_t size, uint64_t n_params, struct trained_weights *weights,
                        struct err *err) {
  uint64_t floats = size / sizeof(float);
  if (size % sizeof(float) != 0 || floats < n_params)
    return err_set(err, ERR_CORRUPT, "the weights came as %zu bytes, but there are %" PRIu64 " parameters",
                   size, n_params);
  weights->params = bytes;
  weights->n_params = n_params;
  weights->state = weights->params + n_params;
  weights->n_state = floats - n_params;
  return ERR_OK;
}

void download_fini(struct trained_weights *weights) {
  free(weights->params);
  *weights = (struct trained_weights){0};
}

static int stream_read(struct connection *connection, enum rpc_method_id method, const void *request,
                       struct bytes *bytes, struct err *err) {
  struct rpc_reader *reader;
  struct err send_err = ERR_NONE;
  Weir__Chunk *chunk = NULL;
  connection_find_leader(connection);
  reader = rpc_reader_open(connection->channel, method, -1);
  stop_cancels(reader);
  if (rpc_reader_send(reader, request, &send_err) == 0)
    rpc_reader_half_close(reader);
  while (rpc_reader_next(reader, (void **)&chunk, err) == 0 && chunk) {
    bytes_add(bytes, &chunk->data, err);
    weir__chunk__free_unpacked(chunk, NULL);
    chunk = NULL;
    if (err->code)
      break;
  }
  stop_cancels(NULL);
  rpc_reader_close(reader);
  if (err->code && stop_cause() != STOP_NONE)
    return err_set(err, ERR_CANCELLED, "interrupted");
  connection_explain(connection, err);
  return err->code;
}

static int bytes_add(struct bytes *bytes, const ProtobufCBinaryData *chunk, struct err *err) {
  if (bytes->size + chunk->len > bytes->capacity) {
    size_t capacity = (bytes->size + chunk->len) * 2;
    void *data = realloc(bytes->data, capacity);
    if (!data)
      return err_set(err, ERR_NO_MEMORY, "no memory for a download of more than %zu bytes", bytes->size);
    bytes->data = data;
    bytes->capacity = capacity;
  }
  if (chunk->len > 0)
    memcpy((uint8_t *)bytes->data + bytes->size, chunk->data, chunk->len);
  bytes->size += chunk->len;
  return ERR_OK;
}

int download_export(struct connection *connection, const Weir__WeightsRequest *wanted,
                    const struct download_export *export, struct err *err) {
  Weir__RunRequest request = WEIR__RUN_REQUEST__INIT;
  Weir__WeightsRequest from = *wanted;
  struct export_source source = {.bytes_max = export->bytes_max};
  struct piece_download pieces = {connection, NULL};
  Weir__RunInfo *info = NULL;
  void *onnx = NULL;
  request.run = wanted->run;
  if (connection_call(connection, RPC_GET_RUN, &request, (void **)&info, err))
    goto out;
  if (!info->spec) {
    err_set(err, ERR_INTERNAL, "the coordinator did not send the spec of run %s", info->run);
    goto out;
  }
  pieces.run = from.run = info->run;
  if ((from.average && checkpoint_check_average(info->run, info->spec, err)) ||
      download_model(connection, info->run, &onnx, &source.model.onnx_size, err))
    goto out;
  if (from.step == 0) /* what a fork began with is its first checkpoint */
    from.step = info->parent_step;
  source.model.onnx = onnx;
  source.model.spec = info->spec;
  source.model.pieces = (struct piece_source){piece_download_read, &pieces};
  if (!from.has_step || from.step > 0)
    weights_from_coordinator(connection, &from, &source.weights);
  else if (weights_from_file(&source.model, &source.weights, NULL, err))
    goto out;
  export->write(&source, export->path, err);
  source.weights.close(source.weights.user);
out:
  free(onnx);
  message_free(info);
  return err->code;
}
