/* Pieces: the parts of tensors that lie in one block. A block is a range of one tensor, or several small
   tensors whole. */
#ifndef WEIR_COMMON_OPTIM_PIECE_H
#define WEIR_COMMON_OPTIM_PIECE_H

#include "common/optim/optimizer.h"
#include "model/model.h"

struct piece {
  struct shape shape; /* of the tensor */
  uint32_t tensor;    /* its number among the model's parameters */
  uint64_t tensor_elems;
  uint64_t offset; /* of the piece in the tensor */
  uint32_t begin;  /* of the piece in the block */
  uint32_t elems;
  uint32_t sums_begin[OPTIMIZER_PHASES_MAX]; /* where its sums of each phase begin among the block's */
};

/* The pieces of a parameter block, in order; the list is in the arena. */
struct piece *pieces_of(const struct model *model, const struct block *block, struct arena *arena,
                        uint32_t *n);

static inline bool piece_is_whole(const struct piece *piece) {
  return piece->elems == piece->tensor_elems;
}

#endif
