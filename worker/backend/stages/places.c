/* Where a program can be cut, and what cuts there would take.

   Any set of valid cuts is valid. Number the parts in the order in which they follow each other: forward 0,
   ..., forward n, backward n, ..., backward 0. A set of cuts is valid if (1) each step with nodes lies in one
   stage, (2) steps that stay together do, and (3) whoever reads what a step makes, itself or by steps of
   nobody, runs in the same part or a later one. A cut of the set that violates (1) or (2) violates it alone.
   As for (3): a forward step never reads what a backward step makes, since the program runs it first, and all
   forward parts come before all backward ones. So a violation is between forward steps of stages a > b, or
   between backward steps of stages a < b, where the step of stage a makes what that of stage b reads. The
   stages differ, so the set has a cut that separates them; that cut alone separates them likewise, and is not
   valid. Steps of nobody have no part of their own in this: who reads what by them does not depend on the
   cuts. */
#include "worker/backend/stages/stages.h"

#include <limits.h>
#include <stdlib.h>

#include "worker/backend/stages/owners.h"

/* Nodes between which something is read: of all steps with nodes that make it, directly or by steps of
 * nobody. */
struct reach {
  int highest; /* the highest first node of forward makers; -1: none */
  int lowest;  /* the lowest last node of backward makers; INT_MAX: none */
};

static const struct reach NOWHERE = {-1, INT_MAX};

static void reach_join(struct reach *reach, const struct reach *other) {
  reach->highest = other->highest > reach->highest ? other->highest : reach->highest;
  reach->lowest = other->lowest < reach->lowest ? other->lowest : reach->lowest;
}

static struct reach *reaches_new(int n) {
  struct reach *reaches = mem_new(((size_t)n + 1) * sizeof *reaches);
  for (int i = 0; i < n; i++)
    reaches[i] = NOWHERE;
  return reaches;
}

/* Of all that the step reads, or of all that it writes. */
static struct reach reach_of_uses(const struct owners *owners, int s, bool is_written,
                                  const struct reach *reaches) {
  const struct replay_step *step = &owners->staged->program->steps[s];
  struct reach reach = NOWHERE;
  for (int u = 0; u < step->n_uses; u++) {
    int content = contents_of(&owners->contents, s, u);
    if (content >= 0 && step->uses[u].is_written == is_written)
      reach_join(&reach, &reaches[content]);
  }
  return reach;
}

static void reach_to_uses(const struct owners *owners, int s, bool is_written, const struct reach *reach,
                          struct reach *reaches) {
  const struct replay_step *step = &owners->staged->program->steps[s];
  for (int u = 0; u < step->n_uses; u++) {
    int content = contents_of(&owners->contents, s, u);
    if (content >= 0 && step->uses[u].is_written == is_written)
      reach_join(&reaches[content], reach);
  }
}

/* Adds to the places from `from` to `to`, whose sums are made at the end; none if there are none. */
static void places_add(size_t *sums, int from, int to, size_t amount) {
  if (from > to)
    return;
  sums[from] += amount;
  sums[to + 1] -= amount; /* wraps; the sums do not */
}

/* Forbids cuts inside the step, and those below which it would read what is made above, or the other way
 * round. */
static void step_forbid(const struct owners *owners, int s, const struct reach *read, size_t *forbidden) {
  const struct stage_span *span = &owners->spans[s];
  places_add(forbidden, span->first + 1, span->last, 1);
  if (s < owners->staged->program->n_forward)
    places_add(forbidden, span->last + 1, read->highest, 1);
  else if (read->lowest < INT_MAX)
    places_add(forbidden, read->lowest + 1, span->first, 1);
}

static void ties_forbid(const struct owners *owners, size_t *forbidden) {
  for (int c = 0; c < owners->contents.n; c++)
    places_add(forbidden, owners->of_contents[c].first + 1, owners->of_contents[c].last, 1);
  for (int r = 0; r < owners->staged->program->n_roots; r++)
    places_add(forbidden, owners->of_roots[r].first + 1, owners->of_roots[r].last, 1);
}

void stages_find_places(const struct staged_program *staged, bool *is_valid) {
  struct arena memory = {0};
  struct owners owners;
  size_t *forbidden = mem_new(((size_t)staged->n_nodes + 2) * sizeof *forbidden), now = 0;
  owners_find(staged, &memory, &owners);
  struct reach *made = reaches_new(owners.contents.n);
  for (int s = 0; s < staged->program->n_steps; s++) {
    struct reach reach = reach_of_uses(&owners, s, false, made);
    if (owners_has(&owners, s)) {
      step_forbid(&owners, s, &reach, forbidden);
      bool is_forward = s < staged->program->n_forward;
      reach.highest = is_forward ? owners.spans[s].first : -1;
      reach.lowest = is_forward ? INT_MAX : owners.spans[s].last;
    }
    reach_to_uses(&owners, s, true, &reach, made);
  }
  ties_forbid(&owners, forbidden);
  for (int p = 0; p <= staged->n_nodes; p++) {
    now += forbidden[p];
    is_valid[p] = p > 0 && p < staged->n_nodes && now == 0;
  }
  free(made);
  free(forbidden);
  arena_fini(&memory);
}

int stages_check_cuts(const struct staged_program *staged, const struct graph *graph, const int *cuts,
                      int n_cuts, struct err *err) {
  bool *is_valid = mem_new((size_t)staged->n_nodes + 1);
  int code = ERR_OK;
  stages_find_places(staged, is_valid);
  for (int c = 0; c < n_cuts && !code; c++) {
    bool is_there = cuts[c] > (c ? cuts[c - 1] : 0) && cuts[c] < staged->n_nodes;
    if (!is_there || !is_valid[cuts[c]])
      code = err_set(err, ERR_INVALID, "the graph cannot be cut into stages before its node %d ('%s')",
                     cuts[c], cuts[c] >= 0 && cuts[c] < graph->n_nodes ? graph->nodes[cuts[c]]->name : "");
  }
  free(is_valid);
  return code;
}

/* Who reads what, from the end of the program. */
struct readers {
  const struct owners *owners;
  struct reach *of; /* [contents] highest: the highest first node of any reader; lowest: the lowest last node
                       of a reader of the backward part */
  int *node_of_content, *node_of_root; /* of whoever reads it first; -1 */
  bool *is_saved; /* [contents] the backward part reads it, itself or by steps of nobody */
};

/* Returns the node whose stage runs the step, the first one that does if it is nobody's; -1: none. */
static int step_read(struct readers *readers, int s) {
  const struct owners *owners = readers->owners;
  const struct replay_step *step = &owners->staged->program->steps[s];
  bool is_backward = s >= owners->staged->program->n_forward, is_saved = is_backward;
  struct reach reach = {owners->spans[s].first, is_backward ? owners->spans[s].last : INT_MAX};
  int node = owners->spans[s].first;
  if (!owners_has(owners, s)) {
    reach = reach_of_uses(owners, s, true, readers->of);
    for (int u = 0; u < step->n_uses; u++) {
      int content = contents_of(&owners->contents, s, u);
      int reader =
          content >= 0 ? readers->node_of_content[content] : readers->node_of_root[step->uses[u].root];
      if (step->uses[u].is_written && reader >= 0)
        node = reader;
      is_saved |= step->uses[u].is_written && content >= 0 && readers->is_saved[content];
    }
  }
  reach_to_uses(owners, s, false, &reach, readers->of);
  for (int u = 0; u < step->n_uses; u++) {
    int content = contents_of(&owners->contents, s, u);
    if (step->uses[u].is_written || node < 0)
      continue;
    *(content >= 0 ? &readers->node_of_content[content] : &readers->node_of_root[step->uses[u].root]) = node;
    if (content >= 0)
      readers->is_saved[content] |= is_saved;
  }
  return node;
}

/* What of the content crosses where, and where it is saved. node: of its maker. */
static void content_measure(const struct readers *readers, int c, int node, struct stage_measures *out) {
  const struct owners *owners = readers->owners;
  const struct reach *reach = &readers->of[c];
  int maker = owners->maker[c];
  size_t size_bytes = owners->staged->program->roots[owners->contents.list[c].root].size_bytes;
  bool is_forward = maker >= 0 && maker < owners->staged->program->n_forward;
  if (is_forward && readers->is_saved[c] && node >= 0)
    out->saved_bytes[node + 1] += size_bytes;
  if (!owners_crosses(owners, c))
    return;
  if (is_forward)
    places_add(out->forward_bytes, owners->spans[maker].last + 1, reach->highest, size_bytes);
  if (reach->lowest < INT_MAX)
    places_add(out->backward_bytes, reach->lowest + 1, owners->spans[maker].first, size_bytes);
}

/* From what begins or ends at each place to what there is. */
static void measures_sum(struct stage_measures *measures, int n_nodes) {
  for (int p = 1; p <= n_nodes; p++) {
    measures->cost[p] += measures->cost[p - 1];
    measures->saved_bytes[p] += measures->saved_bytes[p - 1];
    measures->forward_bytes[p] += measures->forward_bytes[p - 1];
    measures->backward_bytes[p] += measures->backward_bytes[p - 1];
  }
}

void stages_measure(const struct staged_program *staged, struct stage_measures *out) {
  const struct replay_program *program = staged->program;
  size_t n = (size_t)staged->n_nodes + 2;
  struct arena memory = {0};
  struct owners owners;
  *out = (struct stage_measures){.memory = {0}};
  out->cost = arena_new(&out->memory, n * sizeof *out->cost);
  out->saved_bytes = arena_new(&out->memory, n * sizeof *out->saved_bytes);
  out->forward_bytes = arena_new(&out->memory, n * sizeof *out->forward_bytes);
  out->backward_bytes = arena_new(&out->memory, n * sizeof *out->backward_bytes);
  owners_find(staged, &memory, &owners);
  struct readers readers = {.owners = &owners, .of = reaches_new(owners.contents.n)};
  readers.is_saved = arena_new(&memory, (size_t)owners.contents.n + 1);
  readers.node_of_content = arena_new(&memory, ((size_t)owners.contents.n + 1) * sizeof(int));
  readers.node_of_root = arena_new(&memory, ((size_t)program->n_roots + 1) * sizeof(int));
  for (int c = 0; c < owners.contents.n; c++)
    readers.node_of_content[c] = -1;
  for (int r = 0; r < program->n_roots; r++)
    readers.node_of_root[r] = -1;
  int *nodes = arena_new(&memory, ((size_t)program->n_steps + 1) * sizeof *nodes);
  for (int s = program->n_steps - 1; s >= 0; s--) {
    nodes[s] = step_read(&readers, s);
    if (nodes[s] >= 0)
      out->cost[nodes[s] + 1] += program->steps[s].cost;
  }
  for (int c = 0; c < owners.contents.n; c++)
    content_measure(&readers, c, owners.maker[c] >= 0 ? nodes[owners.maker[c]] : -1, out);
  measures_sum(out, staged->n_nodes);
  free(readers.of);
  arena_fini(&memory);
}

void stage_measures_fini(struct stage_measures *measures) {
  arena_fini(&measures->memory);
}
