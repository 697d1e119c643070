/* What is kept beyond what has to be. */
#include "worker/backend/replay/keep.h"

#include <stdlib.h>

/* Each try makes the whole order anew. */
enum { TRIES = 160, TRIES_OF_LONG = 40, STEPS_LONG = 4000 };

struct candidate {
  int content;
  double cost_per_byte; /* of making it again from what the backward part reads */
};

struct keeper {
  struct order *order;
  bool *is_kept;
  size_t most_bytes;
  struct candidate *list;
  int n, tries;
};

static int compare_candidates(const void *a, const void *b) {
  const struct candidate *x = a, *y = b;
  if (x->cost_per_byte != y->cost_per_byte)
    return x->cost_per_byte < y->cost_per_byte ? 1 : -1;
  return (x->content > y->content) - (x->content < y->content);
}

/* What only replays read is made again with what is made of it. */
static double cost_of(const struct contents *contents, int content, const double *costs) {
  int producer = contents->list[content].producer;
  const struct replay_step *step = &contents->program->steps[producer];
  double cost = step->cost;
  for (int u = 0; u < step->n_uses; u++) {
    int read = contents_of(contents, producer, u);
    if (read >= 0 && !step->uses[u].is_written && !contents->list[read].is_saved)
      cost += costs[read];
  }
  return cost;
}

static void list_candidates(struct keeper *keeper) {
  const struct contents *contents = keeper->order->contents;
  double *costs = mem_new(((size_t)contents->n + 1) * sizeof *costs);
  for (int c = 0; c < contents->n; c++) {
    const struct content *content = &contents->list[c];
    if (content->is_fixed || content->producer >= contents->program->n_forward)
      continue;
    costs[c] = cost_of(contents, c, costs);
    if (content->is_saved && !keeper->is_kept[c] && keeper->order->is_made[content->producer])
      keeper->list[keeper->n++] =
          (struct candidate){c, costs[c] / (double)(content->size_bytes ? content->size_bytes : 1)};
  }
  free(costs);
  if (keeper->n > 1)
    qsort(keeper->list, (size_t)keeper->n, sizeof *keeper->list, compare_candidates);
}

static bool range_try(struct keeper *keeper, int begin, int end) {
  for (int i = begin; i < end; i++)
    keeper->is_kept[keeper->list[i].content] = true;
  order_make(keeper->order, keeper->is_kept);
  if (keeper->order->peak_bytes <= keeper->most_bytes)
    return true;
  for (int i = begin; i < end; i++)
    keeper->is_kept[keeper->list[i].content] = false;
  return false;
}

static void range_keep(struct keeper *keeper, int begin, int end) {
  if (begin == end || keeper->tries == 0)
    return;
  keeper->tries--;
  if (range_try(keeper, begin, end) || end - begin == 1)
    return;
  range_keep(keeper, begin, (begin + end) / 2);
  range_keep(keeper, (begin + end) / 2, end);
}

void keep_more(struct order *order, bool *is_kept, size_t most_bytes) {
  bool is_long = order->contents->program->n_steps > STEPS_LONG;
  struct keeper keeper = {
      .order = order, .is_kept = is_kept, .most_bytes = most_bytes, .tries = is_long ? TRIES_OF_LONG : TRIES};
  keeper.list = mem_new(((size_t)order->contents->n + 1) * sizeof *keeper.list);
  list_candidates(&keeper);
  range_keep(&keeper, 0, keeper.n);
  order_make(order, is_kept);
  free(keeper.list);
}
