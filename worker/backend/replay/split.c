/* What there is once, and what once for each context. */
#include "worker/backend/replay/split.h"

#include <stdlib.h>

#include "common/base/memory.h"

enum { ALIGN = 64 };

static bool is_kept(const struct split *split, const struct memory_span *span) {
  return span->last >= split->n_steps;
}

/* It lives in both parts of an execution. */
static bool is_in_both(const struct split *split, const struct memory_span *span) {
  return !is_kept(split, span) && span->first < split->n_forward && span->last >= split->n_forward;
}

bool split_is_saved(const struct split *split, const struct memory_span *span) {
  return split->n_contexts > 1 && is_in_both(split, span);
}

static size_t rounded_up(size_t size_bytes) {
  return (size_bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* Lays out the spans that live in both parts, or those that do not. */
static size_t spans_plan(const struct split *split, struct memory_span *spans, int n, bool is_of_both) {
  struct memory_span *chosen = mem_new(((size_t)n + 1) * sizeof *chosen);
  int n_chosen = 0;
  for (int i = 0; i < n; i++)
    if (is_in_both(split, &spans[i]) == is_of_both)
      chosen[n_chosen++] = spans[i];
  size_t size_bytes = memory_plan(chosen, n_chosen);
  n_chosen = 0;
  for (int i = 0; i < n; i++)
    if (is_in_both(split, &spans[i]) == is_of_both)
      spans[i].offset = chosen[n_chosen++].offset;
  free(chosen);
  return rounded_up(size_bytes);
}

/* One arena for all. Plans have gaps: where one of all spans takes more than two plans of some, one is laid
   behind the other, so that no context takes more alone than beside others. */
static size_t whole_plan(struct split *split, struct memory_span *spans, int n) {
  size_t together = rounded_up(memory_plan(spans, n));
  if (split->shared_bytes + split->saved_bytes >= together) {
    split->shared_bytes = together;
  } else {
    spans_plan(split, spans, n, false);
    spans_plan(split, spans, n, true);
    for (int i = 0; i < n; i++)
      spans[i].offset += is_in_both(split, &spans[i]) ? split->shared_bytes : 0;
    split->shared_bytes += split->saved_bytes;
  }
  split->saved_bytes = 0;
  return split->shared_bytes;
}

size_t split_plan(struct split *split, struct memory_span *spans, int n) {
  split->shared_bytes = spans_plan(split, spans, n, false);
  split->saved_bytes = spans_plan(split, spans, n, true);
  if (split->n_contexts <= 1)
    return whole_plan(split, spans, n);
  return split->shared_bytes + split->saved_bytes * (size_t)split->n_contexts;
}

size_t split_kept_bytes(const struct split *split, const struct memory_span *spans, int n) {
  size_t size_bytes = 0;
  for (int i = 0; i < n; i++)
    if (is_kept(split, &spans[i]))
      size_bytes += (spans[i].size_bytes + ALIGN - 1) / ALIGN * ALIGN;
  return size_bytes;
}
