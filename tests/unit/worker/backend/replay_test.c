/* Plans of replay, tried on programs that are drawn: each step hashes the bytes that it reads into those that
   it writes, where the plan of memory puts them. Whatever is replayed, and however many executions are
   between their forward and backward part at a time, every step of the program that is not a replay reads the
   same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/worker/replay_programs.h"
#include "worker/backend/replay/split.h"

enum { PROGRAMS = 400, CONTEXTS = 3 };

static bool is_input[ROOTS_MAX], is_added[STEPS_MAX][USES_MAX];
static uint64_t seen[CONTEXTS][STEPS_MAX], seen_again[CONTEXTS][STEPS_MAX]; /* what each step read */
static int n_contexts = 1;

static uint64_t hash_bytes_of(uint64_t hash, const unsigned char *bytes, size_t size_bytes) {
  for (size_t i = 0; i < size_bytes; i++)
    hash = (hash ^ bytes[i]) * 0x100000001b3u;
  return hash;
}

/* Fills the bytes, or the first half of them where they are added to. */
static void bytes_fill(unsigned char *bytes, size_t size_bytes, uint64_t hash, bool is_half) {
  for (size_t i = 0; i < (is_half ? size_bytes / 2 : size_bytes); i++) {
    hash = hash * 6364136223846793005u + 1442695040888963407u;
    bytes[i] = (unsigned char)(hash >> 56);
  }
}

static bool step_reads(const struct replay_step *step, int root) {
  for (int u = 0; u < step->n_uses; u++)
    if (step->uses[u].root == root && !step->uses[u].is_written)
      return true;
  return false;
}

/* Which roots are read before they are written, inputs, and which uses add to what is there. */
static void find_kinds(void) {
  static bool is_known[ROOTS_MAX];
  memset(is_known, 0, sizeof is_known);
  memset(is_input, 0, sizeof is_input);
  memset(is_added, 0, sizeof is_added);
  for (int s = 0; s < program.plan_of.n_steps; s++)
    for (int pass = 0; pass < 2; pass++)
      for (int u = 0; u < program.steps[s].n_uses; u++) {
        const struct replay_use *use = &program.steps[s].uses[u];
        if (use->is_written != (pass == 1) || !program.roots[use->root].is_planned)
          continue;
        is_input[use->root] |= pass == 0 && !is_known[use->root];
        is_added[s][u] = pass == 1 && is_known[use->root] && !step_reads(&program.steps[s], use->root);
        is_known[use->root] = true;
      }
}

/* Of what the step reads, with its arguments at data[]. */
static uint64_t hash_reads(int s, unsigned char *const *data) {
  const struct replay_step *step = &program.steps[s];
  uint64_t hash = 0xcbf29ce484222325u + (uint64_t)s;
  for (int u = 0; u < step->n_uses; u++)
    if (!step->uses[u].is_written)
      hash = hash_bytes_of(hash, data[u], program.roots[step->uses[u].root].size_bytes);
  return hash;
}

/* A step of the program. Returns the hash of what it reads. */
static uint64_t step_run(int s, unsigned char *const *data) {
  const struct replay_step *step = &program.steps[s];
  uint64_t hash = hash_reads(s, data);
  for (int u = 0; u < step->n_uses; u++)
    if (step->uses[u].is_written)
      bytes_fill(data[u], program.roots[step->uses[u].root].size_bytes, hash + (uint64_t)u, is_added[s][u]);
  return hash;
}

/* Weights and inputs; each context has others. */
static void roots_begin(unsigned char *const *data, int context) {
  for (int r = 0; r < program.plan_of.n_roots; r++)
    if (is_input[r] || !program.roots[r].is_planned)
      bytes_fill(data[r], program.roots[r].size_bytes, (uint64_t)(r * CONTEXTS + context), false);
}

static void context_run(int context) {
  static unsigned char *data[ROOTS_MAX];
  for (int r = 0; r < program.plan_of.n_roots; r++)
    data[r] = mem_new(program.roots[r].size_bytes + 1);
  roots_begin(data, context);
  for (int s = 0; s < program.plan_of.n_steps; s++) {
    unsigned char *arguments[USES_MAX];
    for (int u = 0; u < program.steps[s].n_uses; u++)
      arguments[u] = data[program.steps[s].uses[u].root];
    seen[context][s] = step_run(s, arguments);
  }
  for (int r = 0; r < program.plan_of.n_roots; r++)
    free(data[r]);
}

/* As the program is, each root in memory of its own. */
static void program_run(void) {
  find_kinds();
  for (int c = 0; c < CONTEXTS; c++)
    context_run(c);
}

static size_t plan_lay_out(const struct replay_plan *plan, struct split *split) {
  struct memory_span *used = mem_new(((size_t)plan->n_roots + 1) * sizeof *used);
  int n = 0;
  for (int r = 0; r < plan->n_roots; r++)
    if (plan->spans[r].size_bytes > 0)
      used[n++] = plan->spans[r];
  *split = (struct split){.n_steps = plan->n_items, .n_forward = plan->n_forward, .n_contexts = n_contexts};
  size_t size_bytes = split_plan(split, used, n);
  for (int r = n = 0; r < plan->n_roots; r++)
    if (plan->spans[r].size_bytes > 0)
      plan->spans[r].offset = used[n++].offset;
  free(used);
  return size_bytes;
}

/* The memory of a program and of what it has in flight. */
struct machine {
  unsigned char *block,
      *weights[CONTEXTS]; /* weights: of each context others, so they are not in the block */
  unsigned char *data[CONTEXTS][ROOTS_MAX * 2];
  unsigned char *firsts[CONTEXTS][STEPS_MAX]; /* the first argument of each step */
};

static struct machine machine;

static void machine_init(const struct replay_plan *plan) {
  struct split split;
  machine.block = malloc(plan->size_bytes + 1);
  memset(machine.block, 0xa5, plan->size_bytes + 1);
  assert_int_equal(plan_lay_out(plan, &split), plan->size_bytes);
  for (int c = 0; c < n_contexts; c++) {
    machine.weights[c] = malloc(split.shared_bytes + 1);
    for (int r = 0; r < plan->n_roots; r++) {
      const struct memory_span *span = &plan->spans[r];
      size_t saved = split.shared_bytes + (size_t)c * split.saved_bytes,
             offset = span->size_bytes ? span->offset : 0;
      bool is_planned = program.roots[plan->origins[r]].is_planned;
      machine.data[c][r] = (is_planned ? machine.block : machine.weights[c]) +
                           (split_is_saved(&split, span) ? saved : 0) + offset;
    }
  }
}

static void machine_fini(void) {
  for (int c = 0; c < n_contexts; c++)
    free(machine.weights[c]);
  free(machine.block);
}

/* What is read until this step has run is as it was: that of deliveries, which have one argument. */
static void check_until(int last, int context) {
  for (int s = 0; s <= last; s++)
    if (program.steps[s].until == last && last > s)
      assert_true(hash_reads(s, &machine.firsts[context][s]) == seen_again[context][s]);
}

static void items_run(const struct replay_plan *plan, int begin, int end, int context) {
  for (int i = begin; i < end; i++) {
    const struct replay_item *item = &plan->items[i];
    unsigned char *arguments[USES_MAX];
    for (int u = 0; u < program.steps[item->step].n_uses; u++)
      arguments[u] = machine.data[context][item->roots[u]];
    uint64_t hash = step_run(item->step, arguments);
    if (item->is_replay)
      continue;
    seen_again[context][item->step] = hash;
    machine.firsts[context][item->step] = arguments[0];
    check_until(item->step, context);
  }
}

/* All are in flight at a time; the last to come is the first to go on. */
static void plan_run(const struct replay_plan *plan) {
  machine_init(plan);
  for (int c = 0; c < n_contexts; c++) {
    roots_begin(machine.data[c], c);
    items_run(plan, 0, plan->n_forward, c);
  }
  for (int c = n_contexts - 1; c >= 0; c--)
    items_run(plan, plan->n_forward, plan->n_items, c);
  machine_fini();
}

static struct replay_plan *plan_find(enum replay_mode mode, size_t most_bytes) {
  struct err err = ERR_NONE;
  struct replay_plan *plan;
  struct replay_wish wish = {mode, most_bytes, n_contexts};
  if (replay_plan_new(&program.plan_of, &wish, &plan, &err)) {
    assert_int_equal(err.code, ERR_NO_MEMORY);
    assert_null(plan);
  }
  return plan;
}

/* Every step once, in order, besides the replays, all of which come behind the forward part. */
static void check_items(const struct replay_plan *plan) {
  int next = 0, n_replays = 0;
  double cost = 0;
  for (int i = 0; i < plan->n_items; i++) {
    const struct replay_item *item = &plan->items[i];
    if (!item->is_replay) {
      assert_int_equal(item->step, next++);
      continue;
    }
    n_replays++;
    cost += program.steps[item->step].cost;
    assert_true(i >= plan->n_forward && item->step < program.plan_of.n_forward);
    assert_false(program.steps[item->step].is_once);
  }
  assert_int_equal(next, program.plan_of.n_steps);
  assert_int_equal(n_replays, plan->n_replays);
  assert_true(cost > plan->replay_cost - 0.5 && cost < plan->replay_cost + 0.5);
}

/* Returns the bytes of the plan, which goes. */
static size_t plan_check(struct replay_plan *plan) {
  size_t size_bytes = plan->size_bytes;
  check_items(plan);
  plan_run(plan);
  for (int c = 0; c < n_contexts; c++)
    assert_memory_equal(seen[c], seen_again[c], (size_t)program.plan_of.n_steps * sizeof *seen[c]);
  replay_plan_free(plan);
  return size_bytes;
}

static void check_drawn_programs(void) {
  int n_smaller = 0, n_replayed = 0, n_between = 0;
  for (uint64_t seed = 1; seed <= PROGRAMS; seed++) {
    program_draw(seed);
    program_run();
    size_t none = plan_check(plan_find(REPLAY_NONE, 0));
    size_t full = plan_check(plan_find(REPLAY_FULL, 0));
    struct replay_plan *always = plan_find(REPLAY_ALWAYS, 0);
    assert_int_equal(always->unreplayed_bytes, none);
    n_replayed += always->n_replays;
    plan_check(always);
    assert_true(full <= none);
    n_smaller += full < none;
    for (size_t part = 0; part <= 4 && full < none; part++) {
      size_t most_bytes = full + (none - full) * part / 4;
      struct replay_plan *plan = plan_find(REPLAY_AUTO, most_bytes);
      assert_non_null(plan);
      assert_true(plan->size_bytes <= most_bytes);
      n_between += part > 0 && part < 4 && plan->n_replays > 0;
      plan_check(plan);
    }
  }
  assert_true(n_smaller > PROGRAMS / 20 && n_replayed > 5 * PROGRAMS && n_between > PROGRAMS / 20);
}

static void every_step_reads_the_same_whatever_is_replayed(void **state) {
  (void)state;
  check_drawn_programs();
}

static void every_step_reads_the_same_with_several_executions_in_flight(void **state) {
  (void)state;
  n_contexts = CONTEXTS;
  check_drawn_programs();
  n_contexts = 1;
}

/* All that is kept is there once for each; what is made again, for one at a time. */
static void what_is_saved_counts_once_for_each_context(void **state) {
  size_t none[CONTEXTS + 1], full[CONTEXTS + 1];
  (void)state;
  program_begin(1);
  program_layers(32);
  program_run();
  for (n_contexts = 1; n_contexts <= CONTEXTS; n_contexts++) {
    none[n_contexts] = plan_check(plan_find(REPLAY_NONE, 0));
    full[n_contexts] = plan_check(plan_find(REPLAY_FULL, 0));
  }
  n_contexts = 1;
  assert_true(none[3] > none[1] * 29 / 10 && full[2] < full[1] * 2 && full[3] < full[1] * 5 / 2);
}

static void without_replay_the_program_stays_as_it_is(void **state) {
  (void)state;
  program_draw(5);
  struct replay_plan *plan = plan_find(REPLAY_NONE, 0);
  assert_int_equal(plan->n_items, program.plan_of.n_steps);
  assert_int_equal(plan->n_roots, program.plan_of.n_roots);
  for (int i = 0; i < plan->n_items; i++)
    for (int u = 0; u < program.steps[i].n_uses; u++)
      assert_int_equal(plan->items[i].roots[u], program.steps[i].uses[u].root);
  replay_plan_free(plan);
}

static void full_replay_of_many_layers_takes_a_fraction_of_the_memory(void **state) {
  (void)state;
  program_begin(1);
  program_layers(64);
  program_run();
  struct replay_plan *plan = plan_find(REPLAY_FULL, 0);
  assert_true(plan->size_bytes < plan->unreplayed_bytes / 4);
  assert_true(plan->replay_cost < plan->cost / 3);
  plan_check(plan);
}

/* What is cheap to make goes first. */
static void auto_replays_what_is_cheap_before_what_is_dear(void **state) {
  double before = -1;
  (void)state;
  program_begin(1);
  program_layers(24);
  program_run();
  struct replay_plan *none = plan_find(REPLAY_NONE, 0);
  for (int percent = 100; percent >= 40; percent -= 10) {
    struct replay_plan *plan = plan_find(REPLAY_AUTO, none->size_bytes * (size_t)percent / 100);
    assert_true(plan->replay_cost >= before * 0.99);
    if (percent == 100)
      assert_int_equal(plan->n_replays, 0);
    if (percent == 70) /* a third of what is kept costs nothing to speak of */
      assert_true(plan->replay_cost < plan->cost / 50);
    before = plan->replay_cost;
    plan_check(plan);
  }
  replay_plan_free(none);
}

static void what_does_not_fit_is_refused_with_what_would(void **state) {
  struct err err = ERR_NONE;
  struct replay_plan *full, *plan;
  char number[32];
  (void)state;
  program_begin(1);
  program_layers(8);
  full = plan_find(REPLAY_FULL, 0);
  struct replay_wish wish = {.mode = REPLAY_AUTO, .most_bytes = full->size_bytes / 2};
  assert_int_equal(replay_plan_new(&program.plan_of, &wish, &plan, &err), ERR_NO_MEMORY);
  assert_null(plan);
  const size_t told[] = {full->unreplayed_bytes, wish.most_bytes};
  for (size_t i = 0; i < sizeof told / sizeof told[0]; i++) {
    snprintf(number, sizeof number, "%zu", told[i]);
    assert_non_null(strstr(err.text, number));
  }
  replay_plan_free(full);
}

static void a_program_of_many_steps_is_planned(void **state) {
  (void)state;
  program_begin(1);
  program_layers(1400);
  program_run();
  struct replay_plan *full = plan_find(REPLAY_FULL, 0);
  assert_true(program.plan_of.n_steps > 10000 && full->size_bytes < full->unreplayed_bytes / 10);
  struct replay_plan *plan = plan_find(REPLAY_AUTO, full->unreplayed_bytes / 2);
  assert_true(plan->replay_cost < full->replay_cost);
  plan_check(full);
  plan_check(plan);
}

static void modes_have_the_names_of_the_key(void **state) {
  enum replay_mode mode = REPLAY_ALWAYS;
  (void)state;
  assert_true(replay_mode_find("none", &mode) && mode == REPLAY_NONE);
  assert_true(replay_mode_find("auto", &mode) && mode == REPLAY_AUTO);
  assert_true(replay_mode_find("full", &mode) && mode == REPLAY_FULL);
  assert_false(replay_mode_find("always", &mode) || replay_mode_find("", &mode));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_step_reads_the_same_whatever_is_replayed),
      cmocka_unit_test(every_step_reads_the_same_with_several_executions_in_flight),
      cmocka_unit_test(what_is_saved_counts_once_for_each_context),
      cmocka_unit_test(without_replay_the_program_stays_as_it_is),
      cmocka_unit_test(full_replay_of_many_layers_takes_a_fraction_of_the_memory),
      cmocka_unit_test(auto_replays_what_is_cheap_before_what_is_dear),
      cmocka_unit_test(what_does_not_fit_is_refused_with_what_would),
      cmocka_unit_test(a_program_of_many_steps_is_planned),
      cmocka_unit_test(modes_have_the_names_of_the_key),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
