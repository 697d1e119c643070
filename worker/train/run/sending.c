/* Parts and pulls on their way to the servers. */
#include "worker/train/run/sending.h"

static bool is_compressed(const struct run *run, const struct transfer_item *item) {
  return item->kind == TRANSFER_PUSH && run->loaded.model->blocks[item->block].kind == BLOCK_PARAMETERS &&
         compression_form(&run->compression, item->node) == SUM_IS_COMPRESSED;
}

void sending_start(struct run *run, const struct transfer_item *item) {
  struct transfer_item sent = *item;
  if (is_compressed(run, item)) {
    const struct compressor_def *compressor = run->compression.gradients;
    struct wire_sum sum = {item->step, item->block, item->node};
    uint32_t elems = run->block_elems[item->block];
    compressor_encode(compressor, compression_key(&run->compression, &sum), item->buffer->data, elems,
                      item->buffer->data);
    sent.size_bytes = compressor_bytes(compressor, elems);
  }
  transfers_start(run->transfers, &sent);
}
