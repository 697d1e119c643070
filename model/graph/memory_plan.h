/* The memory plan: offsets in one arena for tensors that live for a while, so that their bytes are reused. */
#ifndef WEIR_MODEL_GRAPH_MEMORY_PLAN_H
#define WEIR_MODEL_GRAPH_MEMORY_PLAN_H

#include <stddef.h>

/* A tensor alive from step `first` to step `last` (inclusive). offset is the answer. */
struct memory_span {
  size_t size_bytes;
  int first, last;
  size_t offset;
};

/* Gives every span an offset (multiple of 64) such that spans alive at the same time do not overlap. Returns
   the arena's size in bytes. */
size_t memory_plan(struct memory_span *spans, int n);

#endif
