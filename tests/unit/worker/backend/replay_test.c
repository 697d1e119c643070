/* Plans of replay, tried on programs that are drawn: each step hashes the bytes that it reads into those that
   it writes, where the plan of memory puts them. Whatever is replayed, every step of the program that is not
   a replay reads the same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "worker/backend/replay/replay.h"

enum { STEPS_MAX = 12000, USES_MAX = 6, ROOTS_MAX = 40000, PROGRAMS = 400 };

struct program {
  struct replay_program plan_of;
  struct replay_step steps[STEPS_MAX];
  struct replay_use uses[STEPS_MAX][USES_MAX];
  struct replay_root roots[ROOTS_MAX];
  uint64_t state;
};

static struct program program;
static bool is_input[ROOTS_MAX], is_added[STEPS_MAX][USES_MAX];
static uint64_t seen[STEPS_MAX], seen_again[STEPS_MAX]; /* what each step read */

static int draw(int n) {
  program.state = program.state * 6364136223846793005u + 1442695040888963407u;
  return (int)((program.state >> 33) % (uint64_t)n);
}

static void program_begin(uint64_t seed) {
  memset(&program, 0, sizeof program);
  program.state = seed * 2 + 1;
  program.plan_of = (struct replay_program){.steps = program.steps, .roots = program.roots};
}

static int root_add(size_t size_bytes, bool is_planned) {
  program.roots[program.plan_of.n_roots] = (struct replay_root){size_bytes, is_planned};
  return program.plan_of.n_roots++;
}

static struct replay_step *step_add(double cost) {
  struct replay_step *step = &program.steps[program.plan_of.n_steps];
  step->uses = program.uses[program.plan_of.n_steps++];
  step->cost = cost;
  return step;
}

static void use_add(struct replay_step *step, int root, bool is_written) {
  program.uses[step - program.steps][step->n_uses++] = (struct replay_use){root, is_written};
}

/* A step that reads `from` and writes a root of its own. Returns that. */
static int step_of(int from, int also, size_t size_bytes, double cost) {
  struct replay_step *step = step_add(cost);
  int root = root_add(size_bytes, true);
  use_add(step, from, false);
  if (also >= 0)
    use_add(step, also, false);
  use_add(step, root, true);
  return root;
}

/* Roots that are there: inputs and weights at first. The last ones are drawn more often. */
static int draw_known(const int *known, int n) {
  int back = draw(4) ? draw(n < 6 ? n : 6) : draw(n);
  return known[n - 1 - back];
}

static void draw_reads(struct replay_step *step, const int *known, int n_known) {
  for (int reads = 1 + draw(3); reads > 0; reads--)
    use_add(step, draw_known(known, n_known), false);
}

/* Any planned root may be written over, also by the backward part, or added to without being read. */
static void draw_writes(struct replay_step *step, int *known, int *n_known) {
  int kind = draw(12);
  int old = step->uses[0].root;
  if (kind < 4 && program.roots[old].is_planned) {
    use_add(step, old, true);
    return;
  }
  if (kind == 4 && program.roots[known[*n_known - 1]].is_planned && draw(3) == 0) {
    use_add(step, known[*n_known - 1], true);
    return;
  }
  for (int writes = 1 + (draw(4) == 0); writes > 0; writes--) {
    int root = root_add((size_t)(1 + draw(40)) * 24, true);
    use_add(step, root, true);
    known[(*n_known)++] = root;
  }
}

/* Deliveries read; a refill writes what is not planned. */
static void draw_once(struct replay_step *step, int *known, int *n_known) {
  step->is_once = true;
  if (draw(2))
    use_add(step, draw_known(known, *n_known), false);
  if (draw(3))
    return;
  known[*n_known] = root_add(64, false);
  use_add(step, known[(*n_known)++], true);
}

static bool step_writes(const struct replay_step *step, int root) {
  for (int u = 0; u < step->n_uses; u++)
    if (step->uses[u].root == root && step->uses[u].is_written)
      return true;
  return false;
}

/* Deliveries may read on until their bytes are written over. */
static void draw_until(void) {
  for (int s = 0; s < program.plan_of.n_steps; s++) {
    struct replay_step *step = &program.steps[s];
    int until = s, wanted = s + draw(30);
    if (!step->is_once || step->n_uses != 1 || step->uses[0].is_written)
      continue;
    while (until < wanted && until + 1 < program.plan_of.n_steps &&
           !step_writes(&program.steps[until + 1], step->uses[0].root))
      until++;
    step->until = until;
  }
}

static void program_draw(uint64_t seed) {
  static int known[ROOTS_MAX];
  int n_known = 0, n_steps;
  program_begin(seed);
  for (int i = 1 + draw(3); i > 0; i--)
    known[n_known++] = root_add(100, true);
  for (int i = 1 + draw(3); i > 0; i--)
    known[n_known++] = root_add((size_t)(draw(2) * 200), false);
  n_steps = 2 + draw(120);
  program.plan_of.n_forward = draw(8) ? n_steps / 2 : draw(n_steps + 1);
  for (int s = 0; s < n_steps; s++) {
    struct replay_step *step = step_add(draw(5) ? 1 + draw(100) : 0);
    if (draw(8) == 0) {
      draw_once(step, known, &n_known);
      continue;
    }
    draw_reads(step, known, n_known);
    draw_writes(step, known, &n_known);
    step->is_once = draw(10) == 0;
  }
  draw_until();
}

/* A stack of layers, each of a few steps, whose gradients read what they made; the first ones keep more. */
static void program_layers(int n_layers) {
  static int made[STEPS_MAX][4];
  int x = root_add(4096, true), gradient;
  for (int l = 0; l < n_layers; l++) {
    size_t size_bytes = l < n_layers / 3 ? 8192 : 4096;
    made[l][0] = x;
    made[l][1] = step_of(x, -1, size_bytes, 1);
    made[l][2] = step_of(made[l][1], -1, 4 * size_bytes, 100);
    made[l][3] = step_of(made[l][2], -1, 4 * size_bytes, 2);
    x = step_of(made[l][3], x, size_bytes, 100);
  }
  program.plan_of.n_forward = program.plan_of.n_steps;
  gradient = x;
  for (int l = n_layers - 1; l >= 0; l--)
    for (int i = 3; i >= 0; i--)
      gradient = step_of(gradient, made[l][i], 4096, 100);
}

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

/* Weights and inputs. */
static void roots_begin(unsigned char *const *data) {
  for (int r = 0; r < program.plan_of.n_roots; r++)
    if (is_input[r] || !program.roots[r].is_planned)
      bytes_fill(data[r], program.roots[r].size_bytes, (uint64_t)r, false);
}

/* As the program is, each root in memory of its own. */
static void program_run(void) {
  static unsigned char *data[ROOTS_MAX];
  find_kinds();
  for (int r = 0; r < program.plan_of.n_roots; r++)
    data[r] = mem_new(program.roots[r].size_bytes + 1);
  roots_begin(data);
  for (int s = 0; s < program.plan_of.n_steps; s++) {
    unsigned char *arguments[USES_MAX];
    for (int u = 0; u < program.steps[s].n_uses; u++)
      arguments[u] = data[program.steps[s].uses[u].root];
    seen[s] = step_run(s, arguments);
  }
  for (int r = 0; r < program.plan_of.n_roots; r++)
    free(data[r]);
}

static size_t plan_lay_out(const struct replay_plan *plan) {
  struct memory_span *used = mem_new(((size_t)plan->n_roots + 1) * sizeof *used);
  int n = 0;
  for (int r = 0; r < plan->n_roots; r++)
    if (plan->spans[r].size_bytes > 0)
      used[n++] = plan->spans[r];
  size_t size_bytes = memory_plan(used, n);
  for (int r = n = 0; r < plan->n_roots; r++)
    if (plan->spans[r].size_bytes > 0)
      plan->spans[r].offset = used[n++].offset;
  free(used);
  return size_bytes;
}

/* What is read until this step has run is as it was. arguments: of deliveries, one each. */
static void check_until(int last, unsigned char *const *arguments) {
  for (int s = 0; s <= last; s++)
    if (program.steps[s].until == last && last > s)
      assert_true(hash_reads(s, &arguments[s]) == seen_again[s]);
}

static void plan_run(const struct replay_plan *plan) {
  static unsigned char *data[ROOTS_MAX * 2], *firsts[STEPS_MAX];
  unsigned char *block = malloc(plan->size_bytes + 1);
  memset(block, 0xa5, plan->size_bytes + 1);
  assert_int_equal(plan_lay_out(plan), plan->size_bytes);
  for (int r = 0; r < plan->n_roots; r++)
    data[r] = block + (plan->spans[r].size_bytes ? plan->spans[r].offset : 0);
  roots_begin(data);
  for (int i = 0; i < plan->n_items; i++) {
    const struct replay_item *item = &plan->items[i];
    unsigned char *arguments[USES_MAX];
    for (int u = 0; u < program.steps[item->step].n_uses; u++)
      arguments[u] = data[item->roots[u]];
    uint64_t hash = step_run(item->step, arguments);
    if (item->is_replay)
      continue;
    seen_again[item->step] = hash;
    firsts[item->step] = arguments[0];
    check_until(item->step, firsts);
  }
  free(block);
}

static struct replay_plan *plan_find(enum replay_mode mode, size_t most_bytes) {
  struct err err = ERR_NONE;
  struct replay_plan *plan;
  struct replay_wish wish = {mode, most_bytes};
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
  assert_memory_equal(seen, seen_again, (size_t)program.plan_of.n_steps * sizeof *seen);
  replay_plan_free(plan);
  return size_bytes;
}

static void every_step_reads_the_same_whatever_is_replayed(void **state) {
  int n_smaller = 0, n_replayed = 0, n_between = 0;
  (void)state;
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
  struct replay_wish wish = {REPLAY_AUTO, full->size_bytes / 2};
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
      cmocka_unit_test(without_replay_the_program_stays_as_it_is),
      cmocka_unit_test(full_replay_of_many_layers_takes_a_fraction_of_the_memory),
      cmocka_unit_test(auto_replays_what_is_cheap_before_what_is_dear),
      cmocka_unit_test(what_does_not_fit_is_refused_with_what_would),
      cmocka_unit_test(a_program_of_many_steps_is_planned),
      cmocka_unit_test(modes_have_the_names_of_the_key),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
