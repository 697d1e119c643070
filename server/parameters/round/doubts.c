/* Doubts of a round. */
#include "server/parameters/round/doubts.h"

#include <stdlib.h>

#include "common/base/hash.h"
#include "common/base/memory.h"

struct tree_node accepted_node(const struct accepted *part) {
  return (struct tree_node){part->first, part->level};
}

void judgement_fini(struct judgement *judgement) {
  free(judgement->changed);
  free(judgement->computed_by);
}

void doubts_fini(struct doubts *doubts) {
  free(doubts->list);
  *doubts = (struct doubts){0};
}

void doubts_clear(struct doubts *doubts) {
  doubts->n = 0;
}

void doubts_add(struct doubts *doubts, struct tree_node sum, bool is_second, const struct accepted *parts,
                int n) {
  for (int i = 0; i < n; i++) {
    array_reserve((void **)&doubts->list, &doubts->capacity, doubts->n, sizeof *doubts->list);
    doubts->list[doubts->n++] = (struct doubt){.part = parts[i], .sum = sum, .is_second = is_second};
  }
}

bool doubts_keep_out(const struct doubts *doubts, struct tree_node node) {
  for (int i = 0; i < doubts->n; i++) {
    struct tree_node doubted = accepted_node(&doubts->list[i].part);
    if (tree_covers(node, doubted) && !tree_is_same(node, doubted))
      return true;
  }
  return false;
}

void doubts_compare(struct doubts *doubts, struct tree_node node, const float *sum, uint32_t elems,
                    const struct accepted *part) {
  for (int i = 0; i < doubts->n; i++) {
    struct doubt *doubt = &doubts->list[i];
    if (!tree_is_same(accepted_node(&doubt->part), node))
      continue;
    doubt->has_changed = hash_bytes(sum, elems * sizeof *sum) != doubt->part.hash;
    doubt->is_repeated =
        !doubt->has_changed && doubt->part.worker == part->worker && tree_is_same(accepted_node(part), node);
  }
}

static void judgement_add_sender(struct judgement *judgement, uint32_t worker) {
  for (int i = 0; i < judgement->n_computed_by; i++)
    if (judgement->computed_by[i] == worker)
      return;
  judgement->computed_by[judgement->n_computed_by++] = worker;
}

/* Whether nothing can be said of the doubts of this sum, which overflows again. */
static bool doubts_are_unsettled(const struct doubts *doubts, struct tree_node sum) {
  const struct doubt *first = NULL;
  bool is_repeated = false, has_others = false;
  for (int i = 0; i < doubts->n; i++) {
    const struct doubt *doubt = &doubts->list[i];
    if (!tree_is_same(doubt->sum, sum))
      continue;
    if (doubt->has_changed || doubt->is_second)
      return false;
    first = first ? first : doubt;
    has_others |= doubt->part.worker != first->part.worker;
    is_repeated |= doubt->is_repeated;
  }
  return has_others && is_repeated;
}

struct judgement doubts_judge(struct doubts *doubts, struct tree_node sum, bool overflows,
                              const struct accepted *parts, int n) {
  struct judgement judgement = {.overflows = overflows};
  int kept = 0;
  if (doubts->n == 0)
    return judgement;
  if (overflows && doubts_are_unsettled(doubts, sum))
    judgement.outcome = JUDGEMENT_UNSETTLED;
  judgement.changed = mem_new((size_t)doubts->n * sizeof *judgement.changed);
  judgement.computed_by = mem_new((size_t)n * sizeof *judgement.computed_by);
  for (int i = 0; i < doubts->n; i++) {
    const struct doubt *doubt = &doubts->list[i];
    if (!tree_is_same(doubt->sum, sum)) {
      doubts->list[kept++] = *doubt;
      continue;
    }
    if (judgement.outcome == JUDGEMENT_NONE)
      judgement.outcome = JUDGEMENT_SETTLED;
    if (doubt->has_changed)
      judgement.changed[judgement.n_changed++] = doubt->part;
  }
  doubts->n = kept;
  for (int i = 0; i < n; i++)
    judgement_add_sender(&judgement, parts[i].worker);
  return judgement;
}
