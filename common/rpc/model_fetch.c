/* The download of a run's model. */
#include "common/base/clock.h"
#include "common/rpc/model_fetch.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/base/log.h"
#include "common/base/message.h"
#include "common/base/sha256.h"

enum { ATTEMPTS = 6 };

static int fetch_once(struct model_fetch *fetch, struct rpc_channel *coordinator, const Weir__LoadRun *load,
                      unsigned char *onnx, struct err *err);
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

int model_fetch_run(struct model_fetch *fetch, struct rpc_channel *coordinator, const Weir__LoadRun *load,
                    unsigned char **out, struct err *err) {
  *out = load->model_bytes < SIZE_MAX ? malloc(load->model_bytes + 1) : NULL;
  if (!*out)
    return err_set(err, ERR_NO_MEMORY, "no memory for a model of %llu bytes",
                   (unsigned long long)load->model_bytes);
  for (int attempt = 1; fetch_once(fetch, coordinator, load, *out, err); attempt++) {
    if (err_is_retryable(err->code) && attempt < ATTEMPTS) {
      log_event(LOG_WARN, "member", "model_fetch_retried", "run=%s error=\"%s\"", load->run, err->text);
      if (fetch_pause(fetch, rpc_backoff_ms(attempt - 1)))
        continue;
    }
    free(*out);
    *out = NULL;
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

/* Appends the chunks of one stream to onnx[size_bytes]. */
static int read_chunks(struct rpc_reader *reader, unsigned char *onnx, size_t size_bytes, struct err *err) {
  size_t at = 0;
  void *reply = NULL;
  while (!rpc_reader_next(reader, &reply, err) && reply) {
    const Weir__Chunk *chunk = reply;
    bool fits = chunk->data.len <= size_bytes - at;
    if (fits && chunk->data.len > 0)
      memcpy(onnx + at, chunk->data.data, chunk->data.len);
    at += fits ? chunk->data.len : 0;
    message_free(reply);
    if (!fits)
      return err_set(err, ERR_CORRUPT, "the model's download is longer than the %zu bytes announced",
                     size_bytes);
  }
  if (!err->code && at < size_bytes)
    err_set(err, ERR_UNAVAILABLE, "the model's download ended after %zu of %zu bytes", at, size_bytes);
  return err->code;
}

static int fetch_once(struct model_fetch *fetch, struct rpc_channel *coordinator, const Weir__LoadRun *load,
                      unsigned char *onnx, struct err *err) {
  Weir__RunRequest request = WEIR__RUN_REQUEST__INIT;
  struct rpc_reader *reader = rpc_reader_open(coordinator, RPC_FETCH_MODEL, -1);
  char sha256[SHA256_HEX_SIZE];
  request.run = load->run;
  *err = ERR_NONE;
  if (!fetch_set_reader(fetch, reader))
    err_set(err, ERR_CANCELLED, "the run was taken back while its model was fetched");
  else if (!rpc_reader_send(reader, &request, err)) {
    rpc_reader_half_close(reader);
    read_chunks(reader, onnx, load->model_bytes, err);
  }
  fetch_set_reader(fetch, NULL);
  rpc_reader_close(reader);
  if (err->code)
    return err->code;
  sha256_hex(onnx, load->model_bytes, sha256);
  if (strcmp(sha256, load->model_sha256) != 0)
    return err_set(err, ERR_CORRUPT, "the model came with sha256 %s, expected %s", sha256,
                   load->model_sha256);
  return 0;
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
