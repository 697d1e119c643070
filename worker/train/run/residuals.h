/* What a worker has not sent of its gradients, where a compressor with feedback leaves most of each sum out:
   a residual for each block, which is added to the next sum of that block that is sent, of whichever part of
   whichever step. It is the worker's alone: where it dies, leaves the run or begins anew, it is lost. */
#ifndef WEIR_WORKER_TRAIN_RUN_RESIDUALS_H
#define WEIR_WORKER_TRAIN_RUN_RESIDUALS_H

#include "common/compress/compression.h"

struct residuals;

/* elems: u32[n_blocks]. It and the compression must outlive them. A block has memory from its first sum on.
 */
struct residuals *residuals_new(const struct compression *compression, const uint32_t *elems,
                                uint32_t n_blocks);
void residuals_free(struct residuals *residuals); /* NULL is ignored */

/* All are zero again. No sum is encoded meanwhile. */
void residuals_clear(struct residuals *residuals); /* NULL is ignored */

/* values f32[elems of the block], finite -> the first compressor_bytes of where they lie. Any thread. */
void residuals_encode(struct residuals *residuals, const struct wire_sum *sum, float *values);

#endif
