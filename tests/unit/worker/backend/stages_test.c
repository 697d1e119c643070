/* Where programs can be cut into stages, which steps each stage has, and what crosses: of programs that are
   drawn, compared with what follows of the rules one by one, and of some by hand. */
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/worker/drawn_program.h"

enum { PROGRAMS = 400, PLACES_MAX = 64 };

static struct drawn_program drawn;

static bool is_nobody(int step) {
  return drawn.spans[step].first < 0;
}

/* A plain program's cut is valid if nobody reads what is made in a later part: parts are numbered 0, forward
   below; 1, forward above; 2, backward above; 3, backward below. What steps of nobody make is there when what
   they read is.
   */
static bool is_valid_by_rule(int place) {
  static int part_of[DRAWN_CONTENTS_MAX];
  for (int c = 0; c < drawn.n_contents; c++)
    part_of[c] = -1;
  for (int s = 0; s < drawn.program.n_steps; s++) {
    const struct stage_span *span = &drawn.spans[s];
    bool is_above = span->first >= place, is_forward = s < drawn.program.n_forward;
    int part = is_forward ? is_above : 3 - is_above, needed = -1;
    if (span->first < place && span->last >= place)
      return false;
    for (int u = 0; u < drawn.steps[s].n_uses; u++)
      if (!drawn.uses[s][u].is_written && drawn.contents_of[s][u] >= 0 &&
          part_of[drawn.contents_of[s][u]] > needed)
        needed = part_of[drawn.contents_of[s][u]];
    if (!is_nobody(s) && needed > part)
      return false;
    for (int u = 0; u < drawn.steps[s].n_uses; u++)
      if (drawn.uses[s][u].is_written && drawn.contents_of[s][u] >= 0)
        part_of[drawn.contents_of[s][u]] = is_nobody(s) ? needed : part;
  }
  return true;
}

static void cuts_are_valid_where_each_step_finds_what_it_reads(void **state) {
  int n_valid = 0, n_invalid = 0;
  (void)state;
  for (uint64_t seed = 1; seed <= PROGRAMS; seed++) {
    bool is_valid[PLACES_MAX];
    drawn_program_draw(&drawn, seed, true);
    stages_find_places(&drawn.staged, is_valid);
    assert_false(is_valid[0] || is_valid[drawn.staged.n_nodes]);
    for (int p = 1; p < drawn.staged.n_nodes; p++) {
      assert_int_equal(is_valid[p], is_valid_by_rule(p));
      n_valid += is_valid[p];
      n_invalid += !is_valid[p];
    }
  }
  assert_true(n_valid > 4 * PROGRAMS && n_invalid > PROGRAMS);
}

static int cuts_draw(int *cuts) {
  bool is_valid[PLACES_MAX];
  int n = 0, rarity = 1 + drawn_below(&drawn, 6);
  stages_find_places(&drawn.staged, is_valid);
  for (int p = 0; p <= drawn.staged.n_nodes; p++)
    if (is_valid[p] && drawn_below(&drawn, rarity) == 0)
      cuts[n++] = p;
  return n;
}

static int stage_of_step(const int *cuts, int n_cuts, int step) {
  int stage = 0;
  while (stage < n_cuts && drawn.spans[step].first >= cuts[stage])
    stage++;
  return stage;
}

static bool stage_has(const struct stage *stage, int step) {
  for (int i = 0; i < stage->n_items; i++)
    if (stage->items[i].step == step)
      return true;
  return false;
}

/* A step of the stage, but this one, reads what the step makes. */
static bool stage_reads_of(const struct stage *stage, int maker) {
  for (int i = 0; i < stage->n_items; i++)
    for (int u = 0; u < drawn.steps[stage->items[i].step].n_uses; u++)
      for (int w = 0; w < drawn.steps[maker].n_uses; w++) {
        int step = stage->items[i].step, made = drawn.contents_of[maker][w];
        if (drawn.uses[step][u].is_written || !drawn.uses[maker][w].is_written || step <= maker)
          continue;
        if (made >= 0 ? drawn.contents_of[step][u] == made
                      : drawn.uses[step][u].root == drawn.uses[maker][w].root)
          return true;
      }
  return false;
}

/* A step of nobody that waits for the backward part reads what is made above, by itself or by another such
 * step. */
static bool has_to_wait(const struct stage *stage, int stage_index, int step, const int *cuts, int n_cuts) {
  for (int u = 0; u < drawn.steps[step].n_uses; u++) {
    int content = drawn.uses[step][u].is_written ? -1 : drawn.contents_of[step][u];
    int maker = content >= 0 ? drawn.contents[content].maker : -1;
    if (maker >= 0 && !is_nobody(maker) && stage_of_step(cuts, n_cuts, maker) > stage_index)
      return true;
    for (int i = stage->n_forward; i < stage->n_items && maker >= 0; i++)
      if (stage->items[i].step == maker && is_nobody(maker))
        return true;
  }
  return false;
}

static void check_steps(const struct stage_slices *slices, const int *cuts, int n_cuts) {
  for (int k = 0; k < slices->n_stages; k++) {
    const struct stage *stage = &slices->stages[k];
    for (int s = 0; s < drawn.program.n_steps; s++)
      assert_int_equal(stage_has(stage, s),
                       is_nobody(s) ? stage_reads_of(stage, s) : stage_of_step(cuts, n_cuts, s) == k);
    for (int i = 0; i < stage->n_items; i++) {
      int step = stage->items[i].step;
      if (i > 0 && i != stage->n_forward)
        assert_true(step > stage->items[i - 1].step);
      if (i < stage->n_forward)
        assert_true(step < drawn.program.n_forward);
      else if (step < drawn.program.n_forward)
        assert_true(is_nobody(step) && has_to_wait(stage, k, step, cuts, n_cuts));
    }
  }
}

/* Some stage from `first` to `last` uses the content. */
static bool is_used_between(const struct stage_slices *slices, int content, int first, int last) {
  for (int k = first; k <= last; k++)
    for (int i = 0; i < slices->stages[k].n_items; i++)
      for (int u = 0; u < drawn.steps[slices->stages[k].items[i].step].n_uses; u++)
        if (drawn.contents_of[slices->stages[k].items[i].step][u] == content)
          return true;
  return false;
}

/* What crosses, in the order of contents: what steps with nodes make on one side and steps use on the other.
 */
static void check_crossings(const struct stage_slices *slices, const int *cuts, int n_cuts) {
  for (int e = 0; e < n_cuts; e++) {
    const struct stage_edge *edge = &slices->edges[e];
    int n_forward = 0, n_backward = 0;
    for (int c = 0; c < drawn.n_contents; c++) {
      int maker = drawn.contents[c].maker;
      if (maker < 0 || is_nobody(maker))
        continue;
      bool is_below = stage_of_step(cuts, n_cuts, maker) <= e;
      if (is_below && maker < drawn.program.n_forward && is_used_between(slices, c, e + 1, n_cuts))
        assert_int_equal(edge->forward[n_forward++].origin, drawn.contents[c].root);
      if (!is_below && is_used_between(slices, c, 0, e))
        assert_int_equal(edge->backward[n_backward++].origin, drawn.contents[c].root);
    }
    assert_int_equal(n_forward, edge->n_forward);
    assert_int_equal(n_backward, edge->n_backward);
  }
}

static size_t crossings_bytes(const struct stage_crossing *list, int n) {
  size_t bytes = 0;
  for (int i = 0; i < n; i++)
    bytes += list[i].size_bytes;
  return bytes;
}

/* The same at each cut, whatever other cuts there are. */
static void check_measures(const struct stage_slices *slices, const int *cuts, int n_cuts) {
  struct stage_measures measures;
  double cost = 0;
  stages_measure(&drawn.staged, &measures);
  for (int e = 0; e < n_cuts; e++) {
    const struct stage_edge *edge = &slices->edges[e];
    assert_int_equal(measures.forward_bytes[cuts[e]], crossings_bytes(edge->forward, edge->n_forward));
    assert_int_equal(measures.backward_bytes[cuts[e]], crossings_bytes(edge->backward, edge->n_backward));
  }
  for (int i = 0; i < slices->stages[0].n_items && n_cuts == 0; i++)
    cost += drawn.steps[slices->stages[0].items[i].step].cost;
  if (n_cuts == 0)
    assert_true(measures.cost[drawn.staged.n_nodes] == cost);
  stage_measures_fini(&measures);
}

static void stages_have_their_steps_and_what_these_need_crosses_once(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed <= PROGRAMS; seed++) {
    drawn_program_draw(&drawn, seed, true);
    for (int way = 0; way < 4; way++) {
      int cuts[PLACES_MAX], n = way ? cuts_draw(cuts) : 0;
      struct stage_slices *slices = stage_slices_new(&drawn.staged, cuts, n);
      assert_int_equal(slices->n_stages, n + 1);
      check_steps(slices, cuts, n);
      check_crossings(slices, cuts, n);
      check_measures(slices, cuts, n);
      stage_slices_free(slices);
    }
  }
}

/* Whether each place is valid, as text: "-+-". */
static void assert_places(const char *expected) {
  bool is_valid[PLACES_MAX];
  char found[PLACES_MAX] = "";
  drawn_program_settle(&drawn);
  stages_find_places(&drawn.staged, is_valid);
  for (int p = 1; p < drawn.staged.n_nodes; p++)
    found[p - 1] = is_valid[p] ? '+' : '-';
  assert_string_equal(found, expected);
}

/* Forward nodes 0 to n - 1, each of which reads what the one before made, and their gradients. made[n],
   gradients[n] are the roots that they write. */
static void draw_chain(int n, int *made, int *gradients) {
  drawn_program_begin(&drawn, 1, n);
  int x = drawn_root(&drawn, 8, true), gradient;
  for (int i = 0; i < n; i++)
    x = made[i] = drawn_step_of(&drawn, i, (struct drawn_reads){x, -1}, (size_t)(10 + i));
  drawn_forward_end(&drawn);
  gradient = x;
  for (int i = n - 1; i >= 0; i--)
    gradient = gradients[i] =
        drawn_step_of(&drawn, i, (struct drawn_reads){gradient, made[i]}, (size_t)(50 + i));
}

static void a_chain_can_be_cut_everywhere(void **state) {
  int made[4], gradients[4], cuts[] = {1, 3};
  (void)state;
  draw_chain(4, made, gradients);
  assert_places("+++");
  struct stage_slices *slices = stage_slices_new(&drawn.staged, cuts, 2);
  for (int e = 0; e < 2; e++) {
    const struct stage_edge *edge = &slices->edges[e];
    assert_int_equal(edge->n_forward, 1);
    assert_int_equal(edge->n_backward, 1);
    assert_int_equal(edge->forward[0].origin, made[cuts[e] - 1]);
    assert_int_equal(edge->backward[0].origin, gradients[cuts[e]]);
  }
  stage_slices_free(slices);
  struct stage_measures measures;
  stages_measure(&drawn.staged, &measures);
  assert_int_equal(measures.saved_bytes[0], 0);
  assert_int_equal(measures.saved_bytes[2], 10 + 11);
  assert_int_equal(measures.saved_bytes[4], 10 + 11 + 12 + 13);
  stage_measures_fini(&measures);
}

static void no_cut_goes_through_a_fused_step(void **state) {
  int made[5], gradients[5];
  (void)state;
  draw_chain(5, made, gradients);
  drawn.spans[1].last = 3;
  assert_places("+--+");
}

static void no_cut_lets_a_forward_part_read_what_is_made_above(void **state) {
  int made[5], gradients[5];
  (void)state;
  draw_chain(5, made, gradients);
  drawn.spans[3] = (struct stage_span){0, 0}; /* reads what node 2 makes; node 4 may read it anywhere above */
  assert_places("--++");
}

static void no_cut_lets_a_backward_part_read_what_is_made_below(void **state) {
  int made[5], gradients[5], last;
  (void)state;
  draw_chain(5, made, gradients);
  last = drawn_step(&drawn, 3, 3); /* behind the gradient of node 0, which it reads */
  drawn_use(&drawn, last, gradients[1], false);
  assert_places("+--+");
}

static void a_step_of_nobody_makes_no_cut_invalid_that_its_readers_do_not(void **state) {
  int made[4], reorder, reordered;
  (void)state;
  drawn_program_begin(&drawn, 1, 4);
  made[0] = drawn_step_of(&drawn, 0, (struct drawn_reads){drawn_root(&drawn, 8, true), -1}, 8);
  made[2] = drawn_step_of(&drawn, 2, (struct drawn_reads){made[0], -1}, 8);
  reorder = drawn_step(&drawn, -1, -1);
  reordered = drawn_root(&drawn, 8, true);
  drawn_use(&drawn, reorder, made[2], false);
  drawn_use(&drawn, reorder, reordered, true);
  drawn_step_of(&drawn, 3, (struct drawn_reads){reordered, -1}, 8);
  assert_places("+++");
  drawn_step_of(&drawn, 1, (struct drawn_reads){reordered, -1}, 8);
  drawn_forward_end(&drawn);
  assert_places("+-+");
}

static void what_adds_to_a_content_stays_with_it(void **state) {
  int made[5], gradients[5], adds;
  (void)state;
  draw_chain(5, made, gradients);
  adds = drawn_step(&drawn, 3, 3); /* to the gradient of node 1, which node 0's has read */
  drawn_use(&drawn, adds, gradients[4], false);
  drawn_use(&drawn, adds, gradients[1], true);
  assert_places("---+");
}

/* A step that reads a root and writes another one, or the same. */
static int step_add(int node, int from, int to) {
  int step = drawn_step(&drawn, node, node);
  drawn_use(&drawn, step, from, false);
  drawn_use(&drawn, step, to, true);
  return step;
}

static void what_uses_a_kept_root_that_a_node_writes_stays_with_it(void **state) {
  int x, kept, reorder, reordered, cuts[] = {3};
  (void)state;
  drawn_program_begin(&drawn, 1, 5);
  x = drawn_root(&drawn, 8, true);
  kept = drawn_root(&drawn, 8, false);
  reordered = drawn_root(&drawn, 8, true);
  drawn_step_of(&drawn, 0, (struct drawn_reads){x, -1}, 8);
  step_add(1, x, kept);
  drawn_step_of(&drawn, 2, (struct drawn_reads){kept, -1}, 8);
  reorder = step_add(-1, kept, reordered);
  drawn_step_of(&drawn, 4, (struct drawn_reads){reordered, -1}, 8);
  assert_places("+-++");
  struct stage_slices *slices = stage_slices_new(&drawn.staged, cuts, 1);
  assert_true(stage_has(&slices->stages[0], reorder) && !stage_has(&slices->stages[1], reorder));
  assert_int_equal(slices->edges[0].n_forward, 1);
  assert_int_equal(slices->edges[0].forward[0].origin, reordered);
  stage_slices_free(slices);
}

static void a_step_of_nobody_that_adds_lies_in_all_stages(void **state) {
  int made[4], gradients[4];
  (void)state;
  draw_chain(4, made, gradients);
  step_add(-1, made[0], gradients[3]);
  assert_places("---");
}

static void a_step_of_nobody_that_fills_a_kept_root_from_planned_ones_lies_in_all_stages(void **state) {
  int made[4], gradients[4];
  (void)state;
  draw_chain(4, made, gradients);
  step_add(-1, made[0], drawn_root(&drawn, 8, false));
  assert_places("---");
}

static void assert_crossings(const struct stage_crossing *list, int n, const int *origins, int n_origins) {
  assert_int_equal(n, n_origins);
  for (int i = 0; i < n; i++)
    assert_int_equal(list[i].origin, origins[i]);
}

/* Node 3 and the gradient of node 0 read what others made far away. */
static void what_stages_further_on_need_is_relayed_once(void **state) {
  int x, a, b, c, d, e, cuts[] = {1, 2, 3};
  (void)state;
  drawn_program_begin(&drawn, 1, 4);
  x = drawn_root(&drawn, 8, true);
  a = drawn_step_of(&drawn, 0, (struct drawn_reads){x, -1}, 1);
  b = drawn_step_of(&drawn, 1, (struct drawn_reads){a, -1}, 2);
  c = drawn_step_of(&drawn, 2, (struct drawn_reads){b, a}, 4);
  d = drawn_step_of(&drawn, 3, (struct drawn_reads){c, a}, 8);
  drawn_forward_end(&drawn);
  e = drawn_step_of(&drawn, 3, (struct drawn_reads){d, -1}, 16);
  drawn_step_of(&drawn, 1, (struct drawn_reads){e, b}, 32);
  drawn_step_of(&drawn, 0, (struct drawn_reads){e, c}, 64);
  assert_places("+++");
  struct stage_slices *slices = stage_slices_new(&drawn.staged, cuts, 3);
  const struct stage_edge *edges = slices->edges;
  assert_crossings(edges[0].forward, edges[0].n_forward, (int[]){a}, 1);
  assert_crossings(edges[1].forward, edges[1].n_forward, (int[]){a, b}, 2);
  assert_crossings(edges[2].forward, edges[2].n_forward, (int[]){a, c}, 2);
  assert_crossings(edges[2].backward, edges[2].n_backward, (int[]){e}, 1);
  assert_crossings(edges[1].backward, edges[1].n_backward, (int[]){c, e}, 2); /* c: a forward result */
  assert_crossings(edges[0].backward, edges[0].n_backward, (int[]){c, e}, 2);
  assert_int_equal(edges[0].backward[0].size_bytes, 4);
  stage_slices_free(slices);
}

static void a_stage_writes_over_its_own_copy(void **state) {
  int x, a, over, cuts[] = {1, 2};
  (void)state;
  drawn_program_begin(&drawn, 1, 3);
  x = drawn_root(&drawn, 8, true);
  a = drawn_step_of(&drawn, 0, (struct drawn_reads){x, -1}, 8);
  over = step_add(1, a, a);
  drawn_step_of(&drawn, 2, (struct drawn_reads){a, -1}, 8);
  assert_places("++");
  struct stage_slices *slices = stage_slices_new(&drawn.staged, cuts, 2);
  const struct stage_item *item = &slices->stages[1].items[0];
  assert_int_equal(item->step, over);
  assert_int_equal(item->roots[0], item->roots[1]); /* nobody needs it as it came */
  assert_int_equal(item->roots[1], slices->edges[1].forward[0].lower);
  stage_slices_free(slices);
}

/* Node 2 reads what node 1, which is run later, writes over: node 1's stage passes on what it got. */
static void a_stage_does_not_write_over_what_it_has_to_send(void **state) {
  int x, a, cuts[] = {1, 2};
  (void)state;
  drawn_program_begin(&drawn, 1, 3);
  x = drawn_root(&drawn, 8, true);
  a = drawn_step_of(&drawn, 0, (struct drawn_reads){x, -1}, 8);
  drawn_step_of(&drawn, 2, (struct drawn_reads){a, -1}, 8);
  step_add(1, a, a);
  drawn_step_of(&drawn, 1, (struct drawn_reads){a, -1}, 8);
  assert_places("++");
  struct stage_slices *slices = stage_slices_new(&drawn.staged, cuts, 2);
  const struct stage *stage = &slices->stages[1];
  const struct stage_item *item = &stage->items[0];
  assert_int_equal(slices->edges[1].n_forward, 1);
  assert_int_equal(slices->edges[0].forward[0].upper, item->roots[0]);
  assert_int_equal(slices->edges[1].forward[0].lower, item->roots[0]);
  assert_true(item->roots[1] != item->roots[0] && stage->items[1].roots[0] == item->roots[1]);
  assert_int_equal(stage->roots[item->roots[1]].origin, a);
  stage_slices_free(slices);
}

/* The gradient of node 0 reads a reorder of what node 1 makes. */
static void a_step_of_nobody_waits_for_what_comes_down(void **state) {
  int made[2], gradients[2], reorder, reordered, reader, cuts[] = {1};
  (void)state;
  drawn_program_begin(&drawn, 1, 2);
  made[0] = drawn_step_of(&drawn, 0, (struct drawn_reads){drawn_root(&drawn, 8, true), -1}, 8);
  made[1] = drawn_step_of(&drawn, 1, (struct drawn_reads){made[0], -1}, 8);
  reordered = drawn_root(&drawn, 8, true);
  reorder = step_add(-1, made[1], reordered);
  drawn_forward_end(&drawn);
  gradients[1] = drawn_step_of(&drawn, 1, (struct drawn_reads){reordered, -1}, 8);
  reader = drawn.program.n_steps;
  drawn_step_of(&drawn, 0, (struct drawn_reads){gradients[1], reordered}, 8);
  assert_places("+");
  struct stage_slices *slices = stage_slices_new(&drawn.staged, cuts, 1);
  const struct stage *below = &slices->stages[0], *above = &slices->stages[1];
  assert_int_equal(below->n_forward, 1);
  assert_int_equal(below->n_items, 3);
  assert_int_equal(below->items[1].step, reorder);
  assert_int_equal(below->items[2].step, reader);
  assert_int_equal(above->n_forward, 2);
  assert_int_equal(above->items[1].step, reorder);
  assert_crossings(slices->edges[0].backward, slices->edges[0].n_backward, (int[]){made[1], gradients[1]}, 2);
  stage_slices_free(slices);
}

static void assert_life(const struct stage *stage, int root, int first, int last) {
  assert_int_equal(stage->roots[root].first, first);
  assert_int_equal(stage->roots[root].last, last);
}

/* Events of each stage: 0 arrives, 1 forward, 2 leaves; 3 arrives, 4 backward, 5 leaves. */
static void lives_are_from_event_to_event(void **state) {
  int made[3], gradients[3], cuts[] = {1, 2};
  (void)state;
  draw_chain(3, made, gradients);
  drawn_program_settle(&drawn);
  struct stage_slices *slices = stage_slices_new(&drawn.staged, cuts, 2);
  const struct stage *stages = slices->stages;
  assert_int_equal(stages[1].n_items, 2);
  assert_life(&stages[0], 0, 0, 1);       /* the input */
  assert_life(&stages[0], made[0], 1, 4); /* saved */
  assert_life(&stages[1], made[0], 0, 1); /* received */
  assert_life(&stages[1], made[1], 1, 4);
  assert_life(&stages[1], gradients[2], 3, 4); /* received */
  assert_life(&stages[1], gradients[1], 4, 5); /* sent */
  assert_life(&stages[1], made[2], -1, -1);
  assert_life(&stages[2], made[1], 0, 1);
  assert_life(&stages[0], gradients[1], 3, 4);
  stage_slices_free(slices);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(cuts_are_valid_where_each_step_finds_what_it_reads),
      cmocka_unit_test(stages_have_their_steps_and_what_these_need_crosses_once),
      cmocka_unit_test(a_chain_can_be_cut_everywhere),
      cmocka_unit_test(no_cut_goes_through_a_fused_step),
      cmocka_unit_test(no_cut_lets_a_forward_part_read_what_is_made_above),
      cmocka_unit_test(no_cut_lets_a_backward_part_read_what_is_made_below),
      cmocka_unit_test(a_step_of_nobody_makes_no_cut_invalid_that_its_readers_do_not),
      cmocka_unit_test(what_adds_to_a_content_stays_with_it),
      cmocka_unit_test(what_uses_a_kept_root_that_a_node_writes_stays_with_it),
      cmocka_unit_test(a_step_of_nobody_that_adds_lies_in_all_stages),
      cmocka_unit_test(a_step_of_nobody_that_fills_a_kept_root_from_planned_ones_lies_in_all_stages),
      cmocka_unit_test(what_stages_further_on_need_is_relayed_once),
      cmocka_unit_test(a_stage_writes_over_its_own_copy),
      cmocka_unit_test(a_stage_does_not_write_over_what_it_has_to_send),
      cmocka_unit_test(a_step_of_nobody_waits_for_what_comes_down),
      cmocka_unit_test(lives_are_from_event_to_event),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
