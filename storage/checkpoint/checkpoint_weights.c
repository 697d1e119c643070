/* The contents of checkpoints: blocks read in batches, put together, hashed, verified. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/sha256.h"
#include "common/optim/trained_model.h"
#include "storage/checkpoint/checkpoint_parts.h"

/* Where blocks go as they are read. */
struct reading {
  struct store *store;
  const Weir__Manifest *manifest;
  const struct model *model;
  float *params; /* f32: of the flat parameter vector, from params_begin on */
  uint64_t params_begin;
  float *state;    /* f32[model->row_elems] */
  bool is_average; /* params are to be the average */
};

/* STREAM_BLOCKS: that are in memory at a time, or fewer where the statistics are more. */
enum { STREAM_BLOCKS = 16 };

struct weights_stream {
  struct reading reading;
  struct model *model;
  size_t at;     /* the next parameter block */
  float *params; /* [STREAM_BLOCKS] blocks */
  bool has_ended;
};

static int open_model(struct store *store, const Weir__Manifest *manifest, struct model **model,
                      struct err *err);
static int read_batch(const struct reading *reading, size_t begin, size_t end, struct err *err);
static int take_block(const struct reading *reading, size_t index, const void *data, size_t size,
                      struct err *err);
static int read_state(const struct reading *reading, struct err *err);
static bool verify_batch(const struct reading *reading, size_t begin, size_t end,
                         struct checkpoint_damage *damage, struct err *err);
static void report_damage(struct checkpoint_damage *damage, const struct err *err);

/* Whether the blocks hold the average. One that begins with this version is the weights themselves. */
static bool has_average(const Weir__Manifest *manifest) {
  return !manifest->layout_spec || manifest->layout_spec->train->average;
}

int weights_stream_open(struct store *store, const Weir__Manifest *manifest, bool is_average,
                        struct weights_stream **out, struct err *err) {
  struct weights_stream *stream;
  *out = NULL;
  *err = ERR_NONE;
  if (is_average && checkpoint_check_average(manifest->run, manifest->spec, err))
    return err->code;
  stream = mem_new(sizeof *stream);
  if (open_model(store, manifest, &stream->model, err) == 0) {
    stream->params = malloc((size_t)STREAM_BLOCKS * BLOCK_ELEMS_MAX * sizeof(float));
    stream->reading = (struct reading){.store = store,
                                       .manifest = manifest,
                                       .model = stream->model,
                                       .params = stream->params,
                                       .state = calloc(stream->model->row_elems, sizeof(float)),
                                       .is_average = is_average && has_average(manifest)};
    if (!stream->params || !stream->reading.state)
      err_set(err, ERR_NO_MEMORY, "no memory for the running statistics");
    else
      read_state(&stream->reading, err);
  }
  if (err->code)
    weights_stream_close(stream);
  else
    *out = stream;
  return err->code;
}

uint64_t weights_stream_elems(const struct weights_stream *stream) {
  return stream->model->param_elems + stream->model->row_elems - METRICS;
}

int weights_stream_next(struct weights_stream *stream, const float **data, size_t *elems, struct err *err) {
  struct reading *reading = &stream->reading;
  const struct model *model = stream->model;
  size_t left = model->n_param_blocks - stream->at, n = left < STREAM_BLOCKS ? left : STREAM_BLOCKS;
  *elems = 0;
  if (n > 0) {
    reading->params_begin = model->blocks[stream->at].begin;
    if (read_batch(reading, stream->at, stream->at + n, err))
      return err->code;
    stream->at += n;
    *data = stream->params;
    for (size_t b = stream->at - n; b < stream->at; b++)
      *elems += model->blocks[b].elems;
  } else if (!stream->has_ended) { /* the metrics before them are no weights */
    stream->has_ended = true;
    *data = reading->state + METRICS;
    *elems = model->row_elems - METRICS;
  }
  return 0;
}

void weights_stream_close(struct weights_stream *stream) {
  if (!stream)
    return;
  model_close(stream->model);
  free(stream->params);
  free(stream->reading.state);
  free(stream);
}

int checkpoint_weights_sha256(struct store *store, const Weir__Manifest *manifest, char sha256[65],
                              struct err *err) {
  struct weights_stream *stream;
  struct weights_hash *hash;
  const float *data = NULL;
  size_t elems;
  if (weights_stream_open(store, manifest, false, &stream, err))
    return err->code;
  hash = weights_hash_new(stream->model, stream->reading.state);
  while (stream->at < stream->model->n_param_blocks && weights_stream_next(stream, &data, &elems, err) == 0)
    weights_hash_add(hash, data, elems);
  if (err->code)
    weights_hash_free(hash);
  else
    weights_hash_finish(hash, sha256);
  weights_stream_close(stream);
  return err->code;
}

int checkpoint_check_average(const char *run, const Weir__RunSpec *spec, struct err *err) {
  if (spec && spec->train && spec->train->average)
    return 0;
  return err_set(err, ERR_INVALID, "run '%s' keeps no average of its weights: its spec has no train.average",
                 run);
}

int checkpoint_flat_weights(struct store *store, const Weir__Manifest *manifest, bool is_average,
                            struct buffer **out, struct err *err) {
  struct weights_stream *stream;
  const float *data = NULL;
  size_t elems, at = 0;
  *out = NULL;
  if (weights_stream_open(store, manifest, is_average, &stream, err))
    return err->code;
  *out = buffer_new(weights_stream_elems(stream) * sizeof *data);
  if (!*out)
    err_set(err, ERR_NO_MEMORY, "no memory for %llu weights",
            (unsigned long long)weights_stream_elems(stream));
  while (!err->code && weights_stream_next(stream, &data, &elems, err) == 0 && elems > 0) {
    memcpy((float *)(*out)->data + at, data, elems * sizeof *data);
    at += elems;
  }
  weights_stream_close(stream);
  if (err->code) {
    buffer_put(*out);
    *out = NULL;
  }
  return err->code;
}

int checkpoint_blob(struct store *store, const char *sha256, struct buffer **out, struct err *err) {
  void *data;
  size_t size;
  int rc = store_get(store, sha256, &data, &size, err);
  if (rc)
    return rc;
  *out = buffer_new(size);
  if (*out && size)
    memcpy((*out)->data, data, size);
  free(data);
  return *out ? 0 : err_set(err, ERR_NO_MEMORY, "no memory for %zu bytes", size);
}

/* The hash is made block by block as they are looked at; of damaged ones there is none. */
static int verify_blocks(struct reading *reading, struct checkpoint_damage *damage, struct err *err) {
  const Weir__Manifest *manifest = reading->manifest;
  const struct model *model = reading->model;
  struct weights_hash *hash = NULL;
  if (model && read_state(reading, err) == 0)
    hash = weights_hash_new(model, reading->state);
  *err = ERR_NONE;
  for (size_t begin = 0, end; begin < manifest->n_blocks && !err->code; begin = end) {
    end = manifest->n_blocks - begin < STREAM_BLOCKS ? manifest->n_blocks : begin + STREAM_BLOCKS;
    reading->params_begin = model && begin < model->n_param_blocks ? model->blocks[begin].begin : 0;
    if (!verify_batch(reading, begin, end, damage, err))
      break;
    for (size_t b = begin; b < end && hash && damage->n_damaged == 0 && b < model->n_param_blocks; b++)
      weights_hash_add(hash, reading->params + model->blocks[b].begin - reading->params_begin,
                       model->blocks[b].elems);
  }
  if (hash && damage->n_damaged == 0 && !err->code)
    weights_hash_finish(hash, damage->sha256);
  else
    weights_hash_free(hash);
  return err->code;
}

int checkpoint_verify(struct store *store, const Weir__Manifest *manifest, struct checkpoint_damage *damage,
                      struct err *err) {
  struct reading reading = {.store = store, .manifest = manifest};
  struct model *model = NULL;
  damage->blocks = (uint32_t)manifest->n_blocks;
  damage->bytes = 0;
  damage->n_damaged = 0;
  *damage->sha256 = 0;
  if (open_model(store, manifest, &model, err)) {
    if (err_is_retryable(err->code) || err->code == ERR_IO)
      return err->code;
    report_damage(damage, err);
  } else {
    reading.params = malloc((size_t)STREAM_BLOCKS * BLOCK_ELEMS_MAX * sizeof(float));
    reading.state = calloc(model->row_elems, sizeof(float));
  }
  *err = ERR_NONE;
  reading.model = model;
  if (model && (!reading.params || !reading.state))
    err_set(err, ERR_NO_MEMORY, "no memory for the weights to verify");
  else
    verify_blocks(&reading, damage, err);
  if (*damage->sha256 && *manifest->weights_sha256 && strcmp(damage->sha256, manifest->weights_sha256)) {
    err_set(err, ERR_CORRUPT, "weights_sha256 is %s, but the checkpoint was committed with %s",
            damage->sha256, manifest->weights_sha256);
    report_damage(damage, err);
    *err = ERR_NONE;
  }
  model_close(model);
  free(reading.params);
  free(reading.state);
  return err->code;
}

static size_t batch_end(const Weir__Manifest *manifest, size_t begin) {
  return manifest->n_blocks - begin < STORE_BATCH_MAX ? manifest->n_blocks : begin + STORE_BATCH_MAX;
}

int checkpoint_is_whole(struct store *store, const Weir__Manifest *manifest, struct err *err) {
  const char *model = manifest->model_sha256;
  bool has[STORE_BATCH_MAX];
  if (store_has_blocks(store, &model, 1, has, err))
    return err->code;
  if (!has[0])
    return err_set(err, ERR_NOT_FOUND, "store: no such block: %s, the model", model);
  for (size_t begin = 0; begin < manifest->n_blocks; begin = batch_end(manifest, begin)) {
    const char *keys[STORE_BATCH_MAX];
    size_t n = batch_end(manifest, begin) - begin;
    for (size_t i = 0; i < n; i++)
      keys[i] = manifest->blocks[begin + i]->sha256;
    if (store_has_blocks(store, keys, (int)n, has, err))
      return err->code;
    for (size_t i = 0; i < n; i++)
      if (!has[i])
        return err_set(err, ERR_NOT_FOUND, "block %zu: store: no such block: %s", begin + i, keys[i]);
  }
  return 0;
}

static int open_model(struct store *store, const Weir__Manifest *manifest, struct model **model,
                      struct err *err) {
  const Weir__TrainSpec *train = manifest->spec->train;
  void *onnx;
  size_t size;
  int rc = store_get(store, manifest->model_sha256, &onnx, &size, err);
  *model = NULL;
  if (rc)
    return err_prefix(err, "the model");
  rc = trained_model_open(&(struct model_source){.onnx = onnx,
                                                 .size_bytes = size,
                                                 .spec = manifest->spec,
                                                 .samples = train->batch / train->microbatches},
                          model, err);
  free(onnx);
  if (rc)
    return err_prefix(err, "the model");
  if (manifest->n_blocks == (*model)->n_blocks)
    return 0;
  rc = err_set(err, ERR_CORRUPT, "the checkpoint has %zu blocks, the model %u", manifest->n_blocks,
               (*model)->n_blocks);
  model_close(*model);
  *model = NULL;
  return rc;
}

static int read_state(const struct reading *reading, struct err *err) {
  size_t end = reading->manifest->n_blocks;
  for (size_t begin = reading->model->n_summed_blocks; begin < end; begin += STREAM_BLOCKS)
    if (read_batch(reading, begin, end - begin < STREAM_BLOCKS ? end : begin + STREAM_BLOCKS, err))
      return err->code;
  return 0;
}

static int read_batch(const struct reading *reading, size_t begin, size_t end, struct err *err) {
  struct store_read reads[STORE_BATCH_MAX] = {0};
  int rc;
  for (size_t i = begin; i < end; i++)
    reads[i - begin].key = reading->manifest->blocks[i]->sha256;
  rc = store_get_blocks(reading->store, reads, (int)(end - begin), err);
  if (rc)
    return err_prefix(err, "blocks %zu to %zu of the checkpoint", begin, end - 1);
  for (size_t i = begin; i < end; i++) {
    if (!rc)
      rc = take_block(reading, i, reads[i - begin].data, reads[i - begin].size, err);
    free(reads[i - begin].data);
  }
  return rc;
}

/* A block is weights, then what its optimizer keeps, then the average where there is one, then weights of the
   versions before it. Without a model only its size is looked at. */
static int take_block(const struct reading *reading, size_t index, const void *data, size_t size,
                      struct err *err) {
  const Weir__WrittenBlock *written = reading->manifest->blocks[index];
  const struct block *block = reading->model ? &reading->model->blocks[index] : NULL;
  bool is_state = block && block->kind == BLOCK_STATISTICS;
  size_t weights_bytes = block ? block->elems * sizeof(float) : sizeof(float), begin = 0;
  size_t n_before = reading->manifest->versions_before;
  if (size != written->bytes)
    return err_set(err, ERR_CORRUPT, "block %zu of the checkpoint has %zu bytes, not the %" PRIu64 " written",
                   index, size, written->bytes);
  if (size / weights_bytes <= n_before || size % sizeof(float))
    return err_set(err, ERR_CORRUPT, "block %zu of the checkpoint has %zu bytes, its weights %zu", index,
                   size, weights_bytes);
  if (reading->is_average && !is_state) {
    begin = size - (n_before + 1) * weights_bytes;
    if (begin < weights_bytes)
      return err_set(err, ERR_CORRUPT, "block %zu of the checkpoint holds no average", index);
  }
  if (block && is_state)
    memcpy(reading->state + block->begin, (const char *)data + begin, weights_bytes);
  else if (block && block->kind == BLOCK_PARAMETERS)
    memcpy(reading->params + (block->begin - reading->params_begin), (const char *)data + begin,
           weights_bytes);
  return 0;
}

/* False when the store could not be asked. Block by block where a batch is damaged. */
static bool verify_batch(const struct reading *reading, size_t begin, size_t end,
                         struct checkpoint_damage *damage, struct err *err) {
  for (size_t i = begin; i < end; i++)
    damage->bytes += reading->manifest->blocks[i]->bytes;
  if (read_batch(reading, begin, end, err) == 0)
    return true;
  if (err->code != ERR_NOT_FOUND && err->code != ERR_CORRUPT)
    return false;
  for (size_t i = begin; i < end; i++) {
    void *data;
    size_t size;
    *err = ERR_NONE;
    if (store_get(reading->store, reading->manifest->blocks[i]->sha256, &data, &size, err) == 0) {
      take_block(reading, i, data, size, err);
      free(data);
    } else if (err->code != ERR_NOT_FOUND && err->code != ERR_CORRUPT)
      return false;
    else
      err_prefix(err, "block %zu", i);
    if (err->code)
      report_damage(damage, err);
  }
  *err = ERR_NONE;
  return true;
}

static void report_damage(struct checkpoint_damage *damage, const struct err *err) {
  damage->n_damaged++;
  if (damage->each)
    damage->each(damage->user, err->text);
}
