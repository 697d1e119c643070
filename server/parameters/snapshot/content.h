/* What a block has in memory of a version, as snapshots write it and forks take it over. */
#ifndef WEIR_SERVER_PARAMETERS_SNAPSHOT_CONTENT_H
#define WEIR_SERVER_PARAMETERS_SNAPSHOT_CONTENT_H

#include "common/base/memory.h"
#include "common/modes/mode.h"

/* A reference to each buffer. Nobody writes a buffer while there is more than one reference. */
struct block_content {
  struct buffer *weights; /* or state; NULL: the block has not the version, or lacks one before it */
  struct buffer *slots;   /* with the average behind them; NULL where it keeps none, or none of the version */
  struct buffer
      *before[MODE_BEFORE_MAX]; /* weights of the versions before it (mode_before), the oldest first */
  uint32_t n_before;
};

struct block_content block_content_get(const struct block_content *content); /* references of its own */
void block_content_put(struct block_content *content);

#endif
