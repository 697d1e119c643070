/* References to a block's buffers. */
#include "server/parameters/snapshot/content.h"

struct block_content block_content_get(const struct block_content *content) {
  struct block_content own = *content;
  buffer_get(own.weights);
  if (own.slots)
    buffer_get(own.slots);
  for (uint32_t i = 0; i < own.n_before; i++)
    buffer_get(own.before[i]);
  return own;
}

void block_content_put(struct block_content *content) {
  buffer_put(content->weights);
  buffer_put(content->slots);
  for (uint32_t i = 0; i < content->n_before; i++)
    buffer_put(content->before[i]);
  *content = (struct block_content){0};
}
