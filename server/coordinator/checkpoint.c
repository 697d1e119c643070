/* Checkpoints in the store. */
#include "server/coordinator/checkpoint.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/graph/model.h"

/* All blocks of a checkpoint put together. */
struct weights {
  struct model *model;
  float *params; /* f32[model->param_elems] */
  float *state;  /* f32[model->row_elems] */
};

static char *manifest_name(const char *run, uint64_t step);
static int weights_read(struct store *store, const Weir__Manifest *manifest, struct weights *weights,
                        struct err *err);
static int open_model(struct store *store, const Weir__Manifest *manifest, struct model **model,
                      struct err *err);
static int read_block(struct store *store, const struct weights *weights, const Weir__WrittenBlock *written,
                      struct err *err);
static void weights_fini(struct weights *weights);
static int put_message(struct store *store, const char *name, const void *message, struct err *err);

int checkpoint_commit(struct store *store, const Weir__Manifest *manifest, char sha256[65], struct err *err) {
  Weir__Manifest committed = *manifest;
  struct weights weights = {0};
  char *name = manifest_name(manifest->run, manifest->step);
  int rc = weights_read(store, manifest, &weights, err);
  if (rc)
    goto out;
  model_weights_sha256(weights.model, weights.params, weights.state, sha256);
  committed.weights_sha256 = sha256;
  rc = put_message(store, name, &committed, err);
out:
  weights_fini(&weights);
  free(name);
  return rc;
}

int checkpoint_weights(struct store *store, const char *run, uint64_t step, struct buffer **out,
                       struct err *err) {
  Weir__Manifest *manifest = NULL;
  struct weights weights = {0};
  char *name = manifest_name(run, step);
  void *data = NULL;
  size_t size, params_bytes, state_bytes;
  int rc = store_get_record(store, name, &data, &size, err);
  if (rc)
    goto out;
  manifest = weir__manifest__unpack(NULL, size, data);
  if (!manifest || !manifest->spec || !manifest->spec->train) {
    rc = err_set(err, ERR_CORRUPT, "store: record %s is not a manifest", name);
    goto out;
  }
  rc = weights_read(store, manifest, &weights, err);
  if (rc)
    goto out;
  params_bytes = weights.model->param_elems * sizeof(float);
  state_bytes = (weights.model->row_elems - METRICS) * sizeof(float);
  *out = buffer_new(params_bytes + state_bytes);
  if (!*out) {
    rc = err_set(err, ERR_NO_MEMORY, "no memory for %zu bytes of weights", params_bytes + state_bytes);
    goto out;
  }
  memcpy((*out)->data, weights.params, params_bytes);
  memcpy((char *)(*out)->data + params_bytes, weights.state + METRICS, state_bytes);
out:
  if (manifest)
    weir__manifest__free_unpacked(manifest, NULL);
  weights_fini(&weights);
  free(data);
  free(name);
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

static char *manifest_name(const char *run, uint64_t step) {
  return mem_printf("runs/%s/checkpoints/%020" PRIu64, run, step);
}

static int weights_read(struct store *store, const Weir__Manifest *manifest, struct weights *weights,
                        struct err *err) {
  int rc = open_model(store, manifest, &weights->model, err);
  if (rc)
    return rc;
  if (manifest->n_blocks != weights->model->n_blocks)
    return err_set(err, ERR_CORRUPT, "the checkpoint has %zu blocks, the model %u", manifest->n_blocks,
                   weights->model->n_blocks);
  weights->params = calloc(weights->model->param_elems, sizeof(float));
  weights->state = calloc(weights->model->row_elems, sizeof(float));
  if (!weights->params || !weights->state)
    return err_set(err, ERR_NO_MEMORY, "no memory for the weights: %" PRIu64 " elements",
                   weights->model->param_elems + weights->model->row_elems);
  for (size_t i = 0; i < manifest->n_blocks && !rc; i++)
    rc = read_block(store, weights, manifest->blocks[i], err);
  return rc;
}

static int open_model(struct store *store, const Weir__Manifest *manifest, struct model **model,
                      struct err *err) {
  const Weir__TrainSpec *train = manifest->spec->train;
  void *onnx;
  size_t size;
  int rc = store_get(store, manifest->model_sha256, &onnx, &size, err);
  if (rc)
    return rc;
  rc = model_open(onnx, size, manifest->spec, train->batch / (train->microbatches ? train->microbatches : 1),
                  train->batch, model, err);
  free(onnx);
  return rc;
}

static int read_block(struct store *store, const struct weights *weights, const Weir__WrittenBlock *written,
                      struct err *err) {
  const struct block *block;
  float *vector;
  void *data;
  size_t size;
  int rc;
  if (written->block >= weights->model->n_blocks)
    return err_set(err, ERR_CORRUPT, "the checkpoint has a block %u, the model only %u", written->block,
                   weights->model->n_blocks);
  block = &weights->model->blocks[written->block];
  vector = block->kind == BLOCK_PARAMETERS ? weights->params : weights->state;
  rc = store_get(store, written->sha256, &data, &size, err);
  if (rc)
    return err_prefix(err, "block %u", written->block);
  if (size < block->elems * sizeof(float))
    rc = err_set(err, ERR_CORRUPT, "block %u of the checkpoint has %zu bytes, its %u elements need %zu",
                 written->block, size, block->elems, block->elems * sizeof(float));
  else
    memcpy(vector + block->begin, data, block->elems * sizeof(float));
  free(data);
  return rc;
}

static void weights_fini(struct weights *weights) {
  model_close(weights->model);
  free(weights->params);
  free(weights->state);
}

static int put_message(struct store *store, const char *name, const void *message, struct err *err) {
  size_t size = protobuf_c_message_get_packed_size(message);
  uint8_t *packed = mem_new(size);
  int rc;
  protobuf_c_message_pack(message, packed);
  rc = store_put_record(store, name, packed, size, NULL, 0, err);
  free(packed);
  return rc;
}
