/* The order of steps that follows from which contents are kept. */
#include "worker/backend/replay/order.h"

#include <stdlib.h>
#include <string.h>

#include "worker/backend/replay/split.h"

void order_init(struct order *order, const struct contents *contents, int n_contexts, struct arena *arena) {
  const struct replay_program *program = contents->program;
  size_t steps = (size_t)program->n_steps + 1, items = steps + (size_t)program->n_forward;
  size_t made = 2 * (size_t)contents->n + 1;
  *order = (struct order){.contents = contents, .n_contexts = n_contexts};
  order->items = arena_new(arena, items * sizeof *order->items);
  order->item_of = arena_new(arena, steps * sizeof *order->item_of);
  order->root_of = arena_new(arena, made * sizeof *order->root_of);
  order->roots = arena_new(arena, ((size_t)program->n_roots + made) * sizeof *order->roots);
  order->is_made = arena_new(arena, steps * sizeof *order->is_made);
  order->last_item = arena_new(arena, made * sizeof *order->last_item);
  order->wanted = arena_new(arena, steps * sizeof *order->wanted);
  order->begun = arena_new(arena, items * sizeof *order->begun);
  order->ended = arena_new(arena, items * sizeof *order->ended);
}

static void item_add(struct order *order, int step, bool is_replay) {
  if (!is_replay)
    order->item_of[step] = order->n_items;
  order->items[order->n_items++] = (struct order_item){step, is_replay};
  order->n_replays += is_replay;
  order->replay_cost += is_replay ? order->contents->program->steps[step].cost : 0;
}

/* Appends the steps that make what the step reads, as far as that is not kept nor made again. */
static void step_want(struct order *order, int step, int *n_wanted) {
  const struct contents *contents = order->contents;
  const struct replay_step *reader = &contents->program->steps[step];
  for (int u = 0; u < reader->n_uses; u++) {
    int content = contents_of(contents, step, u);
    if (content < 0 || reader->uses[u].is_written || order->is_kept[content])
      continue;
    int producer = contents->list[content].producer;
    if (order->is_made[producer])
      continue;
    order->is_made[producer] = true;
    order->wanted[(*n_wanted)++] = producer;
  }
}

static int compare_steps(const void *a, const void *b) {
  int x = *(const int *)a, y = *(const int *)b;
  return (x > y) - (x < y);
}

static void list_items(struct order *order) {
  const struct replay_program *program = order->contents->program;
  order->n_items = order->n_replays = 0;
  order->replay_cost = 0;
  memset(order->is_made, 0, (size_t)program->n_steps * sizeof *order->is_made);
  for (int s = 0; s < program->n_forward; s++)
    item_add(order, s, false);
  for (int s = program->n_forward; s < program->n_steps; s++) {
    int n_wanted = 0;
    step_want(order, s, &n_wanted);
    for (int w = 0; w < n_wanted; w++)
      step_want(order, order->wanted[w], &n_wanted);
    if (n_wanted > 1)
      qsort(order->wanted, (size_t)n_wanted, sizeof *order->wanted, compare_steps);
    for (int w = 0; w < n_wanted; w++)
      item_add(order, order->wanted[w], true);
    item_add(order, s, false);
  }
}

/* Which making of its content an argument of an item is: an index of root_of; -1: its root is not planned. */
static int made_of(const struct order *order, const struct order_item *item, int use) {
  const struct contents *contents = order->contents;
  const struct replay_program *program = contents->program;
  int content = contents_of(contents, item->step, use);
  bool is_written = program->steps[item->step].uses[use].is_written;
  bool is_late = item->is_replay || item->step >= program->n_forward;
  if (content < 0)
    return -1;
  if (is_written ? item->is_replay : is_late && !order->is_kept[content])
    return contents->n + content;
  return content;
}

static void find_last_items(struct order *order) {
  for (int i = 0; i < order->n_items; i++)
    for (int u = 0; u < order->contents->program->steps[order->items[i].step].n_uses; u++) {
      int made = made_of(order, &order->items[i], u);
      if (made >= 0)
        order->last_item[made] = i;
    }
}

/* The root in which item `at` finds what `content` is written over, if nothing reads that any more; else -1.
 */
static int root_to_write_over(const struct order *order, int at, int content) {
  const struct order_item *item = &order->items[at];
  int over = order->contents->list[content].over;
  for (int u = 0; u < order->contents->program->steps[item->step].n_uses && over >= 0; u++) {
    int made = made_of(order, item, u);
    if (contents_of(order->contents, item->step, u) == over && order->last_item[made] == at)
      return order->root_of[made];
  }
  return -1;
}

static int root_begin(struct order *order, int at, int made) {
  int n = order->contents->n;
  const struct content *content = &order->contents->list[made % n];
  int root = root_to_write_over(order, at, made % n);
  if (root >= 0)
    return root;
  root = made < n && content->over < 0 ? content->root : order->n_roots++;
  order->roots[root] = (struct order_root){content->root, content->producer < 0 ? 0 : at, at};
  return root;
}

static void find_roots(struct order *order) {
  const struct replay_program *program = order->contents->program;
  order->n_roots = program->n_roots;
  for (int r = 0; r < program->n_roots; r++)
    order->roots[r] = (struct order_root){r, -1, -1};
  memset(order->root_of, -1, 2 * (size_t)order->contents->n * sizeof *order->root_of);
  for (int i = 0; i < order->n_items; i++)
    for (int u = 0; u < program->steps[order->items[i].step].n_uses; u++) {
      int made = made_of(order, &order->items[i], u);
      if (made < 0)
        continue;
      if (order->root_of[made] < 0)
        order->root_of[made] = root_begin(order, i, made);
      order->roots[order->root_of[made]].last = i;
    }
}

/* What a step reads on while later ones run. */
static void roots_extend(struct order *order) {
  const struct replay_program *program = order->contents->program;
  for (int s = 0; s < program->n_steps; s++) {
    const struct replay_step *step = &program->steps[s];
    for (int u = 0; u < step->n_uses && step->until > s; u++) {
      int made = made_of(order, &order->items[order->item_of[s]], u), last = order->item_of[step->until];
      if (made >= 0 && order->roots[order->root_of[made]].last < last)
        order->roots[order->root_of[made]].last = last;
    }
  }
}

static size_t root_bytes(const struct order *order, const struct order_root *root) {
  enum { ALIGN = 64 };
  return (order->contents->program->roots[root->origin].size_bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static struct split split_of(const struct order *order) {
  return (struct split){.n_steps = order->n_items,
                        .n_forward = order->contents->program->n_forward,
                        .n_contexts = order->n_contexts};
}

static void find_peak(struct order *order) {
  struct split split = split_of(order);
  size_t now = 0;
  memset(order->begun, 0, (size_t)order->n_items * sizeof *order->begun);
  memset(order->ended, 0, (size_t)order->n_items * sizeof *order->ended);
  order->peak_bytes = 0;
  for (int r = 0; r < order->n_roots; r++) {
    const struct order_root *root = &order->roots[r];
    if (!order->contents->program->roots[root->origin].is_planned) {
      now += root_bytes(order, root);
    } else if (root->first >= 0 &&
               split_is_saved(&split, &(struct memory_span){.first = root->first, .last = root->last})) {
      now += root_bytes(order, root) * (size_t)order->n_contexts;
    } else if (root->first >= 0) {
      order->begun[root->first] += root_bytes(order, root);
      order->ended[root->last] += root_bytes(order, root);
    }
  }
  for (int i = 0; i < order->n_items; i++) {
    now += order->begun[i];
    order->peak_bytes = now > order->peak_bytes ? now : order->peak_bytes;
    now -= order->ended[i];
  }
}

void order_make(struct order *order, const bool *is_kept) {
  order->is_kept = is_kept;
  list_items(order);
  find_last_items(order);
  find_roots(order);
  roots_extend(order);
  find_peak(order);
}

int order_root(const struct order *order, const struct order_item *item, int use) {
  int made = made_of(order, item, use);
  return made < 0 ? order->contents->program->steps[item->step].uses[use].root : order->root_of[made];
}

size_t order_spans(const struct order *order, struct memory_span *spans) {
  struct memory_span *used = mem_new(((size_t)order->n_roots + 1) * sizeof *used);
  struct split split = split_of(order);
  int n_used = 0;
  for (int r = 0; r < order->n_roots; r++) {
    const struct order_root *root = &order->roots[r];
    const struct replay_root *origin = &order->contents->program->roots[root->origin];
    spans[r] = (struct memory_span){.size_bytes = origin->size_bytes, .last = order->n_items};
    if (origin->is_planned && root->first < 0)
      spans[r].size_bytes = 0;
    else if (origin->is_planned)
      spans[r].first = root->first, spans[r].last = root->last;
    if (spans[r].size_bytes > 0)
      used[n_used++] = spans[r];
  }
  size_t size_bytes = split_plan(&split, used, n_used);
  free(used);
  return size_bytes;
}
