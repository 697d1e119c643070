/* Loading a run. */
#include "worker/train/load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/log.h"
#include "common/message.h"
#include "common/spec.h"

enum { FETCH_ATTEMPTS = 6, BATCHES_PER_EXECUTOR = 2 };

static int model_fetch(const struct load_options *options, const Weir__LoadRun *load, unsigned char **out,
                       struct err *err);
static int loaded_open_model(const struct load_options *options, const unsigned char *onnx, size_t size_bytes,
                             struct loaded *loaded, struct err *err);
static int loaded_open_data(const struct load_options *options, struct loaded *loaded, struct err *err);

static bool is_input_error(const struct err *err) {
  return err->code == ERR_INVALID || err->code == ERR_NOT_FOUND || err->code == ERR_UNSUPPORTED ||
         err->code == ERR_CORRUPT;
}

int loaded_open(const struct load_options *options, const Weir__LoadRun *load, struct loaded *out,
                bool *is_bad_input, struct err *err) {
  unsigned char *onnx = NULL;
  *out = (struct loaded){0};
  *is_bad_input = false;
  if (!load->spec)
    return err_set(err, ERR_INVALID, "run '%s': the order to load it has no spec", load->run);
  out->spec = message_copy(load->spec);
  if (spec_check(out->spec, err) || loaded_open_data(options, out, err)) {
    *is_bad_input = is_input_error(err);
    goto out;
  }
  if (model_fetch(options, load, &onnx, err))
    goto out;
  if (loaded_open_model(options, onnx, load->model_bytes, out, err))
    *is_bad_input = is_input_error(err);
out:
  free(onnx);
  if (err->code)
    loaded_close(out);
  return err->code;
}

void loaded_close(struct loaded *loaded) {
  loader_free(loaded->loader);
  model_close(loaded->model);
  dataset_close(loaded->train);
  dataset_close(loaded->eval);
  message_free(loaded->spec);
  *loaded = (struct loaded){0};
}

static int loaded_open_data(const struct load_options *options, struct loaded *loaded, struct err *err) {
  const Weir__DataSpec *data = loaded->spec->data;
  char both[2 * SHA256_HEX_SIZE];
  int length;
  if (dataset_open(loaded->spec, data->train, options->data_root, &loaded->train, err))
    return err_prefix(err, "data.train");
  if (data->eval && dataset_open(loaded->spec, data->eval, options->data_root, &loaded->eval, err))
    return err_prefix(err, "data.eval");
  length = snprintf(both, sizeof both, "%s%s", dataset_sha256(loaded->train),
                    loaded->eval ? dataset_sha256(loaded->eval) : "");
  sha256_hex(both, (size_t)length, loaded->dataset_sha256);
  return plan_init(&loaded->plan, loaded->spec, dataset_samples(loaded->train),
                   loaded->eval ? dataset_samples(loaded->eval) : 0, err);
}

static int loaded_open_model(const struct load_options *options, const unsigned char *onnx, size_t size_bytes,
                             struct loaded *loaded, struct err *err) {
  const struct plan *plan = &loaded->plan;
  if (model_open(onnx, size_bytes, loaded->spec, plan->microbatch_samples, plan->batch, &loaded->model, err))
    return err->code;
  return loader_new(loaded->model, plan, loaded->spec, loaded->train, loaded->eval,
                    options->executors * BATCHES_PER_EXECUTOR, &loaded->loader, err);
}

void load_cancel_init(struct load_cancel *cancel) {
  *cancel = (struct load_cancel){0};
  pthread_mutex_init(&cancel->lock, NULL);
}

void load_cancel_fini(struct load_cancel *cancel) {
  pthread_mutex_destroy(&cancel->lock);
}

void load_cancel(struct load_cancel *cancel) {
  pthread_mutex_lock(&cancel->lock);
  cancel->is_cancelled = true;
  if (cancel->reader)
    rpc_reader_cancel(cancel->reader);
  pthread_mutex_unlock(&cancel->lock);
}

/* Makes the reader the one to end. False if it is too late: then it is not to be used. */
static bool load_cancel_set(struct load_cancel *cancel, struct rpc_reader *reader) {
  bool is_cancelled;
  pthread_mutex_lock(&cancel->lock);
  cancel->reader = reader;
  is_cancelled = cancel->is_cancelled;
  pthread_mutex_unlock(&cancel->lock);
  return !is_cancelled;
}

/* Appends the chunks of one stream to onnx[size_bytes]. */
static int chunks_read(struct rpc_reader *reader, unsigned char *onnx, size_t size_bytes, struct err *err) {
  size_t at = 0;
  void *reply = NULL;
  while (!rpc_reader_next(reader, &reply, err) && reply) {
    const Weir__Chunk *chunk = reply;
    bool fits = chunk->data.len <= size_bytes - at;
    if (fits && chunk->data.len > 0)
      memcpy(onnx + at, chunk->data.data, chunk->data.len);
    at += fits ? chunk->data.len : 0;
    protobuf_c_message_free_unpacked(reply, NULL);
    if (!fits)
      return err_set(err, ERR_CORRUPT, "the model's download is longer than the %zu bytes announced",
                     size_bytes);
  }
  if (!err->code && at < size_bytes)
    err_set(err, ERR_UNAVAILABLE, "the model's download ended after %zu of %zu bytes", at, size_bytes);
  return err->code;
}

static int model_fetch_once(const struct load_options *options, const Weir__LoadRun *load,
                            unsigned char *onnx, struct err *err) {
  Weir__RunRequest request = WEIR__RUN_REQUEST__INIT;
  struct rpc_reader *reader = rpc_reader_open(options->coordinator, RPC_FETCH_MODEL, -1);
  char sha256[SHA256_HEX_SIZE];
  request.run = load->run;
  *err = ERR_NONE;
  if (!load_cancel_set(options->cancel, reader))
    err_set(err, ERR_CANCELLED, "the run was taken back while it loaded");
  else if (!rpc_reader_send(reader, &request, err)) {
    rpc_reader_half_close(reader);
    chunks_read(reader, onnx, load->model_bytes, err);
  }
  load_cancel_set(options->cancel, NULL);
  rpc_reader_close(reader);
  if (err->code)
    return err->code;
  sha256_hex(onnx, load->model_bytes, sha256);
  if (strcmp(sha256, load->model_sha256) != 0)
    return err_set(err, ERR_CORRUPT, "the model came with sha256 %s, expected %s", sha256,
                   load->model_sha256);
  return 0;
}

static int model_fetch(const struct load_options *options, const Weir__LoadRun *load, unsigned char **out,
                       struct err *err) {
  *out = load->model_bytes < SIZE_MAX ? malloc(load->model_bytes + 1) : NULL;
  if (!*out)
    return err_set(err, ERR_NO_MEMORY, "the model needs %llu bytes", (unsigned long long)load->model_bytes);
  for (int attempt = 0;; attempt++) {
    if (!model_fetch_once(options, load, *out, err))
      return 0;
    if (!err_is_retryable(err->code) || attempt + 1 == FETCH_ATTEMPTS)
      return err->code;
    log_event(LOG_WARN, "worker", "model_fetch_retried", "run=%s error=\"%s\"", load->run, err->text);
    usleep((useconds_t)rpc_backoff_ms(attempt) * 1000);
  }
}
