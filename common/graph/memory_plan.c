/* The memory plan: largest span first, into the lowest gap between the placed spans that live beside it. */
#include "common/graph/memory_plan.h"

#include <stdint.h>
#include <stdlib.h>

#include "common/err.h"
#include "common/memory.h"

enum { PLAN_ALIGN = 64 };

struct plan_entry {
  struct memory_span *span;
  size_t rounded;
  int index;
};

static size_t rounded_up(size_t size) {
  CHECK(size <= SIZE_MAX / 2);
  return (size + PLAN_ALIGN - 1) & ~(size_t)(PLAN_ALIGN - 1);
}

static int compare_size_falling(const void *a, const void *b) {
  const struct plan_entry *x = a, *y = b;
  if (x->rounded != y->rounded)
    return x->rounded < y->rounded ? 1 : -1;
  return x->index < y->index ? -1 : x->index > y->index;
}

static bool lives_beside(const struct memory_span *a, const struct memory_span *b) {
  return a->first <= b->last && b->first <= a->last;
}

/* Finds the entry's offset among placed[0..n), sorted by offset, and inserts it there. */
static void entry_place(struct plan_entry *entry, struct plan_entry **placed, int n) {
  size_t offset = 0;
  int at = n;
  for (int i = 0; i < n; i++) {
    const struct plan_entry *other = placed[i];
    if (!lives_beside(entry->span, other->span))
      continue;
    if (other->span->offset >= offset && other->span->offset - offset >= entry->rounded)
      break;
    if (other->span->offset + other->rounded > offset)
      offset = other->span->offset + other->rounded;
  }
  entry->span->offset = offset;
  for (; at > 0 && placed[at - 1]->span->offset > offset; at--)
    placed[at] = placed[at - 1];
  placed[at] = entry;
}

size_t memory_plan(struct memory_span *spans, int n) {
  struct plan_entry *entries = mem_new((size_t)n * sizeof *entries);
  struct plan_entry **placed = mem_new((size_t)n * sizeof *placed);
  size_t size = 0;
  for (int i = 0; i < n; i++)
    entries[i] = (struct plan_entry){&spans[i], rounded_up(spans[i].size_bytes), i};
  qsort(entries, (size_t)n, sizeof *entries, compare_size_falling);
  for (int i = 0; i < n; i++) {
    entry_place(&entries[i], placed, i);
    if (entries[i].span->offset + entries[i].rounded > size)
      size = entries[i].span->offset + entries[i].rounded;
  }
  free(entries);
  free(placed);
  return size;
}
