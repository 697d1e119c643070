/* The download of a run's model. */
#include "common/base/clock.h"
#include "common/rpc/model_fetch.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/base/log.h"
#include "common/base/message.h"
#include "common/base/sha256.h"

/* A coordinator that has begun anew reads the file before it can give pieces of it. */
enum { ATTEMPTS = 6, PIECES_ATTEMPTS = 12, PIECES_MAX = 16 };

/* One download, tried several times. */
struct attempt {
  struct model_fetch *fetch;
  struct rpc_channel *coordinator;
  const char *run, *ticket;
  enum rpc_method_id method;
  const void *request;
  int attempts;
  /* Reads the replies. */
  int (*take)(struct rpc_reader *reader, void *user, struct err *err);
  void *user;
};

static int attempt_often(const struct attempt *attempt, struct err *err);
static int attempt_once(const struct attempt *attempt, struct err *err);
static int take_model(struct rpc_reader *reader, void *user, struct err *err);
static int take_pieces(struct rpc_reader *reader, void *user, struct err *err);
static bool fetch_pause(struct model_fetch *fetch, int pause_ms);

void model_fetch_init(struct model_fetch *fetch) {
  *fetch = (struct model_fetch){0};
  pthread_mutex_init(&fetch->lock, NULL);
  clock_condition_init(&fetch->changed);
}

void model_fetch_fini(struct model_fetch *fetch) {
  pthread_cond_destroy(&fetch->changed);
  pthread_mutex_destroy(&fetch->lock);
}

/* What take_model reads into. */
struct model_taken {
  const char *sha256;
  struct fetched_model model;
};

int model_fetch_run(struct model_fetch *fetch, struct rpc_channel *coordinator, const Weir__LoadRun *load,
                    struct fetched_model *out, struct err *err) {
  bool is_outline = *load->outline_sha256 != 0;
  uint64_t size_bytes = is_outline ? load->outline_bytes : load->model_bytes;
  struct model_taken taken = {.sha256 = is_outline ? load->outline_sha256 : load->model_sha256,
                              .model.size_bytes = (size_t)size_bytes};
  Weir__RunRequest request = WEIR__RUN_REQUEST__INIT;
  struct attempt attempt = {.fetch = fetch,
                            .coordinator = coordinator,
                            .run = load->run,
                            .ticket = load->ticket,
                            .method = RPC_FETCH_MODEL,
                            .request = &request,
                            .attempts = ATTEMPTS,
                            .take = take_model,
                            .user = &taken};
  *out = (struct fetched_model){0};
  request.run = load->run;
  taken.model.bytes = size_bytes < SIZE_MAX ? malloc(size_bytes + 1) : NULL;
  if (!taken.model.bytes)
    return err_set(err, ERR_NO_MEMORY, "no memory for a model of %llu bytes", (unsigned long long)size_bytes);
  if (attempt_often(&attempt, err))
    free(taken.model.bytes);
  else
    *out = taken.model;
  return err->code;
}

/* What take_pieces reads into. */
struct pieces_taken {
  const struct piece_read *reads;
  int n;
};

int piece_fetch_read(void *user, const struct piece_read *reads, int n, struct err *err) {
  const struct piece_fetch *pieces = user;
  for (int at = 0; at < n; at += PIECES_MAX) {
    struct pieces_taken taken = {reads + at, n - at < PIECES_MAX ? n - at : PIECES_MAX};
    char *keys[PIECES_MAX];
    Weir__PiecesRequest request = WEIR__PIECES_REQUEST__INIT;
    struct attempt attempt = {.fetch = pieces->fetch,
                              .coordinator = pieces->coordinator,
                              .run = pieces->run,
                              .ticket = pieces->ticket,
                              .method = RPC_FETCH_PIECES,
                              .request = &request,
                              .attempts = PIECES_ATTEMPTS,
                              .take = take_pieces,
                              .user = &taken};
    for (int i = 0; i < taken.n; i++)
      keys[i] = (char *)reads[at + i].key;
    request.run = (char *)pieces->run;
    request.keys = keys;
    request.n_keys = (size_t)taken.n;
    if (attempt_often(&attempt, err))
      return err->code;
  }
  return 0;
}

static int attempt_often(const struct attempt *attempt, struct err *err) {
  for (int count = 1; attempt_once(attempt, err); count++) {
    if (!err_is_retryable(err->code) || count == attempt->attempts)
      return err->code;
    log_event(LOG_WARN, "member", "model_fetch_retried", "run=%s error=\"%s\"", attempt->run, err->text);
    if (!fetch_pause(attempt->fetch, rpc_backoff_ms(count - 1)))
      return err->code;
  }
  return 0;
}

void model_fetch_cancel(struct model_fetch *fetch, bool is_cancelled) {
  pthread_mutex_lock(&fetch->lock);
  fetch->is_cancelled = is_cancelled;
  if (is_cancelled && fetch->reader)
    rpc_reader_cancel(fetch->reader);
  pthread_cond_broadcast(&fetch->changed);
  pthread_mutex_unlock(&fetch->lock);
}

/* Makes the reader the one to end. False if it is too late: then it is not to be used. */
static bool fetch_set_reader(struct model_fetch *fetch, struct rpc_reader *reader) {
  bool is_cancelled;
  pthread_mutex_lock(&fetch->lock);
  fetch->reader = reader;
  is_cancelled = fetch->is_cancelled;
  pthread_mutex_unlock(&fetch->lock);
  return !is_cancelled;
}

/* The chunks of one stream, one behind the other. */
static int take_model(struct rpc_reader *reader, void *user, struct err *err) {
  const struct model_taken *taken = user;
  size_t at = 0, size_bytes = taken->model.size_bytes;
  char sha256[SHA256_HEX_SIZE];
  void *reply = NULL;
  while (!rpc_reader_next(reader, &reply, err) && reply) {
    const Weir__Chunk *chunk = reply;
    bool fits = chunk->data.len <= size_bytes - at;
    if (fits && chunk->data.len > 0)
      memcpy(taken->model.bytes + at, chunk->data.data, chunk->data.len);
    at += fits ? chunk->data.len : 0;
    message_free(reply);
    if (!fits)
      return err_set(err, ERR_CORRUPT, "the model's download is longer than the %zu bytes announced",
                     size_bytes);
  }
  if (!err->code && at < size_bytes)
    err_set(err, ERR_UNAVAILABLE, "the model's download ended after %zu of %zu bytes", at, size_bytes);
  if (err->code)
    return err->code;
  sha256_hex(taken->model.bytes, size_bytes, sha256);
  if (strcmp(sha256, taken->sha256) != 0)
    return err_set(err, ERR_CORRUPT, "the model came with sha256 %s, expected %s", sha256, taken->sha256);
  return 0;
}

static int take_piece(const struct piece_read *read, const ProtobufCBinaryData *data, struct err *err) {
  char sha256[SHA256_HEX_SIZE];
  if (data->len != read->size_bytes)
    return err_set(err, ERR_CORRUPT, "piece %s came with %zu bytes, expected %zu", read->key, data->len,
                   read->size_bytes);
  sha256_hex(data->data, data->len, sha256);
  if (strcmp(sha256, read->key) != 0)
    return err_set(err, ERR_CORRUPT, "piece %s came with sha256 %s", read->key, sha256);
  memcpy(read->to, data->data, data->len);
  return 0;
}

/* A chunk is a piece. */
static int take_pieces(struct rpc_reader *reader, void *user, struct err *err) {
  const struct pieces_taken *taken = user;
  int at = 0;
  void *reply = NULL;
  while (!rpc_reader_next(reader, &reply, err) && reply) {
    if (at == taken->n)
      err_set(err, ERR_CORRUPT, "more pieces came than the %d asked for", taken->n);
    else
      take_piece(&taken->reads[at++], &((const Weir__Chunk *)reply)->data, err);
    message_free(reply);
    if (err->code)
      return err->code;
  }
  if (!err->code && at < taken->n)
    err_set(err, ERR_UNAVAILABLE, "the download of %d pieces ended after %d", taken->n, at);
  return err->code;
}

static int attempt_once(const struct attempt *attempt, struct err *err) {
  struct rpc_reader *reader =
      rpc_reader_open_with(attempt->coordinator, attempt->method, -1, attempt->ticket);
  *err = ERR_NONE;
  if (!fetch_set_reader(attempt->fetch, reader))
    err_set(err, ERR_CANCELLED, "the run was taken back while its model was fetched");
  else if (!rpc_reader_send(reader, attempt->request, err)) {
    rpc_reader_half_close(reader);
    attempt->take(reader, attempt->user, err);
  }
  fetch_set_reader(attempt->fetch, NULL);
  rpc_reader_close(reader);
  return err->code;
}

/* False: cancelled. */
static bool fetch_pause(struct model_fetch *fetch, int pause_ms) {
  struct timespec until = clock_after_ms(pause_ms);
  bool is_cancelled;
  pthread_mutex_lock(&fetch->lock);
  while (!fetch->is_cancelled && pthread_cond_timedwait(&fetch->changed, &fetch->lock, &until) == 0)
    continue;
  is_cancelled = fetch->is_cancelled;
  pthread_mutex_unlock(&fetch->lock);
  return !is_cancelled;
}
