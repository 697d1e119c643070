/* Parts and pulls on their way to the servers. */
#include "worker/train/run/sending.h"

static bool is_compressed(const struct run *run, const struct transfer_item *item) {
  return item->kind == TRANSFER_PUSH && run->loaded.model->blocks[item->block].kind == BLOCK_PARAMETERS &&
         compression_form(&run->compression, item->node) == SUM_IS_COMPRESSED;
}

static void compress(const struct run *run, struct transfer_item *item) {
  const struct compressor_def *compressor = run->compression.gradients;
  struct wire_sum sum = {item->step, item->block, item->node};
  uint32_t elems = run->block_elems[item->block];
  if (run->residuals)
    residuals_encode(run->residuals, &sum, item->buffer->data);
  else
    compressor_encode(compressor, compression_key(&run->compression, &sum), item->buffer->data, elems,
                      item->buffer->data);
  item->size_bytes = compressor_bytes(compressor, elems);
}

void sending_start(struct run *run, const struct transfer_item *items, int n) {
  struct transfer_item sent[SENT_TOGETHER_MAX];
  CHECK(n <= SENT_TOGETHER_MAX);
  for (int i = 0; i < n; i++) {
    sent[i] = items[i];
    if (is_compressed(run, &sent[i]))
      compress(run, &sent[i]);
  }
  transfers_start(run->transfers, sent, n);
}
