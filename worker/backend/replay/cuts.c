/* Cuts of a forward part into segments. What crosses a cut is counted where it was made, so that the sum over
   segments is exact. Of the backward part, gradients of what crosses a segment's end and of its largest
   tensor are counted. */
#include "worker/backend/replay/cuts.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { PLACES_MAX = 320, HALVINGS = 30 };

/* Made in the forward part, and read by the backward part or by what may have to run again. */
static bool is_counted(const struct contents *contents, const struct content *content) {
  return content->producer >= 0 && content->producer < contents->program->n_forward &&
         (content->is_saved || content->last_needed >= 0);
}

/* Which steps lie behind the place from which nobody needs the content across cuts. */
static int first_step_behind(const struct content *content) {
  return content->is_fixed ? INT_MAX : content->last_needed + 1;
}

/* Where a long program may be cut: where the least is live in each of as many ranges. */
static void choose_places(struct cuts *cuts, struct arena *arena) {
  const struct contents *contents = cuts->contents;
  int n_forward = contents->program->n_forward;
  int n_ranges = n_forward - 1 < PLACES_MAX ? n_forward - 1 : PLACES_MAX;
  size_t *begun = mem_new(((size_t)n_forward + 2) * sizeof *begun), *ended, now = 0, least = 0;
  ended = mem_new(((size_t)n_forward + 2) * sizeof *ended);
  for (int c = 0; c < contents->n; c++) {
    const struct content *content = &contents->list[c];
    if (!is_counted(contents, content) || content->is_fixed || content->last_needed < 0)
      continue;
    begun[content->producer + 1] += content->size_bytes;
    ended[content->last_needed + 1] += content->size_bytes;
  }
  cuts->at = arena_new(arena, ((size_t)(n_ranges > 0 ? n_ranges : 0) + 2) * sizeof *cuts->at);
  for (int s = 1, range = 0; s < n_forward; s++) {
    now += begun[s] - ended[s];
    int its = (int)((long long)(s - 1) * n_ranges / (n_forward - 1));
    if (its == range || now < least) { /* the first of its range, or a better one */
      least = now;
      cuts->at[its + 1] = s;
    }
    range = its + 1;
  }
  cuts->n = (n_ranges > 0 ? n_ranges : 0) + 1;
  cuts->at[cuts->n] = n_forward;
  free(begun);
  free(ended);
}

/* The first place behind a step. */
static int place_behind(const struct cuts *cuts, int step) {
  int low = 0, high = cuts->n + 1;
  while (low < high) {
    int middle = (low + high) / 2;
    if (cuts->at[middle] > step)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

/* Adds a content to the row of the segments that begin before it: rows are differences along j until they are
   summed. It crosses the places [made, gone), and a segment behind those has it to itself. */
static void row_add(struct cuts *cuts, size_t *kept, size_t *whole, const struct content *content) {
  int made = place_behind(cuts, content->producer);
  int gone = content->is_fixed ? cuts->n + 1 : place_behind(cuts, content->last_needed);
  gone = gone < made ? made : gone;
  kept[made] += content->size_bytes;
  kept[gone] -= content->size_bytes; /* wraps; the sums do not */
  whole[made] += content->size_bytes;
  if (!content->is_saved)
    whole[gone] -= content->size_bytes;
}

/* The largest content of segments that begin before it is made: its gradient takes as much. */
static void largest_note(const struct cuts *cuts, size_t *largest, const struct content *content) {
  for (int j = place_behind(cuts, content->producer); j <= cuts->n; j++)
    largest[j] = content->size_bytes > largest[j] ? content->size_bytes : largest[j];
}

static void rows_find(struct cuts *cuts, struct arena *arena) {
  const struct contents *contents = cuts->contents;
  size_t width = (size_t)cuts->n + 2, *largest = mem_new(width * sizeof *largest);
  size_t *kept = mem_new(width * sizeof *kept), *whole = mem_new(width * sizeof *whole);
  int c = contents->n - 1;
  cuts->kept = arena_new(arena, (size_t)cuts->n * width * sizeof *cuts->kept);
  cuts->whole = arena_new(arena, (size_t)cuts->n * width * sizeof *cuts->whole);
  for (int i = cuts->n - 1; i >= 0; i--) { /* contents come in the order of their producers */
    for (; c >= 0 && (contents->list[c].producer < 0 || contents->list[c].producer >= cuts->at[i]); c--)
      if (is_counted(contents, &contents->list[c])) {
        row_add(cuts, kept, whole, &contents->list[c]);
        largest_note(cuts, largest, &contents->list[c]);
      }
    size_t kept_sum = 0, whole_sum = 0;
    for (size_t j = 0; j < width; j++) {
      cuts->kept[(size_t)i * width + j] = kept_sum += kept[j];
      cuts->whole[(size_t)i * width + j] = (whole_sum += whole[j]) + largest[j];
    }
  }
  for (size_t at = 0; at < (size_t)cuts->n * width; at++) /* the gradient of what crosses the segment's end */
    cuts->whole[at] += cuts->kept[at % width];
  free(largest);
  free(kept);
  free(whole);
}

/* Finds before[] for every place that can be reached. False if the end cannot. */
static bool ways_find(struct cuts *cuts, size_t most_bytes) {
  size_t width = (size_t)cuts->n + 2;
  cuts->kept_until[0] = 0;
  for (int j = 1; j <= cuts->n; j++) {
    cuts->kept_until[j] = SIZE_MAX;
    for (int i = 0; i < j; i++) {
      size_t kept = cuts->kept_until[i], whole = cuts->whole[(size_t)i * width + (size_t)j];
      if (kept == SIZE_MAX || kept * (size_t)cuts->n_contexts + whole > most_bytes)
        continue;
      kept += j < cuts->n ? cuts->kept[(size_t)i * width + (size_t)j] : 0;
      if (kept >= cuts->kept_until[j])
        continue;
      cuts->kept_until[j] = kept;
      cuts->before[j] = i;
      if (j == cuts->n && cuts->n_contexts == 1) /* the longest last segment: it is not run again */
        break;
    }
  }
  return cuts->kept_until[cuts->n] != SIZE_MAX;
}

void cuts_find(const struct contents *contents, int n_contexts, struct arena *arena, struct cuts *out) {
  *out = (struct cuts){.contents = contents, .n_contexts = n_contexts};
  choose_places(out, arena);
  rows_find(out, arena);
  out->kept_until = arena_new(arena, ((size_t)out->n + 1) * sizeof *out->kept_until);
  out->before = arena_new(arena, ((size_t)out->n + 1) * sizeof *out->before);
  out->most_bytes = out->whole[out->n];
  size_t low = 0, high = out->most_bytes;
  for (int h = 0; h < HALVINGS && low < high; h++) {
    size_t middle = low + (high - low) / 2;
    if (ways_find(out, middle))
      high = middle;
    else
      low = middle + 1;
  }
  out->least_bytes = high;
}

bool cuts_choose(struct cuts *cuts, size_t most_bytes, bool *is_kept) {
  const struct contents *contents = cuts->contents;
  bool *is_cut = mem_new((size_t)contents->program->n_forward + 2);
  int *next_cut = mem_new(((size_t)contents->program->n_forward + 2) * sizeof *next_cut);
  bool is_found = ways_find(cuts, most_bytes);
  for (int j = cuts->n; is_found && j > 0; j = cuts->before[j])
    is_cut[cuts->at[cuts->before[j]]] = true;
  int last = contents->program->n_forward, next = INT_MAX;
  if (is_found && cuts->n_contexts == 1)
    last = cuts->at[cuts->before[cuts->n]];
  for (int s = contents->program->n_forward; s >= 0; s--) {
    next_cut[s] = next; /* the first cut behind step s */
    if (is_cut[s])
      next = s;
  }
  for (int c = 0; c < contents->n; c++) {
    const struct content *content = &contents->list[c];
    is_kept[c] = content->is_fixed || content->producer >= last ||
                 next_cut[content->producer] < first_step_behind(content);
  }
  free(is_cut);
  free(next_cut);
  return is_found;
}
