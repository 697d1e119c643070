/* The contents of checkpoints: blocks read in batches, put together, hashed, verified. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/sha256.h"
#include "storage/checkpoint/checkpoint_parts.h"

/* Where blocks go as they are read. */
struct reading {
  struct store *store;
  const Weir__Manifest *manifest;
  const struct model *model;
  float *params;   /* f32[model->param_elems] */
  float *state;    /* f32[model->row_elems] */
  bool is_average; /* params are to be the average */
};

static int open_model(struct store *store, const Weir__Manifest *manifest, struct model **model,
                      struct err *err);
static int read_blocks(const struct reading *reading, struct err *err);
static int read_batch(const struct reading *reading, size_t begin, size_t end, struct err *err);
static int take_block(const struct reading *reading, size_t index, const void *data, size_t size,
                      struct err *err);
static bool verify_batch(const struct reading *reading, size_t begin, size_t end,
                         struct checkpoint_damage *damage, struct err *err);
static void report_damage(struct checkpoint_damage *damage, const struct err *err);

static size_t batch_end(const Weir__Manifest *manifest, size_t begin) {
  return manifest->n_blocks - begin < STORE_BATCH_MAX ? manifest->n_blocks : begin + STORE_BATCH_MAX;
}

int checkpoint_weights_read(struct store *store, const Weir__Manifest *manifest,
                            struct checkpoint_weights *weights, struct err *err) {
  *weights = (struct checkpoint_weights){0};
  if (open_model(store, manifest, &weights->model, err))
    return err->code;
  weights->params = calloc(weights->model->param_elems, sizeof(float));
  weights->state = calloc(weights->model->row_elems, sizeof(float));
  if (!weights->params || !weights->state)
    return err_set(err, ERR_NO_MEMORY, "no memory for the weights: %" PRIu64 " elements",
                   weights->model->param_elems + weights->model->row_elems);
  return read_blocks(
      &(struct reading){store, manifest, weights->model, weights->params, weights->state, false}, err);
}

void checkpoint_weights_fini(struct checkpoint_weights *weights) {
  model_close(weights->model);
  free(weights->params);
  free(weights->state);
  *weights = (struct checkpoint_weights){0};
}

int checkpoint_weights_sha256(struct store *store, const Weir__Manifest *manifest, char sha256[65],
                              struct err *err) {
  struct checkpoint_weights weights;
  int rc = checkpoint_weights_read(store, manifest, &weights, err);
  if (!rc)
    model_weights_sha256(weights.model, weights.params, weights.state, sha256);
  checkpoint_weights_fini(&weights);
  return rc;
}

int checkpoint_check_average(const char *run, const Weir__RunSpec *spec, struct err *err) {
  if (spec && spec->train && spec->train->average)
    return 0;
  return err_set(err, ERR_INVALID, "run '%s' keeps no average of its weights: its spec has no train.average",
                 run);
}

int checkpoint_flat_weights(struct store *store, const Weir__Manifest *manifest, bool is_average,
                            struct buffer **out, struct err *err) {
  struct model *model;
  float *params, *state;
  size_t elems;
  int rc;
  *out = NULL;
  if (is_average && checkpoint_check_average(manifest->run, manifest->spec, err))
    return err->code;
  if (open_model(store, manifest, &model, err))
    return err->code;
  elems = model->param_elems + model->row_elems;
  *out = buffer_new(elems * sizeof(float));
  if (!*out) {
    rc = err_set(err, ERR_NO_MEMORY, "no memory for %zu bytes of weights", elems * sizeof(float));
    goto out;
  }
  params = (*out)->data;
  state = params + model->param_elems;
  rc = read_blocks(&(struct reading){store, manifest, model, params, state, is_average}, err);
  if (rc) {
    buffer_put(*out);
    *out = NULL;
    goto out;
  }
  memmove(state, state + METRICS, (model->row_elems - METRICS) * sizeof *state);
  (*out)->size_bytes -= METRICS * sizeof *state; /* the metrics are no weights: they were read in passing */
out:
  model_close(model);
  return rc;
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

int checkpoint_verify(struct store *store, const Weir__Manifest *manifest, struct checkpoint_damage *damage,
                      struct err *err) {
  struct checkpoint_weights weights = {0};
  struct reading reading = {.store = store, .manifest = manifest};
  damage->blocks = (uint32_t)manifest->n_blocks;
  damage->bytes = 0;
  damage->n_damaged = 0;
  *damage->sha256 = 0;
  if (open_model(store, manifest, &weights.model, err)) {
    if (err_is_retryable(err->code) || err->code == ERR_IO)
      return err->code;
    report_damage(damage, err);
  } else {
    weights.params = calloc(weights.model->param_elems, sizeof(float));
    weights.state = calloc(weights.model->row_elems, sizeof(float));
    if (!weights.params || !weights.state) {
      err_set(err, ERR_NO_MEMORY, "no memory for the weights to verify");
      goto out;
    }
  }
  *err = ERR_NONE;
  reading.model = weights.model;
  reading.params = weights.params;
  reading.state = weights.state;
  for (size_t begin = 0; begin < manifest->n_blocks; begin = batch_end(manifest, begin))
    if (!verify_batch(&reading, begin, batch_end(manifest, begin), damage, err))
      goto out;
  if (damage->n_damaged == 0)
    model_weights_sha256(weights.model, weights.params, weights.state, damage->sha256);
  if (*damage->sha256 && *manifest->weights_sha256 && strcmp(damage->sha256, manifest->weights_sha256)) {
    err_set(err, ERR_CORRUPT, "weights_sha256 is %s, but the checkpoint was committed with %s",
            damage->sha256, manifest->weights_sha256);
    report_damage(damage, err);
    *err = ERR_NONE;
  }
out:
  checkpoint_weights_fini(&weights);
  return err->code;
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
  rc = model_open(&(struct model_source){.onnx = onnx,
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

static int read_blocks(const struct reading *reading, struct err *err) {
  const Weir__Manifest *manifest = reading->manifest;
  for (size_t begin = 0; begin < manifest->n_blocks; begin = batch_end(manifest, begin))
    if (read_batch(reading, begin, batch_end(manifest, begin), err))
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

/* A block is weights, then what its optimizer keeps, then the average where there is one. Without a model
   only its size is looked at. */
static int take_block(const struct reading *reading, size_t index, const void *data, size_t size,
                      struct err *err) {
  const Weir__WrittenBlock *written = reading->manifest->blocks[index];
  const struct block *block = reading->model ? &reading->model->blocks[index] : NULL;
  bool is_state = block && block->kind == BLOCK_STATISTICS;
  size_t weights_bytes = block ? block->elems * sizeof(float) : sizeof(float), begin = 0;
  if (size != written->bytes)
    return err_set(err, ERR_CORRUPT, "block %zu of the checkpoint has %zu bytes, not the %" PRIu64 " written",
                   index, size, written->bytes);
  if (size < weights_bytes || size % sizeof(float))
    return err_set(err, ERR_CORRUPT, "block %zu of the checkpoint has %zu bytes, its weights %zu", index,
                   size, weights_bytes);
  if (reading->is_average && !is_state) {
    begin = size - weights_bytes;
    if (begin < weights_bytes)
      return err_set(err, ERR_CORRUPT, "block %zu of the checkpoint holds no average", index);
  }
  if (block)
    memcpy((is_state ? reading->state : reading->params) + block->begin, (const char *)data + begin,
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
