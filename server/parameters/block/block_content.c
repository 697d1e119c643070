/* What a block holds at the version that its run begins at: as the model begins, from a checkpoint, or what
   another run of this server has in memory. */
#include <string.h>

#include "server/parameters/block/block.h"
#include "server/parameters/run/run.h"

static size_t weights_bytes(const struct hosted_block *block) {
  return block->elems * sizeof(float);
}

static bool has_average(const struct hosted_block *block) {
  return block->kind == BLOCK_PARAMETERS && block->run->spec->train->average;
}

/* Without the average. */
static size_t slots_bytes(const struct hosted_block *block) {
  return (block->slot_elems - (has_average(block) ? block->elems : 0)) * sizeof(float);
}

int hosted_block_allocate(struct hosted_block *block, struct err *err) {
  if (!block->current && !(block->current = buffer_new(weights_bytes(block))))
    return hosted_block_no_memory(block, err);
  if (block->slot_elems && !block->slots && !(block->slots = buffer_new(block->slot_elems * sizeof(float))))
    return hosted_block_no_memory(block, err);
  return 0;
}

void hosted_block_begin(struct hosted_block *block) {
  const struct hosted_run *run = block->run;
  if (!block->slots)
    return;
  memset(block->slots->data, 0, block->slots->size_bytes);
  if (run->optimizer->init_slots)
    run->optimizer->init_slots(block->options, block->elems, block->slots->data);
  if (has_average(block))
    memcpy(hosted_block_average(block, block->slots), block->current->data, block->current->size_bytes);
}

/* What lies behind the weights, by a layout that is not the block's. */
struct kept {
  const char *data;
  size_t size_bytes;
};

/* Whether it has what the layout says; *least: so many bytes are that at least. */
static bool kept_fits(const struct hosted_block *block, const struct block_layout *layout, struct kept kept,
                      size_t *least) {
  *least = (layout->has_average ? weights_bytes(block) : 0) + (layout->has_slots ? slots_bytes(block) : 0);
  return kept.size_bytes >= *least && (!layout->has_slots || kept.size_bytes == *least);
}

/* Slots and average by what there is of each. The weights are there. */
static void take_kept(struct hosted_block *block, const struct block_layout *layout, struct kept kept) {
  size_t average_bytes = weights_bytes(block);
  hosted_block_begin(block);
  if (layout->has_slots && slots_bytes(block))
    memcpy(block->slots->data, kept.data, slots_bytes(block));
  if (layout->has_average && has_average(block))
    memcpy(hosted_block_average(block, block->slots), kept.data + kept.size_bytes - average_bytes,
           average_bytes);
}

static int restore_laid_out(struct hosted_block *block, const struct block_layout *layout,
                            const char *content, size_t size_bytes, struct err *err) {
  size_t weights = weights_bytes(block), least;
  struct kept kept = {content + weights, size_bytes > weights ? size_bytes - weights : 0};
  bool fits = kept_fits(block, layout, kept, &least);
  if (!fits || size_bytes < weights)
    return err_set(err, ERR_CORRUPT, "it has %zu bytes, but %u elements as its run keeps them are %zu",
                   size_bytes, block->elems, weights + least);
  if (hosted_block_allocate(block, err))
    return err->code;
  memcpy(block->current->data, content, weights);
  take_kept(block, layout, kept);
  return 0;
}

int hosted_block_restore(struct hosted_block *block, const struct block_layout *layout, const void *content,
                         size_t size_bytes, struct err *err) {
  size_t weights = weights_bytes(block), slots = block->slot_elems * sizeof(float);
  if (layout && block->kind == BLOCK_PARAMETERS)
    return restore_laid_out(block, layout, content, size_bytes, err);
  if (size_bytes != weights + slots)
    return err_set(err, ERR_CORRUPT, "it has %zu bytes, but %u elements with %u values of slots are %zu",
                   size_bytes, block->elems, block->slot_elems, weights + slots);
  if (hosted_block_allocate(block, err))
    return err->code;
  memcpy(block->current->data, content, weights);
  if (block->slots)
    memcpy(block->slots->data, (const char *)content + weights, slots);
  return 0;
}

struct block_content hosted_block_lend(struct hosted_block *block, uint64_t version) {
  struct block_content content = {NULL, NULL};
  struct err err;
  struct buffer *weights = hosted_block_find(block, version);
  bool is_newest = version == block->version; /* slots are of that one alone */
  if (!weights || (is_newest && hosted_block_reserve_slots(block, &err)))
    return content;
  content.weights = buffer_get(weights);
  if (is_newest)
    content.slots = block->slots ? buffer_get(block->slots) : NULL;
  return content;
}

void block_content_put(struct block_content *content) {
  buffer_put(content->weights);
  buffer_put(content->slots);
  *content = (struct block_content){NULL, NULL};
}

/* Refers to the weights; slots are the block's own. */
static bool adopt_laid_out(struct hosted_block *block, const struct block_layout *layout,
                           const struct block_content *content) {
  struct kept kept = {NULL, 0};
  struct err err;
  size_t least;
  if (content->slots)
    kept = (struct kept){content->slots->data, content->slots->size_bytes};
  if (!kept_fits(block, layout, kept, &least))
    return false;
  block->current = buffer_get(content->weights);
  if (hosted_block_allocate(block, &err)) {
    buffer_put(block->current);
    block->current = NULL;
    return false;
  }
  take_kept(block, layout, kept);
  return true;
}

bool hosted_block_adopt(struct hosted_block *block, const struct block_layout *layout,
                        const struct block_content *content) {
  size_t slots = content->slots ? content->slots->size_bytes : 0;
  CHECK(!block->current && !block->slots);
  if (!content->weights || content->weights->size_bytes != weights_bytes(block))
    return false;
  if (layout && block->kind == BLOCK_PARAMETERS)
    return adopt_laid_out(block, layout, content);
  if (slots != block->slot_elems * sizeof(float))
    return false;
  block->current = buffer_get(content->weights);
  block->slots = content->slots ? buffer_get(content->slots) : NULL;
  return true;
}
