/* How the gradients and the weights of a run travel: train.compression of its spec. Workers and servers ask
   here, and so agree without a message.

   Gradients: sums are f32 up to one level of the reduction tree (common/agree/tree.h), the wire level. The
   sum of a node of that level is compressed once, by whoever has the whole of it: a worker that sends it, or
   the server where its parts meet. Above, sums are again f32, of what was read from the compressed ones. So
   the bits do not depend on which worker had how much of the tree. A worker sends no sum from above the
   level. A compressor with feedback leaves most of a sum out, and the worker that sends it keeps that for its
   next one: such a sum is compressed by workers alone, and bits do depend on who had it. Weights: a version
   is compressed once more for every worker; what a server keeps of it is f32. */
#ifndef WEIR_COMMON_COMPRESS_COMPRESSION_H
#define WEIR_COMMON_COMPRESS_COMPRESSION_H

#include "common/agree/tree.h"
#include "common/compress/compressor.h"
#include "spec.pb-c.h"

/* Zeroed: everything is sent as f32. */
struct compression {
  const struct compressor_def *gradients, *weights; /* NULL: f32 */
  uint32_t level;                                   /* of the wire; of gradients that are compressed */
  uint32_t microbatches;
  uint64_t seed;
};

/* The names of train.compression are known, and fit. Errors: INVALID, naming the key by its path. */
int compression_check(const Weir__TrainSpec *train, struct err *err);

struct compression compression_of(const Weir__TrainSpec *train); /* of a spec that was checked */

/* The compressors that its members must know (compressor_set). */
uint32_t compression_needs(const Weir__TrainSpec *train);

/* Workers keep what they do not send of gradients: as many bytes as those have. */
bool compression_has_feedback(const struct compression *compression);

/* How the sum of a node is sent. */
enum sum_form {
  SUM_IS_PLAIN,      /* f32 */
  SUM_IS_COMPRESSED, /* it is a node of the wire level */
  SUM_IS_TOO_HIGH    /* not at all */
};

/* node: valid, canonical or not. */
enum sum_form compression_form(const struct compression *compression, struct tree_node node);

/* The lowest level of a canonical node that is not to be added to its sibling before it is sent. */
uint32_t compression_sum_level(const struct compression *compression);

/* Of one block's sum of a node of the wire level. */
struct wire_sum {
  uint64_t step;
  uint32_t block;
  struct tree_node node;
};

/* The key of its draws: each sum of a run has its own. */
uint64_t compression_key(const struct compression *compression, const struct wire_sum *sum);

#endif
