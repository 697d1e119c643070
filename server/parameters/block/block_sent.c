/* What workers get of a block's versions, where the run's weights are compressed: each version is compressed
   once, when it is first asked for. As versions themselves, what was made of one is not written over before
   the version after the next is there: workers may still read it in shared memory. */
#include "server/parameters/block/block.h"
#include "server/parameters/run/run.h"

bool hosted_block_compresses(const struct hosted_block *block) {
  return block->kind == BLOCK_PARAMETERS && block->run->compression.weights;
}

/* Memory that nobody refers to. */
static struct buffer *take_place(struct hosted_block *block, struct sent_version *sent) {
  size_t size_bytes = compressor_bytes(block->run->compression.weights, block->elems);
  struct shared_pool *pool = run_shares_pool(&block->run->shares);
  struct buffer *old = sent->buffer, *place = NULL;
  sent->buffer = NULL;
  if (old && buffer_is_sole(old) && (old->place || !pool)) {
    shared_renew(old);
    return old;
  }
  buffer_put(old);
  if (pool)
    place = shared_pool_take(pool, size_bytes);
  return place ? place : buffer_new(size_bytes);
}

struct buffer *hosted_block_sent(struct hosted_block *block, uint64_t version, struct buffer *weights) {
  struct sent_version *sent =
      &block->sent[mode_count(&block->run->mode, version) % (sizeof block->sent / sizeof *block->sent)];
  if (!hosted_block_compresses(block))
    return weights;
  if (sent->buffer && sent->version == version)
    return sent->buffer;
  sent->buffer = take_place(block, sent);
  if (!sent->buffer)
    return NULL;
  sent->version = version;
  compressor_encode(block->run->compression.weights, 0, weights->data, block->elems, sent->buffer->data);
  return sent->buffer;
}

void hosted_block_drop_sent(struct hosted_block *block) {
  for (size_t i = 0; i < sizeof block->sent / sizeof *block->sent; i++) {
    buffer_put(block->sent[i].buffer);
    block->sent[i].buffer = NULL;
  }
}
