/* What there is once, and what once for each context. */
#include "worker/backend/replay/split.h"

#include <stdlib.h>

#include "common/base/memory.h"

enum { ALIGN = 64 };

static bool is_kept(const struct split *split, const struct memory_span *span) {
  return span->last >= split->n_steps;
}

bool split_is_saved(const struct split *split, const struct memory_span *span) {
  return split->n_contexts > 1 && !is_kept(split, span) && span->first < split->n_forward &&
         span->last >= split->n_forward;
}

/* Lays out the spans that are saved, or those that are not. */
static size_t spans_plan(const struct split *split, struct memory_span *spans, int n, bool is_saved) {
  struct memory_span *chosen = mem_new(((size_t)n + 1) * sizeof *chosen);
  int n_chosen = 0;
  for (int i = 0; i < n; i++)
    if (split_is_saved(split, &spans[i]) == is_saved)
      chosen[n_chosen++] = spans[i];
  size_t size_bytes = memory_plan(chosen, n_chosen);
  n_chosen = 0;
  for (int i = 0; i < n; i++)
    if (split_is_saved(split, &spans[i]) == is_saved)
      spans[i].offset = chosen[n_chosen++].offset;
  free(chosen);
  return (size_bytes + ALIGN - 1) / ALIGN * ALIGN;
}

size_t split_plan(struct split *split, struct memory_span *spans, int n) {
  split->shared_bytes = spans_plan(split, spans, n, false);
  split->saved_bytes = spans_plan(split, spans, n, true);
  return split->shared_bytes + split->saved_bytes * (size_t)split->n_contexts;
}

size_t split_kept_bytes(const struct split *split, const struct memory_span *spans, int n) {
  size_t size_bytes = 0;
  for (int i = 0; i < n; i++)
    if (is_kept(split, &spans[i]))
      size_bytes += (spans[i].size_bytes + ALIGN - 1) / ALIGN * ALIGN;
  return size_bytes;
}
