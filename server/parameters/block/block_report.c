/* What a block reports of its round: parts whose sum overflowed, and what is missing. */
#include <stdlib.h>

#include "common/base/log.h"
#include "common/base/memory.h"
#include "server/parameters/block/block.h"
#include "server/parameters/run/run.h"

/* Parts as a message lists them. */
struct part_list {
  Weir__PushedPart *parts;
  Weir__PushedPart **items; /* [n], of parts */
};

static struct part_list part_list_new(const struct accepted *parts, int n) {
  struct part_list list = {.parts = mem_new((size_t)n * sizeof *list.parts),
                           .items = mem_new((size_t)n * sizeof *list.items)};
  for (int i = 0; i < n; i++) {
    list.items[i] = &list.parts[i];
    weir__pushed_part__init(list.items[i]);
    list.items[i]->first = parts[i].first;
    list.items[i]->level = parts[i].level;
    list.items[i]->worker = parts[i].worker;
    list.items[i]->view = parts[i].view;
  }
  return list;
}

static void part_list_free(struct part_list *list) {
  free(list->parts);
  free(list->items);
}

static void block_on_doubted(void *user, const struct accepted *parts, int n) {
  const struct block_round *round = user;
  const struct hosted_block *block = round->block;
  Weir__Doubted doubted = WEIR__DOUBTED__INIT;
  struct part_list list = part_list_new(parts, n);
  log_event(LOG_DEBUG, "parameters", "parts_doubted", "run=%s step=%llu block=%u parts=%d", block->run->id,
            (unsigned long long)round->step, block->index, n);
  doubted.step = round->step;
  doubted.block = block->index;
  doubted.n_parts = (size_t)n;
  doubted.parts = list.items;
  report_log_add_doubted(&block->run->log, &doubted);
  part_list_free(&list);
}

static void block_on_judged(void *user, const struct judgement *judgement) {
  const struct block_round *round = user;
  const struct hosted_block *block = round->block;
  Weir__Judged judged = WEIR__JUDGED__INIT;
  struct part_list list = part_list_new(judgement->changed, judgement->n_changed);
  log_event(LOG_DEBUG, "parameters", "parts_judged", "run=%s step=%llu block=%u changed=%d overflows=%d",
            block->run->id, (unsigned long long)round->step, block->index, judgement->n_changed,
            judgement->overflows);
  judged.step = round->step;
  judged.block = block->index;
  judged.n_changed = (size_t)judgement->n_changed;
  judged.changed = list.items;
  judged.n_computed_by = (size_t)judgement->n_computed_by;
  judged.computed_by = judgement->computed_by;
  judged.overflows = judgement->overflows;
  report_log_add_judged(&block->run->log, &judged);
  part_list_free(&list);
}

struct round_listener hosted_block_listener(struct block_round *round) {
  return (struct round_listener){.on_doubted = block_on_doubted, .on_judged = block_on_judged, .user = round};
}

void hosted_block_missing(const struct hosted_block *block, uint64_t *microbatches, uint64_t *chunks) {
  /* The last version is only evaluated, and so is the one at which the run is held. */
  bool has_step = block->version < block->run->plan.steps && !hosted_block_is_held(block);
  const struct statistics *statistics =
      block->kind == BLOCK_STATISTICS ? hosted_block_statistics(block, block->version) : NULL;
  if (has_step && !statistics && !block->rounds)
    hosted_block_unmarked(block, microbatches);
  else if (has_step && !statistics)
    round_missing(&hosted_block_round(block, block->version)->parts, microbatches);
  if (has_step && statistics)
    statistics_missing(statistics, microbatches);
  if (hosted_block_evaluates(block) && !statistics->is_evaluated)
    statistics_missing_evaluation(statistics, chunks);
}
