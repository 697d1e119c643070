/* Who owns the steps. */
#include "worker/backend/stages/owners.h"

#include <string.h>

static const struct stage_span NOBODY = {-1, -1};

bool owners_has(const struct owners *owners, int step) {
  return owners->spans[step].first >= 0;
}

bool owners_crosses(const struct owners *owners, int content) {
  return owners->maker[content] >= 0 && owners_has(owners, owners->maker[content]);
}

static void span_join(struct stage_span *span, const struct stage_span *other) {
  if (span->first < 0)
    *span = *other;
  if (other->first < 0)
    return;
  span->first = other->first < span->first ? other->first : span->first;
  span->last = other->last > span->last ? other->last : span->last;
}

static struct stage_span *spans_new(struct arena *arena, int n) {
  struct stage_span *spans = arena_new(arena, ((size_t)n + 1) * sizeof *spans);
  for (int i = 0; i < n; i++)
    spans[i] = NOBODY;
  return spans;
}

/* Notes the last writer of each content, and in is_shared[contents] which of them have several, or are
 * inputs. */
static void find_makers(struct owners *owners, bool *is_shared) {
  const struct replay_program *program = owners->staged->program;
  for (int s = 0; s < program->n_steps; s++)
    for (int u = 0; u < program->steps[s].n_uses; u++) {
      int content = contents_of(&owners->contents, s, u);
      if (content < 0 || !program->steps[s].uses[u].is_written)
        continue;
      is_shared[content] |= owners->contents.list[content].producer != s;
      owners->maker[content] = s;
    }
}

/* Joins the span of a step with nodes to what it writes and must share with others. */
static void note_written(struct owners *owners, int s, const bool *is_shared) {
  const struct replay_step *step = &owners->staged->program->steps[s];
  for (int u = 0; u < step->n_uses && owners_has(owners, s); u++) {
    int content = contents_of(&owners->contents, s, u);
    if (!step->uses[u].is_written)
      continue;
    if (content < 0)
      span_join(&owners->of_roots[step->uses[u].root], &owners->spans[s]);
    else if (is_shared[content])
      span_join(&owners->of_contents[content], &owners->spans[s]);
  }
}

/* The nodes that a step of nobody has to have. */
static struct stage_span span_of_nobody(const struct owners *owners, int s, const bool *is_shared) {
  const struct replay_step *step = &owners->staged->program->steps[s];
  struct stage_span all = {0, owners->staged->n_nodes - 1}, span = NOBODY;
  bool reads_planned = false, writes_kept = false;
  for (int u = 0; u < step->n_uses; u++) {
    const struct replay_use *use = &step->uses[u];
    int content = contents_of(&owners->contents, s, u);
    if (content >= 0 && use->is_written && is_shared[content])
      return all;
    reads_planned |= content >= 0 && !use->is_written;
    writes_kept |= content < 0 && use->is_written;
    if (content < 0)
      span_join(&span, &owners->of_roots[use->root]);
    else if (s < owners->maker[content])
      span_join(&span, &owners->of_contents[content]);
  }
  return reads_planned && writes_kept ? all : span;
}

static void give_nodes(struct owners *owners, const bool *is_shared) {
  for (int s = 0; s < owners->staged->program->n_steps; s++) {
    if (owners_has(owners, s))
      continue;
    owners->spans[s] = span_of_nobody(owners, s, is_shared);
    note_written(owners, s, is_shared);
  }
}

/* Of steps with nodes that use what has to be shared. */
static void find_ties(struct owners *owners, const bool *is_shared) {
  const struct replay_program *program = owners->staged->program;
  for (int s = 0; s < program->n_steps; s++)
    for (int u = 0; u < program->steps[s].n_uses && owners_has(owners, s); u++) {
      int content = contents_of(&owners->contents, s, u), root = program->steps[s].uses[u].root;
      if (content >= 0 && is_shared[content] && s <= owners->maker[content])
        span_join(&owners->of_contents[content], &owners->spans[s]);
      if (content < 0 && owners->of_roots[root].first >= 0)
        span_join(&owners->of_roots[root], &owners->spans[s]);
    }
}

void owners_find(const struct staged_program *staged, struct arena *arena, struct owners *out) {
  const struct replay_program *program = staged->program;
  *out = (struct owners){.staged = staged};
  contents_find(program, arena, &out->contents);
  out->spans = arena_copy(arena, staged->spans, (size_t)program->n_steps * sizeof *out->spans);
  out->maker = arena_new(arena, ((size_t)out->contents.n + 1) * sizeof *out->maker);
  memset(out->maker, -1, ((size_t)out->contents.n + 1) * sizeof *out->maker);
  out->of_contents = spans_new(arena, out->contents.n);
  out->of_roots = spans_new(arena, program->n_roots);
  bool *is_shared = arena_new(arena, (size_t)out->contents.n + 1);
  find_makers(out, is_shared);
  for (int s = 0; s < program->n_steps; s++)
    note_written(out, s, is_shared);
  give_nodes(out, is_shared);
  find_ties(out, is_shared);
}
