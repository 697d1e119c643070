/* Initial weights and the hash of all weights. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/sha256.h"
#include "model/model_parts.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "weights are hashed and sent as they lie in memory");

/* Copies what of a tensor at [begin, begin + elems) of its vector lies in the block. */
static void copy_overlap(const struct block *block, uint64_t begin, uint64_t elems, const float *data,
                         float *out) {
  uint64_t end = block->begin + block->elems;
  uint64_t from = begin > block->begin ? begin : block->begin;
  uint64_t to = begin + elems < end ? begin + elems : end;
  if (from < to && data)
    memcpy(out + (from - block->begin), data + (from - begin), (to - from) * sizeof *out);
}

void model_initial_block(const struct model *model, uint32_t block, float *out) {
  const struct block *b = &model->blocks[block];
  CHECK(block < model->n_blocks);
  memset(out, 0, b->elems * sizeof *out);
  for (int p = 0; b->kind == BLOCK_PARAMETERS && p < model->n_params; p++)
    copy_overlap(b, model->params[p].begin, model->params[p].elems,
                 model->train->values[model->params[p].train_value].data, out);
  for (int s = 0; b->kind == BLOCK_STATISTICS && s < model->n_statistics; s++)
    copy_overlap(b, model->statistics[s].begin, model->statistics[s].elems, model->statistics[s].initial,
                 out);
}

struct block_piece model_block_piece(const struct model *model, uint32_t block) {
  const struct block *b = &model->blocks[block];
  const struct param *param = model->params;
  const struct pieces *pieces;
  uint64_t begin;
  if (b->kind != BLOCK_PARAMETERS)
    return (struct block_piece){0};
  while (b->begin >= param->begin + param->elems)
    param++;
  pieces = model->train->values[param->train_value].pieces;
  begin = b->begin - param->begin;
  if (!pieces)
    return (struct block_piece){0};
  CHECK(begin % PIECE_ELEMS == 0 && b->elems == pieces_elems(pieces, (uint32_t)(begin / PIECE_ELEMS)));
  return (struct block_piece){pieces, (uint32_t)(begin / PIECE_ELEMS), param};
}

int model_check_finite(const char *name, const float *data, uint64_t begin, uint64_t elems, struct err *err) {
  for (uint64_t i = 0; i < elems; i++)
    if (!isfinite(data[i]))
      return err_set(err, ERR_INVALID, "initializer '%s': element %llu is %g, weights must be finite", name,
                     (unsigned long long)(begin + i), (double)data[i]);
  return 0;
}

/* A parameter's initial values; those in pieces are read. sha may be NULL. */
static int param_walk(const struct model *model, const struct param *param, const struct piece_source *source,
                      struct sha256 *sha, struct err *err) {
  const struct value *value = &model->train->values[param->train_value];
  const struct pieces *pieces = value->pieces;
  float *data;
  if (!pieces) {
    if (sha)
      sha256_update(sha, value->data, param->elems * sizeof(float));
    return 0;
  }
  data = mem_new(PIECE_BYTES_MAX);
  for (uint32_t i = 0; i < pieces->n && !err->code; i++) {
    uint32_t elems = pieces_elems(pieces, i);
    struct piece_read read = pieces_read(pieces, i, data);
    if (source->read(source->user, &read, 1, err)) {
      err_prefix(err, "initializer '%s'", param->name);
      break;
    }
    piece_decode(pieces->type, data, elems, data);
    model_check_finite(param->name, data, (uint64_t)i * PIECE_ELEMS, elems, err);
    if (sha)
      sha256_update(sha, data, elems * sizeof *data);
  }
  free(data);
  return err->code;
}

int model_initial_check(const struct model *model, const struct piece_source *source, struct err *err) {
  for (int p = 0; p < model->n_params; p++)
    if (param_walk(model, &model->params[p], source, NULL, err))
      return err->code;
  return 0;
}

int model_initial_sha256(const struct model *model, const struct piece_source *source, char hex[65],
                         struct err *err) {
  struct sha256 *sha = sha256_new();
  for (int i = 0; i < model->n_initializers && !err->code; i++) {
    const struct initializer *initializer = &model->initializers[i];
    if (initializer->param >= 0) {
      param_walk(model, &model->params[initializer->param], source, sha, err);
    } else if (initializer->statistic >= 0) {
      const struct statistic *statistic = &model->statistics[initializer->statistic];
      sha256_update(sha, statistic->initial, statistic->elems * sizeof(float));
    }
  }
  sha256_finish(sha, hex);
  return err->code;
}

struct weights_hash {
  const struct model *model;
  const float *state;
  struct sha256 *sha;
  int initializer;    /* that is being hashed */
  uint64_t at, elems; /* hashed of the flat vector; until where that initializer lies in it */
};

/* Statistics lie between parameters; ends at the next parameter. */
static void hash_advance(struct weights_hash *hash) {
  const struct model *model = hash->model;
  for (; hash->initializer < model->n_initializers; hash->initializer++) {
    const struct initializer *initializer = &model->initializers[hash->initializer];
    if (initializer->param >= 0) {
      const struct param *param = &model->params[initializer->param];
      CHECK(param->begin == hash->at);
      hash->elems = param->begin + param->elems;
      hash->initializer++;
      return;
    }
    if (initializer->statistic >= 0) {
      const struct statistic *statistic = &model->statistics[initializer->statistic];
      sha256_update(hash->sha, hash->state + statistic->begin, statistic->elems * sizeof(float));
    }
  }
}

struct weights_hash *weights_hash_new(const struct model *model, const float *state) {
  struct weights_hash *hash = mem_new(sizeof *hash);
  *hash = (struct weights_hash){.model = model, .state = state, .sha = sha256_new()};
  hash_advance(hash);
  return hash;
}

void weights_hash_add(struct weights_hash *hash, const float *params, uint64_t elems) {
  while (elems > 0) {
    uint64_t left = hash->elems - hash->at, n = elems < left ? elems : left;
    CHECK(n > 0);
    sha256_update(hash->sha, params, n * sizeof *params);
    hash->at += n;
    params += n;
    elems -= n;
    if (hash->at == hash->elems)
      hash_advance(hash);
  }
}

void weights_hash_finish(struct weights_hash *hash, char hex[65]) {
  CHECK(hash->at == hash->model->param_elems);
  sha256_finish(hash->sha, hex);
  free(hash);
}

void weights_hash_free(struct weights_hash *hash) {
  char hex[SHA256_HEX_SIZE];
  if (!hash)
    return;
  sha256_finish(hash->sha, hex);
  free(hash);
}

void model_weights_sha256(const struct model *model, const float *params, const float *state, char hex[65]) {
  struct weights_hash *hash = weights_hash_new(model, state);
  weights_hash_add(hash, params, model->param_elems);
  weights_hash_finish(hash, hex);
}
