/* train.compression of a spec, and the wire level. */
#include "common/compress/compression.h"

#include "common/agree/random.h"

#define STREAM_COMPRESSION                                                                                   \
  (0x636f6d70ull << 32) /* beside the block: apart from what else is drawn of a step */

static int check_gradients(const Weir__TrainSpec *train, struct err *err) {
  const char *name = train->compression->gradients;
  const struct compressor_def *gradients = compressor_find("train.compression.gradients", name, err);
  if (!gradients)
    return err->code;
  if (gradients->has_feedback && train->deterministic)
    return err_set(
        err, ERR_INVALID,
        "train.compression.gradients: %s has each worker keep what it has not sent, so that no two "
        "runs are alike: set train.deterministic to false, or name another",
        gradients->name);
  return 0;
}

int compression_check(const Weir__TrainSpec *train, struct err *err) {
  const Weir__CompressionSpec *spec = train->compression;
  const struct compressor_def *weights;
  if (!spec)
    return 0;
  if (spec->gradients && check_gradients(train, err))
    return err->code;
  if (!spec->weights)
    return 0;
  weights = compressor_find("train.compression.weights", spec->weights, err);
  if (!weights || weights->fits_weights)
    return weights ? 0 : err->code;
  return err_set(err, ERR_INVALID, "train.compression.weights: %s is too coarse for weights: name another",
                 weights->name);
}

static const struct compressor_def *find_checked(const char *name) {
  struct err err;
  return name ? compressor_find("train.compression", name, &err) : NULL;
}

/* The lowest level that has no more nodes than that. */
static uint32_t level_of(uint32_t microbatches, uint32_t parts) {
  uint32_t level = 0;
  while (((microbatches - 1) >> level) + 1 > parts)
    level++;
  return level;
}

struct compression compression_of(const Weir__TrainSpec *train) {
  const Weir__CompressionSpec *spec = train->compression;
  struct compression compression = {.microbatches = train->microbatches, .seed = train->seed};
  if (!spec)
    return compression;
  compression.gradients = find_checked(spec->gradients);
  compression.weights = find_checked(spec->weights);
  if (compression.gradients)
    compression.level = level_of(train->microbatches, spec->parts);
  return compression;
}

uint32_t compression_needs(const Weir__TrainSpec *train) {
  const Weir__CompressionSpec *spec = train->compression;
  const char *names[2];
  size_t n = 0;
  if (spec && spec->gradients)
    names[n++] = spec->gradients;
  if (spec && spec->weights)
    names[n++] = spec->weights;
  return compressor_set(names, n);
}

bool compression_has_feedback(const struct compression *compression) {
  return compression->gradients && compression->gradients->has_feedback;
}

enum sum_form compression_form(const struct compression *compression, struct tree_node node) {
  uint32_t n = compression->microbatches, level = compression->level;
  struct tree_node sum, wire = {node.first >> level << level, level};
  if (!compression->gradients)
    return SUM_IS_PLAIN;
  sum = tree_canonical(node, n);
  wire = tree_canonical(wire, n);
  if (tree_is_same(sum, wire))
    return SUM_IS_COMPRESSED;
  return tree_covers(wire, sum) ? SUM_IS_PLAIN : SUM_IS_TOO_HIGH;
}

uint32_t compression_sum_level(const struct compression *compression) {
  return compression->gradients ? compression->level : UINT32_MAX;
}

uint64_t compression_key(const struct compression *compression, const struct wire_sum *sum) {
  return random_key(compression->seed, sum->step, sum->node.first, STREAM_COMPRESSION | sum->block);
}
