/* Plans of replay: everything kept, as little kept as can be, or something between. */
#include "worker/backend/replay/replay.h"

#include <stdlib.h>
#include <string.h>

#include "worker/backend/replay/cuts.h"
#include "worker/backend/replay/keep.h"
#include "worker/backend/replay/order.h"

/* Ways to cut that are tried: so many times what the smallest is estimated to take. */
static const double widths[] = {1.0, 1.02, 1.05, 1.1, 1.15, 1.22, 1.3, 1.4, 1.5, 1.7, 2.0, 2.5, 3.0, 4.0};

enum { WIDTHS = sizeof widths / sizeof widths[0], FITS = 6 };

/* Which contents are kept, and what follows. */
struct choice {
  bool *is_kept;
  size_t size_bytes, peak_bytes; /* size_bytes SIZE_MAX: not found */
  double replay_cost;
};

struct search {
  struct arena memory;
  struct contents contents;
  struct cuts cuts;
  struct order order;
  struct memory_span *spans; /* [as many roots as any order has] */
  size_t unreplayed_bytes;
};

bool replay_mode_find(const char *name, enum replay_mode *out) {
  static const char *const names[] = {"none", "auto", "full"};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
    if (strcmp(name, names[i]) == 0) {
      *out = (enum replay_mode)i;
      return true;
    }
  return false;
}

static struct choice choice_new(struct search *search) {
  size_t n = (size_t)search->contents.n + 1;
  return (struct choice){.is_kept = arena_new(&search->memory, n), .size_bytes = SIZE_MAX};
}

static void choice_copy(const struct search *search, struct choice *to, const struct choice *from) {
  bool *is_kept = to->is_kept;
  memcpy(is_kept, from->is_kept, (size_t)search->contents.n);
  *to = *from;
  to->is_kept = is_kept;
}

/* From the order as it is made. */
static void choice_measure(struct search *search, struct choice *choice) {
  choice->peak_bytes = search->order.peak_bytes;
  choice->replay_cost = search->order.replay_cost;
  choice->size_bytes = order_spans(&search->order, search->spans);
}

static void choice_make(struct search *search, struct choice *choice) {
  order_make(&search->order, choice->is_kept);
  choice_measure(search, choice);
}

static void keep_all(struct search *search, struct choice *choice) {
  memset(choice->is_kept, true, (size_t)search->contents.n);
  choice_make(search, choice);
}

static void keep_fixed(struct search *search, struct choice *choice) {
  for (int c = 0; c < search->contents.n; c++) {
    const struct content *content = &search->contents.list[c];
    choice->is_kept[c] = content->is_fixed || content->producer >= search->contents.program->n_forward;
  }
  choice_make(search, choice);
}

/* The way to cut of that width. False if it is none, or is not smaller than most_bytes. */
static bool cut_try(struct search *search, double width, size_t most_bytes, struct choice *choice) {
  double bytes = (double)search->cuts.least_bytes * width;
  if (bytes > (double)search->cuts.most_bytes || !cuts_choose(&search->cuts, (size_t)bytes, choice->is_kept))
    return false;
  order_make(&search->order, choice->is_kept);
  if (search->order.peak_bytes >= most_bytes)
    return false;
  choice_measure(search, choice);
  return choice->size_bytes < most_bytes;
}

/* More is kept where that takes no more memory. Where the plan of memory has gaps, less has to live at a
 * time. */
static void choice_relax(struct search *search, struct choice *choice, size_t most_bytes) {
  struct choice relaxed = choice_new(search);
  size_t peak_bytes = most_bytes;
  for (int fit = 0; fit < FITS && peak_bytes >= choice->peak_bytes; fit++) {
    memcpy(relaxed.is_kept, choice->is_kept, (size_t)search->contents.n);
    order_make(&search->order, relaxed.is_kept);
    keep_more(&search->order, relaxed.is_kept, peak_bytes);
    choice_measure(search, &relaxed);
    if (relaxed.size_bytes <= most_bytes) {
      if (relaxed.replay_cost < choice->replay_cost)
        choice_copy(search, choice, &relaxed);
      return;
    }
    peak_bytes -= (relaxed.size_bytes - most_bytes) + peak_bytes / 256;
  }
}

/* The smallest way to cut; size_bytes as `none` has if there is none that is smaller. */
static void choose_smallest(struct search *search, const struct choice *none, struct choice *smallest) {
  struct choice tried = choice_new(search);
  choice_copy(search, smallest, none);
  for (int w = 0; w < WIDTHS; w++)
    if (cut_try(search, widths[w], smallest->size_bytes, &tried))
      choice_copy(search, smallest, &tried);
}

/* Of the ways to cut that fit, the one that replays least when all that fits is kept. */
static void choose_cheapest(struct search *search, size_t most_bytes, struct choice *cheapest) {
  struct choice tried = choice_new(search);
  choice_relax(search, cheapest, most_bytes);
  for (int w = WIDTHS - 1, left = 2; w >= 0 && left > 0; w--) {
    if (!cut_try(search, widths[w], most_bytes, &tried))
      continue;
    left--;
    choice_relax(search, &tried, most_bytes);
    if (tried.replay_cost < cheapest->replay_cost)
      choice_copy(search, cheapest, &tried);
  }
}

static int choose(struct search *search, const struct replay_wish *wish, struct choice *chosen,
                  struct err *err) {
  struct choice none = choice_new(search);
  keep_all(search, &none);
  search->unreplayed_bytes = none.size_bytes;
  *chosen = choice_new(search);
  choice_copy(search, chosen, &none);
  if (wish->mode == REPLAY_ALWAYS)
    keep_fixed(search, chosen);
  if (wish->mode == REPLAY_ALWAYS || wish->mode == REPLAY_NONE ||
      (wish->mode == REPLAY_AUTO && none.size_bytes <= wish->most_bytes))
    return ERR_OK;
  cuts_find(&search->contents, search->order.n_contexts, &search->memory, &search->cuts);
  choose_smallest(search, &none, chosen);
  choice_relax(search, chosen, chosen->size_bytes);
  if (wish->mode == REPLAY_FULL)
    return ERR_OK;
  if (chosen->size_bytes > wish->most_bytes)
    return err_set(err, ERR_NO_MEMORY,
                   "one execution needs %zu bytes for its activations, %zu when as much is recomputed as can "
                   "be, and may take %zu",
                   none.size_bytes, chosen->size_bytes, wish->most_bytes);
  choose_cheapest(search, wish->most_bytes, chosen);
  return ERR_OK;
}

static void plan_items(const struct search *search, struct replay_plan *plan) {
  const struct replay_program *program = search->contents.program;
  const struct order *order = &search->order;
  struct replay_item *items = arena_new(&plan->memory, ((size_t)order->n_items + 1) * sizeof *items);
  for (int i = 0; i < order->n_items; i++) {
    const struct order_item *item = &order->items[i];
    int n = program->steps[item->step].n_uses,
        *roots = arena_new(&plan->memory, ((size_t)n + 1) * sizeof *roots);
    for (int u = 0; u < n; u++)
      roots[u] = order_root(order, item, u);
    items[i] = (struct replay_item){item->step, item->is_replay, roots};
  }
  plan->items = items;
  plan->n_items = order->n_items;
  plan->n_forward = program->n_forward;
}

static struct replay_plan *plan_new(struct search *search, const struct choice *chosen) {
  const struct replay_program *program = search->contents.program;
  struct replay_plan *plan = mem_new(sizeof *plan);
  const struct order *order = &search->order;
  arena_init(&plan->memory);
  order_make(&search->order, chosen->is_kept);
  plan_items(search, plan);
  plan->n_roots = order->n_roots;
  plan->size_bytes = order_spans(order, search->spans);
  plan->spans = arena_copy(&plan->memory, search->spans, (size_t)plan->n_roots * sizeof *plan->spans);
  int *origins = arena_new(&plan->memory, ((size_t)plan->n_roots + 1) * sizeof *origins);
  for (int r = 0; r < plan->n_roots; r++)
    origins[r] = order->roots[r].origin;
  plan->origins = origins;
  plan->unreplayed_bytes = search->unreplayed_bytes;
  plan->n_replays = order->n_replays;
  plan->replay_cost = order->replay_cost;
  for (int s = 0; s < program->n_steps; s++)
    plan->cost += program->steps[s].cost;
  return plan;
}

int replay_plan_new(const struct replay_program *program, const struct replay_wish *wish,
                    struct replay_plan **out, struct err *err) {
  struct search search = {0};
  struct choice chosen;
  *out = NULL;
  arena_init(&search.memory);
  contents_find(program, &search.memory, &search.contents);
  order_init(&search.order, &search.contents, wish->n_contexts > 1 ? wish->n_contexts : 1, &search.memory);
  search.spans = arena_new(&search.memory, ((size_t)program->n_roots + 2 * (size_t)search.contents.n + 1) *
                                               sizeof *search.spans);
  int code = choose(&search, wish, &chosen, err);
  if (!code)
    *out = plan_new(&search, &chosen);
  arena_fini(&search.memory);
  return code;
}

void replay_plan_free(struct replay_plan *plan) {
  if (!plan)
    return;
  arena_fini(&plan->memory);
  free(plan);
}
