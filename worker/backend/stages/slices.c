/* The stages of a program that is cut: their steps, what crosses between them, and where it is held. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "worker/backend/stages/owners.h"
#include "worker/backend/stages/stages.h"

enum part { PART_NONE, PART_FORWARD, PART_BACKWARD };

/* The first and the last stage in which a content is used or made. */
struct extent {
  int lowest, highest; /* INT_MAX and -1: none */
};

struct slicer {
  struct arena memory; /* gone when the slices are made */
  struct owners owners;
  int *stage_of; /* [n_nodes] */
  int n_stages;
  enum part *parts;       /* [n_stages * n_steps] in which part of the stage the step runs */
  struct extent *extents; /* [contents] */
  struct stage *stages;   /* of the slices */
  int *root_of;           /* [n_stages * contents] the stage's root that holds it; -1 */
};

/* While the roots of one stage are found. */
struct holder {
  struct slicer *slicer;
  int stage;
  struct stage_root *roots;
  int n_roots;
  int *last; /* [contents] the event that needs it last; -1 */
};

static enum part *part_of(const struct slicer *slicer, int stage, int step) {
  return &slicer->parts[(size_t)stage * (size_t)slicer->owners.staged->program->n_steps + (size_t)step];
}

static int *root_of(const struct slicer *slicer, int stage, int content) {
  return &slicer->root_of[(size_t)stage * (size_t)slicer->owners.contents.n + (size_t)content];
}

static int stage_of_step(const struct slicer *slicer, int step) {
  return slicer->stage_of[slicer->owners.spans[step].first];
}

static bool is_forward(const struct slicer *slicer, int step) {
  return step < slicer->owners.staged->program->n_forward;
}

/* Whether the forward part of the stage, whose steps before the one that asks have their parts, has the
 * content. */
static bool is_there_forward(const struct slicer *slicer, int stage, int content) {
  int maker = slicer->owners.maker[content];
  if (maker < 0)
    return true;
  if (!owners_has(&slicer->owners, maker))
    return *part_of(slicer, stage, maker) == PART_FORWARD;
  return is_forward(slicer, maker) && stage_of_step(slicer, maker) <= stage;
}

/* Marks the steps of the stage, from the last one: a step of nobody runs where somebody reads what it makes.
 */
static void mark_steps(struct slicer *slicer, int stage) {
  const struct owners *owners = &slicer->owners;
  const struct replay_program *program = owners->staged->program;
  bool *is_read = mem_new((size_t)owners->contents.n + 1);
  bool *is_root_read = mem_new((size_t)program->n_roots + 1);
  for (int s = program->n_steps - 1; s >= 0; s--) {
    const struct replay_step *step = &program->steps[s];
    bool is_run = owners_has(owners, s) && stage_of_step(slicer, s) == stage;
    for (int u = 0; u < step->n_uses && !owners_has(owners, s); u++) {
      int content = contents_of(&owners->contents, s, u);
      is_run |=
          step->uses[u].is_written && (content >= 0 ? is_read[content] : is_root_read[step->uses[u].root]);
    }
    for (int u = 0; u < step->n_uses && is_run; u++) {
      int content = contents_of(&owners->contents, s, u);
      if (step->uses[u].is_written)
        continue;
      *(content >= 0 ? &is_read[content] : &is_root_read[step->uses[u].root]) = true;
    }
    *part_of(slicer, stage, s) = !is_run ? PART_NONE : is_forward(slicer, s) ? PART_FORWARD : PART_BACKWARD;
  }
  free(is_read);
  free(is_root_read);
}

/* Steps of nobody wait for the backward part where that brings what they read. */
static void defer_steps(struct slicer *slicer, int stage) {
  const struct owners *owners = &slicer->owners;
  for (int s = 0; s < owners->staged->program->n_forward; s++) {
    const struct replay_step *step = &owners->staged->program->steps[s];
    if (owners_has(owners, s) || *part_of(slicer, stage, s) != PART_FORWARD)
      continue;
    for (int u = 0; u < step->n_uses; u++) {
      int content = contents_of(&owners->contents, s, u);
      if (content >= 0 && !step->uses[u].is_written && !is_there_forward(slicer, stage, content))
        *part_of(slicer, stage, s) = PART_BACKWARD;
    }
  }
}

static void find_extents(struct slicer *slicer, int stage) {
  const struct owners *owners = &slicer->owners;
  for (int s = 0; s < owners->staged->program->n_steps; s++)
    for (int u = 0; u < owners->staged->program->steps[s].n_uses; u++) {
      int content = contents_of(&owners->contents, s, u);
      if (*part_of(slicer, stage, s) == PART_NONE || content < 0)
        continue;
      struct extent *extent = &slicer->extents[content];
      extent->lowest = stage < extent->lowest ? stage : extent->lowest;
      extent->highest = stage > extent->highest ? stage : extent->highest;
    }
}

/* Whether the content goes up from the stage, or down to it, across the edge above the stage. */
static bool goes_up(const struct slicer *slicer, int content, int stage) {
  int maker = slicer->owners.maker[content];
  return owners_crosses(&slicer->owners, content) && is_forward(slicer, maker) &&
         stage_of_step(slicer, maker) <= stage && slicer->extents[content].highest > stage;
}

static bool goes_down(const struct slicer *slicer, int content, int stage) {
  return owners_crosses(&slicer->owners, content) && slicer->extents[content].lowest <= stage &&
         stage_of_step(slicer, slicer->owners.maker[content]) > stage;
}

static struct stage_item *list_items(struct slicer *slicer, struct arena *arena, int s) {
  const struct replay_program *program = slicer->owners.staged->program;
  struct stage *stage = &slicer->stages[s];
  struct stage_item *items = arena_new(arena, ((size_t)program->n_steps + 1) * sizeof *items);
  for (int step = 0; step < program->n_steps; step++)
    if (*part_of(slicer, s, step) == PART_FORWARD)
      items[stage->n_items++].step = step;
  stage->n_forward = stage->n_items;
  for (int step = 0; step < program->n_steps; step++)
    if (*part_of(slicer, s, step) == PART_BACKWARD)
      items[stage->n_items++].step = step;
  stage->items = items;
  return items;
}

static int event_of_item(const struct stage *stage, int item) {
  return item < stage->n_forward ? item + 1 : item + 3;
}

static int last_event(const struct stage *stage) {
  return stage->n_items + 3;
}

/* The last event by which the item has read: later ones run while a step reads on. */
static int event_until(const struct holder *holder, int item) {
  const struct stage *stage = &holder->slicer->stages[holder->stage];
  int step = stage->items[item].step, last = item;
  int until = holder->slicer->owners.staged->program->steps[step].until;
  for (int i = item + 1; i < stage->n_items && until > step; i++)
    if (stage->items[i].step <= until)
      last = i;
  return event_of_item(stage, last);
}

static void last_note(int *last, int event) {
  *last = event > *last ? event : *last;
}

static void find_last_events(struct holder *holder) {
  const struct slicer *slicer = holder->slicer;
  const struct stage *stage = &slicer->stages[holder->stage];
  const struct owners *owners = &slicer->owners;
  for (int i = 0; i < stage->n_items; i++) {
    int until = event_until(holder, i);
    for (int u = 0; u < owners->staged->program->steps[stage->items[i].step].n_uses; u++) {
      int content = contents_of(&owners->contents, stage->items[i].step, u);
      if (content >= 0)
        last_note(&holder->last[content], until);
    }
  }
  for (int c = 0; c < owners->contents.n; c++) {
    if (goes_up(slicer, c, holder->stage))
      last_note(&holder->last[c], stage->n_forward + 1);
    if (holder->stage > 0 && goes_down(slicer, c, holder->stage - 1))
      last_note(&holder->last[c], last_event(stage));
  }
}

/* The content begins to be held, by a root of its own unless there is one that it may write over. */
static void root_begin(struct holder *holder, int content, int event, int root) {
  const struct content *of = &holder->slicer->owners.contents.list[content];
  if (root < 0) {
    root = of->over < 0 ? of->root : holder->n_roots++;
    holder->roots[root] = (struct stage_root){of->root, event, event};
  }
  last_note(&holder->roots[root].last, holder->last[content]);
  *root_of(holder->slicer, holder->stage, content) = root;
}

/* The root of what the step writes the content over, if the stage needs that no longer; -1. */
static int root_to_write_over(const struct holder *holder, int content, int event) {
  int over = holder->slicer->owners.contents.list[content].over;
  if (over < 0 || holder->last[over] > event)
    return -1;
  return *root_of(holder->slicer, holder->stage, over);
}

/* What arrives, in the order of contents. */
static void roots_arrive(struct holder *holder, bool is_upwards) {
  const struct slicer *slicer = holder->slicer;
  const struct stage *stage = &slicer->stages[holder->stage];
  for (int c = 0; c < slicer->owners.contents.n; c++) {
    if (is_upwards && holder->stage > 0 && goes_up(slicer, c, holder->stage - 1))
      root_begin(holder, c, 0, -1);
    if (!is_upwards && holder->stage + 1 < slicer->n_stages && goes_down(slicer, c, holder->stage))
      root_begin(holder, c, stage->n_forward + 2, -1);
  }
}

static void root_use(struct holder *holder, int item, int use) {
  const struct slicer *slicer = holder->slicer;
  const struct stage *stage = &slicer->stages[holder->stage];
  int step = stage->items[item].step, content = contents_of(&slicer->owners.contents, step, use);
  int event = event_of_item(stage, item);
  if (content < 0) {
    int root = slicer->owners.staged->program->steps[step].uses[use].root;
    holder->roots[root] = (struct stage_root){root, 0, last_event(stage)};
  } else if (*root_of(slicer, holder->stage, content) < 0) {
    bool is_input = slicer->owners.contents.list[content].producer < 0;
    root_begin(holder, content, is_input ? 0 : event, root_to_write_over(holder, content, event));
  }
}

static void roots_use(struct holder *holder, int begin, int end) {
  const struct slicer *slicer = holder->slicer;
  const struct stage *stage = &slicer->stages[holder->stage];
  for (int i = begin; i < end; i++)
    for (int u = 0; u < slicer->owners.staged->program->steps[stage->items[i].step].n_uses; u++)
      root_use(holder, i, u);
}

static void find_roots(struct slicer *slicer, int s, struct arena *arena) {
  const struct replay_program *program = slicer->owners.staged->program;
  struct stage *stage = &slicer->stages[s];
  size_t n_contents = (size_t)slicer->owners.contents.n;
  struct holder holder = {.slicer = slicer, .stage = s, .n_roots = program->n_roots};
  holder.roots = arena_new(arena, ((size_t)program->n_roots + n_contents + 1) * sizeof *holder.roots);
  holder.last = mem_new((n_contents + 1) * sizeof *holder.last);
  memset(holder.last, -1, n_contents * sizeof *holder.last);
  for (int r = 0; r < program->n_roots; r++)
    holder.roots[r] = (struct stage_root){r, -1, -1};
  find_last_events(&holder);
  roots_arrive(&holder, true);
  roots_use(&holder, 0, stage->n_forward);
  roots_arrive(&holder, false);
  roots_use(&holder, stage->n_forward, stage->n_items);
  stage->roots = holder.roots;
  stage->n_roots = holder.n_roots;
  free(holder.last);
}

static void bind_items(struct slicer *slicer, int s, struct stage_item *items, struct arena *arena) {
  const struct replay_program *program = slicer->owners.staged->program;
  for (int i = 0; i < slicer->stages[s].n_items; i++) {
    const struct replay_step *step = &program->steps[items[i].step];
    int *roots = arena_new(arena, ((size_t)step->n_uses + 1) * sizeof *roots);
    for (int u = 0; u < step->n_uses; u++) {
      int content = contents_of(&slicer->owners.contents, items[i].step, u);
      roots[u] = content >= 0 ? *root_of(slicer, s, content) : step->uses[u].root;
    }
    items[i].roots = roots;
  }
}

/* The contents that cross the edge above the stage in one direction. */
static int list_crossings(const struct slicer *slicer, int s, struct arena *arena, bool is_upwards,
                          const struct stage_crossing **out) {
  const struct owners *owners = &slicer->owners;
  struct stage_crossing *list = arena_new(arena, ((size_t)owners->contents.n + 1) * sizeof *list);
  int n = 0;
  for (int c = 0; c < owners->contents.n; c++) {
    int origin = owners->contents.list[c].root;
    if (is_upwards ? goes_up(slicer, c, s) : goes_down(slicer, c, s))
      list[n++] = (struct stage_crossing){.origin = origin,
                                          .lower = *root_of(slicer, s, c),
                                          .upper = *root_of(slicer, s + 1, c),
                                          .size_bytes = owners->staged->program->roots[origin].size_bytes};
  }
  *out = list;
  return n;
}

static void slicer_init(struct slicer *slicer, const struct staged_program *staged, const int *cuts,
                        int n_cuts) {
  bool *is_valid = mem_new((size_t)staged->n_nodes + 1);
  stages_find_places(staged, is_valid);
  *slicer = (struct slicer){.n_stages = n_cuts + 1};
  owners_find(staged, &slicer->memory, &slicer->owners);
  size_t n_stages = (size_t)slicer->n_stages, n_contents = (size_t)slicer->owners.contents.n;
  slicer->stage_of = arena_new(&slicer->memory, ((size_t)staged->n_nodes + 1) * sizeof(int));
  for (int k = 0; k < n_cuts; k++) {
    CHECK(cuts[k] > (k ? cuts[k - 1] : 0) && cuts[k] < staged->n_nodes && is_valid[cuts[k]]);
    for (int n = cuts[k]; n < staged->n_nodes; n++)
      slicer->stage_of[n] = k + 1;
  }
  slicer->parts =
      arena_new(&slicer->memory, n_stages * ((size_t)staged->program->n_steps + 1) * sizeof(enum part));
  slicer->root_of = arena_new(&slicer->memory, n_stages * (n_contents + 1) * sizeof(int));
  memset(slicer->root_of, -1, n_stages * (n_contents + 1) * sizeof(int));
  slicer->extents = arena_new(&slicer->memory, (n_contents + 1) * sizeof *slicer->extents);
  for (size_t c = 0; c < n_contents; c++)
    slicer->extents[c] = (struct extent){INT_MAX, -1};
  free(is_valid);
}

struct stage_slices *stage_slices_new(const struct staged_program *staged, const int *cuts, int n_cuts) {
  struct stage_slices *slices = mem_new(sizeof *slices);
  struct slicer slicer;
  slicer_init(&slicer, staged, cuts, n_cuts);
  struct stage_edge *edges = arena_new(&slices->memory, (size_t)slicer.n_stages * sizeof *edges);
  slicer.stages = arena_new(&slices->memory, (size_t)slicer.n_stages * sizeof *slicer.stages);
  for (int s = 0; s < slicer.n_stages; s++) {
    mark_steps(&slicer, s);
    defer_steps(&slicer, s);
    find_extents(&slicer, s);
  }
  for (int s = 0; s < slicer.n_stages; s++) {
    struct stage_item *items = list_items(&slicer, &slices->memory, s);
    find_roots(&slicer, s, &slices->memory);
    bind_items(&slicer, s, items, &slices->memory);
  }
  for (int s = 0; s + 1 < slicer.n_stages; s++) {
    edges[s].n_forward = list_crossings(&slicer, s, &slices->memory, true, &edges[s].forward);
    edges[s].n_backward = list_crossings(&slicer, s, &slices->memory, false, &edges[s].backward);
  }
  slices->stages = slicer.stages;
  slices->n_stages = slicer.n_stages;
  slices->edges = edges;
  arena_fini(&slicer.memory);
  return slices;
}

void stage_slices_free(struct stage_slices *slices) {
  if (!slices)
    return;
  arena_fini(&slices->memory);
  free(slices);
}
