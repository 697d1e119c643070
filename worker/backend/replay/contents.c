/* What the roots of a program hold. */
#include "worker/backend/replay/contents.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGN = 64 };

int contents_of(const struct contents *contents, int step, int use) {
  return contents->of[contents->first_use[step] + use];
}

static int content_add(struct contents *contents, int root, int producer, int over) {
  size_t size_bytes = contents->program->roots[root].size_bytes;
  contents->list[contents->n] = (struct content){.root = root,
                                                 .size_bytes = (size_bytes + ALIGN - 1) / ALIGN * ALIGN,
                                                 .producer = producer,
                                                 .over = over,
                                                 .last_needed = -1,
                                                 .is_fixed = producer < 0};
  return contents->n++;
}

static bool step_reads(const struct replay_step *step, int root) {
  for (int u = 0; u < step->n_uses; u++)
    if (step->uses[u].root == root && !step->uses[u].is_written)
      return true;
  return false;
}

/* The step adds to a content that others made: all who know it as it was are run once. */
static void content_pin(struct contents *contents, int content, int step) {
  contents->list[content].is_fixed = true;
  for (int s = 0; s <= step; s++)
    for (int u = contents->first_use[s]; u < contents->first_use[s + 1]; u++)
      if (contents->of[u] == content)
        contents->is_once[s] = true;
}

/* held: by root, its content before the step. */
static void step_find(struct contents *contents, int s, int *held) {
  const struct replay_step *step = &contents->program->steps[s];
  int *of = contents->of + contents->first_use[s];
  for (int u = 0; u < step->n_uses; u++) {
    int root = step->uses[u].root;
    if (!contents->program->roots[root].is_planned || step->uses[u].is_written)
      continue;
    if (held[root] < 0)
      held[root] = content_add(contents, root, -1, -1);
    of[u] = held[root];
  }
  for (int u = 0; u < step->n_uses; u++) {
    int root = step->uses[u].root, *content = &held[root];
    if (!contents->program->roots[root].is_planned || !step->uses[u].is_written)
      continue;
    bool is_own = *content >= 0 && contents->list[*content].producer == s;
    bool is_over = *content >= 0 && step_reads(step, root);
    if (!is_own && (*content < 0 || is_over))
      *content = content_add(contents, root, s, *content);
    of[u] = *content;
    if (!is_own && contents->list[*content].producer != s)
      content_pin(contents, *content, s);
  }
}

static void find_saved(struct contents *contents) {
  const struct replay_program *program = contents->program;
  for (int s = program->n_forward; s < program->n_steps; s++)
    for (int u = 0; u < program->steps[s].n_uses; u++) {
      int content = contents_of(contents, s, u);
      if (content >= 0 && contents->list[content].producer < program->n_forward)
        contents->list[content].is_saved = true;
    }
}

/* From the end: a forward step may have to run again if the backward part reads what it makes, or such a step
   does. */
static void find_needed(struct contents *contents) {
  const struct replay_program *program = contents->program;
  for (int s = program->n_forward - 1; s >= 0; s--) {
    const struct replay_step *step = &program->steps[s];
    bool is_needed = false;
    for (int u = 0; u < step->n_uses; u++) {
      int content = contents_of(contents, s, u);
      if (content >= 0 && step->uses[u].is_written && !contents->list[content].is_fixed)
        is_needed |= contents->list[content].is_saved || contents->list[content].last_needed >= 0;
    }
    for (int u = 0; u < step->n_uses && is_needed; u++) {
      int content = contents_of(contents, s, u);
      if (content >= 0 && !step->uses[u].is_written && contents->list[content].last_needed < s)
        contents->list[content].last_needed = s;
    }
  }
}

void contents_find(const struct replay_program *program, struct arena *arena, struct contents *out) {
  int n_uses = 0;
  *out = (struct contents){.program = program};
  out->first_use = arena_new(arena, ((size_t)program->n_steps + 1) * sizeof *out->first_use);
  out->is_once = arena_new(arena, ((size_t)program->n_steps + 1) * sizeof *out->is_once);
  for (int s = 0; s < program->n_steps; s++) {
    out->first_use[s] = n_uses;
    out->is_once[s] = program->steps[s].is_once;
    n_uses += program->steps[s].n_uses;
  }
  out->first_use[program->n_steps] = n_uses;
  out->of = arena_new(arena, ((size_t)n_uses + 1) * sizeof *out->of);
  memset(out->of, -1, ((size_t)n_uses + 1) * sizeof *out->of);
  out->list = arena_new(arena, ((size_t)n_uses + 1) * sizeof *out->list);
  int *held = mem_new(((size_t)program->n_roots + 1) * sizeof *held);
  memset(held, -1, ((size_t)program->n_roots + 1) * sizeof *held);
  for (int s = 0; s < program->n_steps; s++)
    step_find(out, s, held);
  free(held);
  for (int c = 0; c < out->n; c++)
    if (out->list[c].producer >= 0 && out->is_once[out->list[c].producer])
      out->list[c].is_fixed = true;
  find_saved(out);
  find_needed(out);
}
