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

/* Without the average and the marks. */
static size_t slots_bytes(const struct hosted_block *block) {
  return (block->slot_elems - block->mark_elems - (has_average(block) ? block->elems : 0)) * sizeof(float);
}

static size_t marks_bytes(const struct hosted_block *block) {
  return block->mark_elems * sizeof(float);
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
  *least = (layout->has_average ? weights_bytes(block) : 0) + (layout->has_slots ? slots_bytes(block) : 0) +
           marks_bytes(block);
  return kept.size_bytes >= *least && (!layout->has_slots || kept.size_bytes == *least);
}

/* Slots and average by what there is of each, and marks. The weights are there. */
static void take_kept(struct hosted_block *block, const struct block_layout *layout, struct kept kept) {
  size_t average_bytes = weights_bytes(block);
  hosted_block_begin(block);
  kept.size_bytes -= marks_bytes(block);
  hosted_block_take_marks(block, kept.data + kept.size_bytes, layout->has_slots);
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

/* Of so many versions before the first one steps are computed. */
static uint32_t n_needed(const struct hosted_block *block) {
  const struct hosted_run *run = block->run;
  return (uint32_t)mode_before(&run->mode, run->base_step);
}

/* The versions before it, as far as steps are computed from them. *rest_bytes: of what lies in front of them.
 */
static int restore_before(struct hosted_block *block, const struct block_image *image, size_t *rest_bytes,
                          struct err *err) {
  size_t each = weights_bytes(block);
  uint32_t needed = n_needed(block);
  const char *from;
  if (image->n_before < needed || image->size_bytes / each < image->n_before)
    return err_set(err, ERR_CORRUPT, "it has %zu bytes with %u versions before its own, and the run needs %u",
                   image->size_bytes, image->n_before, needed);
  *rest_bytes = image->size_bytes - image->n_before * each;
  from = (const char *)image->data + image->size_bytes - needed * each;
  older_clear(&block->older); /* it may be the second attempt */
  for (uint32_t i = 0; i < needed; i++) {
    struct buffer *buffer = buffer_new(each);
    if (!buffer)
      return hosted_block_no_memory(block, err);
    memcpy(buffer->data, from + i * each, each);
    older_add(&block->older, block->version - needed + i, buffer);
  }
  return 0;
}

int hosted_block_restore(struct hosted_block *block, const struct block_image *image, struct err *err) {
  size_t weights = weights_bytes(block), slots = block->slot_elems * sizeof(float);
  size_t size_bytes = image->size_bytes;
  const char *content = image->data;
  if (restore_before(block, image, &size_bytes, err))
    return err->code;
  if (image->layout && block->kind == BLOCK_PARAMETERS)
    return restore_laid_out(block, image->layout, content, size_bytes, err);
  if (size_bytes != weights + slots)
    return err_set(err, ERR_CORRUPT, "it has %zu bytes, but %u elements with %u values of slots are %zu",
                   size_bytes, block->elems, block->slot_elems, weights + slots);
  if (hosted_block_allocate(block, err))
    return err->code;
  memcpy(block->current->data, content, weights);
  if (block->slots)
    memcpy(block->slots->data, content + weights, slots);
  return 0;
}

struct block_content hosted_block_lend(struct hosted_block *block, uint64_t version, uint32_t n_before) {
  bool is_newest = version == block->version; /* slots are of that one alone */
  struct block_content content = {.weights = is_newest ? block->current : hosted_block_find(block, version)};
  struct err err;
  if (!content.weights || (is_newest && hosted_block_reserve_slots(block, &err)))
    return (struct block_content){0};
  if (is_newest)
    content.slots = block->slots;
  for (; content.n_before < n_before; content.n_before++) {
    struct buffer *before = hosted_block_find(block, version - n_before + content.n_before);
    if (!before)
      return (struct block_content){0};
    content.before[content.n_before] = before;
  }
  return block_content_get(&content);
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

static void adopt_before(struct hosted_block *block, const struct block_content *content) {
  uint32_t needed = n_needed(block), first = content->n_before - needed;
  for (uint32_t i = 0; i < needed; i++)
    older_add(&block->older, block->version - needed + i, buffer_get(content->before[first + i]));
}

static bool adopt_newest(struct hosted_block *block, const struct block_layout *layout,
                         const struct block_content *content) {
  size_t slots = content->slots ? content->slots->size_bytes : 0;
  if (layout && block->kind == BLOCK_PARAMETERS)
    return adopt_laid_out(block, layout, content);
  if (slots != block->slot_elems * sizeof(float))
    return false;
  block->current = buffer_get(content->weights);
  block->slots = content->slots ? buffer_get(content->slots) : NULL;
  return true;
}

bool hosted_block_adopt(struct hosted_block *block, const struct block_layout *layout,
                        const struct block_content *content) {
  CHECK(!block->current && !block->slots);
  if (!content->weights || content->weights->size_bytes != weights_bytes(block) ||
      content->n_before < n_needed(block) || !adopt_newest(block, layout, content))
    return false;
  adopt_before(block, content);
  return true;
}
