/* The memory plan. Of up to a few thousand spans: largest first, into the lowest gap between the placed spans
   that live beside it, which packs tightly and takes the square of their number. Of more: in the order in
   which they begin to live, into the lowest gap that is free then. */
#include "model/graph/memory_plan.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "common/base/memory.h"

enum { PLAN_ALIGN = 64, TIGHT_SPANS_MAX = 2048 };

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

static size_t plan_tightly(struct plan_entry *entries, int n) {
  struct plan_entry **placed = mem_new((size_t)n * sizeof *placed);
  size_t size = 0;
  qsort(entries, (size_t)n, sizeof *entries, compare_size_falling);
  for (int i = 0; i < n; i++) {
    entry_place(&entries[i], placed, i);
    if (entries[i].span->offset + entries[i].rounded > size)
      size = entries[i].span->offset + entries[i].rounded;
  }
  free(placed);
  return size;
}

/* Bytes that are free at the moment, by offset; no two touch, and none touches the end. */
struct gap {
  size_t offset, size;
};

struct free_space {
  struct gap *gaps;
  int n, capacity;
  size_t end; /* of what is in use */
  size_t high;
};

static void gap_remove(struct free_space *space, int at) {
  memmove(space->gaps + at, space->gaps + at + 1, (size_t)(--space->n - at) * sizeof *space->gaps);
}

static size_t space_take(struct free_space *space, size_t size) {
  size_t offset = space->end;
  for (int g = 0; g < space->n; g++) {
    struct gap *gap = &space->gaps[g];
    if (gap->size < size)
      continue;
    offset = gap->offset;
    gap->offset += size;
    gap->size -= size;
    if (gap->size == 0)
      gap_remove(space, g);
    return offset;
  }
  space->end += size;
  if (space->end > space->high)
    space->high = space->end;
  return offset;
}

/* Joins gap `at` with the one behind it if they touch. */
static void gap_join(struct free_space *space, int at) {
  struct gap *gap = &space->gaps[at];
  if (at < 0 || at + 1 >= space->n || gap->offset + gap->size != gap[1].offset)
    return;
  gap->size += gap[1].size;
  gap_remove(space, at + 1);
}

static void space_give(struct free_space *space, size_t offset, size_t size) {
  int at = space->n;
  while (at > 0 && space->gaps[at - 1].offset > offset)
    at--;
  array_reserve((void **)&space->gaps, &space->capacity, space->n, sizeof *space->gaps);
  memmove(space->gaps + at + 1, space->gaps + at, (size_t)(space->n++ - at) * sizeof *space->gaps);
  space->gaps[at] = (struct gap){offset, size};
  gap_join(space, at);
  gap_join(space, at - 1);
  if (space->gaps[space->n - 1].offset + space->gaps[space->n - 1].size == space->end)
    space->end = space->gaps[--space->n].offset;
}

static int compare_int(int a, int b) {
  return (a > b) - (a < b);
}

static int compare_first(const void *a, const void *b) {
  const struct plan_entry *x = a, *y = b;
  int order = compare_int(x->span->first, y->span->first);
  return order ? order : compare_int(x->index, y->index);
}

static int compare_last(const void *a, const void *b) {
  const struct plan_entry *x = *(struct plan_entry *const *)a, *y = *(struct plan_entry *const *)b;
  int order = compare_int(x->span->last, y->span->last);
  return order ? order : compare_int(x->index, y->index);
}

static size_t plan_in_time(struct plan_entry *entries, int n) {
  struct plan_entry **ending = mem_new((size_t)n * sizeof *ending);
  struct free_space space = {0};
  int ended = 0;
  qsort(entries, (size_t)n, sizeof *entries, compare_first);
  for (int i = 0; i < n; i++)
    ending[i] = &entries[i];
  qsort(ending, (size_t)n, sizeof *ending, compare_last);
  for (int i = 0; i < n; i++) {
    for (; ending[ended]->span->last < entries[i].span->first; ended++)
      if (ending[ended]->rounded)
        space_give(&space, ending[ended]->span->offset, ending[ended]->rounded);
    entries[i].span->offset = entries[i].rounded ? space_take(&space, entries[i].rounded) : 0;
  }
  free(ending);
  free(space.gaps);
  return space.high;
}

size_t memory_plan(struct memory_span *spans, int n) {
  struct plan_entry *entries = mem_new((size_t)n * sizeof *entries);
  size_t size;
  for (int i = 0; i < n; i++) {
    CHECK(spans[i].first <= spans[i].last);
    entries[i] = (struct plan_entry){&spans[i], rounded_up(spans[i].size_bytes), i};
  }
  size = n <= TIGHT_SPANS_MAX ? plan_tightly(entries, n) : plan_in_time(entries, n);
  free(entries);
  return size;
}
