/* Where the weights of an export come from, bit by bit. */
#include "client/cluster/weights_sources.h"

#include <stdlib.h>
#include <string.h>

#include "client/cluster/stop.h"
#include "client/files/trained_tensor.h"
#include "common/base/message.h"

/* Bytes that come in parts of any size. */
struct incoming {
  /* The next part; *size 0: that was all. */
  int (*next)(struct incoming *incoming, struct err *err);
  void (*release)(struct incoming *incoming);
  const uint8_t *data;
  size_t size, at;
  bool has_ended;
};

static int incoming_refill(struct incoming *incoming, struct err *err) {
  while (incoming->at == incoming->size && !incoming->has_ended) {
    incoming->at = incoming->size = 0;
    if (incoming->next(incoming, err))
      return err->code;
  }
  return 0;
}

static int incoming_read(void *user, float *to, uint64_t elems, struct err *err) {
  struct incoming *incoming = user;
  for (uint64_t done = 0, size = elems * sizeof *to; done < size;) {
    uint64_t left, n;
    if (incoming_refill(incoming, err))
      return err->code;
    left = incoming->size - incoming->at;
    n = left < size - done ? left : size - done;
    if (n == 0)
      return err_set(err, ERR_CORRUPT, "fewer weights came than the model has");
    memcpy((char *)to + done, incoming->data + incoming->at, n);
    incoming->at += n;
    done += n;
  }
  return 0;
}

static int incoming_end(void *user, struct err *err) {
  struct incoming *incoming = user;
  if (incoming_refill(incoming, err))
    return err->code;
  if (incoming->at < incoming->size)
    return err_set(err, ERR_CORRUPT, "more weights came than the model has");
  return 0;
}

static void incoming_close(void *user) {
  struct incoming *incoming = user;
  incoming->release(incoming);
  free(incoming);
}

static struct weights_source source_of(struct incoming *incoming) {
  return (struct weights_source){incoming_read, incoming_end, incoming_close, incoming};
}

struct from_coordinator {
  struct incoming incoming;
  struct connection *connection;
  struct rpc_reader *reader;
  struct err send_err;
  Weir__Chunk *chunk;
};

static int coordinator_next(struct incoming *incoming, struct err *err) {
  struct from_coordinator *from = (struct from_coordinator *)incoming;
  message_free(from->chunk);
  from->chunk = NULL;
  if (rpc_reader_next(from->reader, (void **)&from->chunk, err)) {
    if (stop_cause() != STOP_NONE)
      return err_set(err, ERR_CANCELLED, "interrupted");
    connection_explain(from->connection, err);
    return err->code;
  }
  incoming->has_ended = !from->chunk;
  if (from->chunk) {
    incoming->data = from->chunk->data.data;
    incoming->size = from->chunk->data.len;
  }
  return 0;
}

static void coordinator_release(struct incoming *incoming) {
  struct from_coordinator *from = (struct from_coordinator *)incoming;
  stop_cancels(NULL);
  rpc_reader_close(from->reader);
  message_free(from->chunk);
}

void weights_from_coordinator(struct connection *connection, const Weir__WeightsRequest *request,
                              struct weights_source *out) {
  struct from_coordinator *from = mem_new(sizeof *from);
  connection_find_leader(connection);
  *from = (struct from_coordinator){.incoming = {.next = coordinator_next, .release = coordinator_release},
                                    .connection = connection,
                                    .reader = rpc_reader_open(connection->channel, RPC_GET_WEIGHTS, -1)};
  stop_cancels(from->reader);
  if (rpc_reader_send(from->reader, request, &from->send_err) == 0) /* the call's end says why not */
    rpc_reader_half_close(from->reader);
  *out = source_of(&from->incoming);
}

struct from_store {
  struct incoming incoming;
  Weir__Manifest *manifest;
  struct weights_stream *stream;
};

static int store_next(struct incoming *incoming, struct err *err) {
  struct from_store *from = (struct from_store *)incoming;
  const float *data = NULL;
  size_t elems;
  if (weights_stream_next(from->stream, &data, &elems, err))
    return err->code;
  incoming->data = (const uint8_t *)data;
  incoming->size = elems * sizeof *data;
  incoming->has_ended = elems == 0;
  return 0;
}

static void store_release(struct incoming *incoming) {
  struct from_store *from = (struct from_store *)incoming;
  weights_stream_close(from->stream);
  message_free(from->manifest);
}

int weights_from_store(struct store *store, Weir__Manifest *manifest, bool is_average,
                       struct weights_source *out, struct err *err) {
  struct from_store *from = mem_new(sizeof *from);
  *from =
      (struct from_store){.incoming = {.next = store_next, .release = store_release}, .manifest = manifest};
  if (weights_stream_open(store, manifest, is_average, &from->stream, err))
    incoming_close(from);
  else
    *out = source_of(&from->incoming);
  return err->code;
}

struct from_file {
  struct incoming incoming;
  struct model *model;
  struct piece_source pieces;
  uint32_t block; /* the next */
  float *room;    /* [BLOCK_ELEMS_MAX] */
};

/* A block is at most a piece. The metrics before the statistics are no weights. */
static int file_next(struct incoming *incoming, struct err *err) {
  struct from_file *from = (struct from_file *)incoming;
  const struct model *model = from->model;
  const struct block *block = &model->blocks[from->block];
  struct block_piece piece;
  if (from->block == model->n_blocks) {
    incoming->has_ended = true;
    return 0;
  }
  piece = model_block_piece(model, from->block);
  model_initial_block(model, from->block, from->room);
  if (piece.pieces) {
    struct piece_read read = pieces_read(piece.pieces, piece.piece, from->room);
    if (!from->pieces.read)
      return err_set(err, ERR_NOT_FOUND, "initializer '%s' is in pieces, which are not here",
                     piece.param->name);
    if (from->pieces.read(from->pieces.user, &read, 1, err))
      return err_prefix(err, "initializer '%s'", piece.param->name);
    piece_decode(piece.pieces->type, from->room, block->elems, from->room);
  }
  incoming->data = (const uint8_t *)from->room;
  incoming->size = block->elems * sizeof(float);
  incoming->at = from->block == model->n_param_blocks ? METRICS * sizeof(float) : 0;
  from->block++;
  return 0;
}

static void file_release(struct incoming *incoming) {
  struct from_file *from = (struct from_file *)incoming;
  model_close(from->model);
  free(from->room);
}

int weights_from_file(const struct submitted_model *model, struct weights_source *out, uint64_t *elems,
                      struct err *err) {
  struct from_file *from = mem_new(sizeof *from);
  *from =
      (struct from_file){.incoming = {.next = file_next, .release = file_release}, .pieces = model->pieces};
  if (submitted_model_open(model, &from->model, err)) {
    incoming_close(from);
    return err->code;
  }
  if (elems)
    *elems = from->model->param_elems + from->model->row_elems - METRICS;
  from->room = mem_new(BLOCK_ELEMS_MAX * sizeof *from->room);
  *out = source_of(&from->incoming);
  return 0;
}

static int take_pieces(struct rpc_reader *reader, const struct piece_read *reads, int n, struct err *err) {
  for (int i = 0; i < n && !err->code; i++) {
    Weir__Chunk *chunk = NULL;
    char sha256[SHA256_HEX_SIZE] = "";
    if (rpc_reader_next(reader, (void **)&chunk, err))
      return err->code;
    if (chunk && chunk->data.len == reads[i].size_bytes)
      sha256_hex(chunk->data.data, chunk->data.len, sha256);
    if (strcmp(sha256, reads[i].key) == 0)
      memcpy(reads[i].to, chunk->data.data, chunk->data.len);
    else
      err_set(err, ERR_CORRUPT, "piece %s came as something else", reads[i].key);
    message_free(chunk);
  }
  return err->code;
}

int piece_download_read(void *user, const struct piece_read *reads, int n, struct err *err) {
  enum { KEYS_MAX = 16 };
  const struct piece_download *download = user;
  for (int at = 0; at < n && !err->code; at += KEYS_MAX) {
    Weir__PiecesRequest request = WEIR__PIECES_REQUEST__INIT;
    struct rpc_reader *reader = rpc_reader_open(download->connection->channel, RPC_GET_PIECES, -1);
    struct err send_err = ERR_NONE;
    char *keys[KEYS_MAX];
    int count = n - at < KEYS_MAX ? n - at : KEYS_MAX;
    for (int i = 0; i < count; i++)
      keys[i] = (char *)reads[at + i].key;
    request.run = (char *)download->run;
    request.keys = keys;
    request.n_keys = (size_t)count;
    if (rpc_reader_send(reader, &request, &send_err) == 0)
      rpc_reader_half_close(reader);
    take_pieces(reader, reads + at, count, err);
    rpc_reader_close(reader);
  }
  connection_explain(download->connection, err);
  return err->code;
}

int piece_stored_read(void *user, const struct piece_read *reads, int n, struct err *err) {
  for (int i = 0; i < n; i++) {
    struct store_read read = {.key = reads[i].key};
    if (store_get_blocks(user, &read, 1, err))
      return err->code;
    if (read.size == reads[i].size_bytes)
      memcpy(reads[i].to, read.data, read.size);
    else
      err_set(err, ERR_CORRUPT, "piece %s has %zu bytes, not %zu", reads[i].key, read.size,
              reads[i].size_bytes);
    free(read.data);
    if (err->code)
      return err->code;
  }
  return 0;
}
