/* Version 0 of what the model has in pieces. */
#include "server/parameters/load/initial.h"

enum { BATCH_MAX = 16 };

struct batch {
  struct hosted_block *blocks[BATCH_MAX];
  struct block_piece pieces[BATCH_MAX];
  struct piece_read reads[BATCH_MAX];
  int n;
};

/* The bytes come to where the weights are to be: halves are half as many. */
static void batch_add(struct batch *batch, struct hosted_block *block, struct block_piece piece) {
  batch->blocks[batch->n] = block;
  batch->pieces[batch->n] = piece;
  batch->reads[batch->n] = pieces_read(piece.pieces, piece.piece, block->current->data);
  batch->n++;
}

static int batch_read(struct batch *batch, const struct piece_source *pieces, struct err *err) {
  if (batch->n == 0)
    return 0;
  if (!pieces)
    return err_set(err, ERR_NOT_FOUND, "the model is in pieces, which nobody has");
  if (pieces->read(pieces->user, batch->reads, batch->n, err))
    return err_prefix(err, "initializer '%s'", batch->pieces[0].param->name);
  for (int i = 0; i < batch->n; i++) {
    const struct block_piece *piece = &batch->pieces[i];
    struct hosted_block *block = batch->blocks[i];
    float *weights = block->current->data;
    piece_decode(piece->pieces->type, weights, block->elems, weights);
    if (model_check_finite(piece->param->name, weights, (uint64_t)piece->piece * PIECE_ELEMS, block->elems,
                           err))
      return err->code;
    hosted_block_begin(block);
  }
  batch->n = 0;
  return 0;
}

int initial_blocks(struct hosted_run *run, const struct model *model, const struct piece_source *pieces,
                   struct err *err) {
  struct batch batch = {.n = 0};
  for (uint32_t b = 0; b < run->n_own; b++) {
    struct block_piece piece = model_block_piece(model, run->blocks[b].index);
    if (!piece.pieces)
      continue;
    batch_add(&batch, &run->blocks[b], piece);
    if (batch.n == BATCH_MAX && batch_read(&batch, pieces, err))
      return err->code;
  }
  return batch_read(&batch, pieces, err);
}
