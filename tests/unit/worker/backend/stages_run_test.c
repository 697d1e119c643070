/* Programs that are drawn, cut into stages, and run as a pipeline runs them: several microbatches follow each
   other (1F1B), each stage in memory of its own, with copies of what crosses. Every step reads the same as in
   the whole program, however it is cut. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/worker/drawn_program.h"

enum { PROGRAMS = 400, MICROBATCHES = 5, STAGES_MAX = 32 };

/* A microbatch in a stage: its roots, laid out as their lives allow. */
struct context {
  unsigned char *block, **data; /* NULL: it is not under way */
};

/* What crosses an edge in one direction, by microbatch: copies, all side by side; NULL: not sent. */
struct stream {
  unsigned char *bytes[MICROBATCHES];
};

struct member {
  const struct stage *stage;
  unsigned char **kept;      /* [n_roots of the program] of the stage */
  struct memory_span *spans; /* [n_roots of the stage] */
  size_t block_bytes;
  struct context contexts[MICROBATCHES];
  int n_forward, n_backward; /* microbatches that are through */
};

static struct drawn_program drawn;
static struct stage_slices *slices;
static struct member members[STAGES_MAX];
static struct stream up[STAGES_MAX], down[STAGES_MAX]; /* of the edge above stage i */
static uint64_t seen[MICROBATCHES][DRAWN_STEPS_MAX];
static int runs[MICROBATCHES][DRAWN_STEPS_MAX]; /* how often each step has run */

static bool root_is_used(const struct stage *stage, int r) {
  return stage->roots[r].first >= 0;
}

static bool root_is_of_context(const struct stage *stage, int r) {
  return root_is_used(stage, r) && drawn.is_of_context[stage->roots[r].origin];
}

static size_t root_bytes(const struct stage *stage, int r) {
  return drawn.roots[stage->roots[r].origin].size_bytes;
}

static void member_init(struct member *member, const struct stage *stage) {
  struct memory_span *used = mem_new(((size_t)stage->n_roots + 1) * sizeof *used);
  int n = 0;
  *member = (struct member){.stage = stage};
  member->spans = mem_new(((size_t)stage->n_roots + 1) * sizeof *member->spans);
  member->kept = mem_new(((size_t)drawn.program.n_roots + 1) * sizeof *member->kept);
  for (int r = 0; r < stage->n_roots; r++)
    if (root_is_of_context(stage, r))
      used[n++] = (struct memory_span){root_bytes(stage, r), stage->roots[r].first, stage->roots[r].last, 0};
  member->block_bytes = memory_plan(used, n);
  for (int r = n = 0; r < stage->n_roots; r++)
    if (root_is_of_context(stage, r))
      member->spans[r] = used[n++];
  for (int r = 0; r < drawn.program.n_roots; r++)
    if (root_is_used(stage, r) && !drawn.is_of_context[r]) {
      member->kept[r] = mem_new(root_bytes(stage, r) + 1);
      drawn_root_fill(&drawn, r, 0, member->kept[r]);
    }
  free(used);
}

static void member_fini(struct member *member) {
  for (int r = 0; r < drawn.program.n_roots; r++)
    free(member->kept[r]);
  free(member->kept);
  free(member->spans);
}

static void context_begin(struct member *member, int m) {
  struct context *context = &member->contexts[m];
  const struct stage *stage = member->stage;
  context->block = mem_new(member->block_bytes + 1);
  context->data = mem_new(((size_t)stage->n_roots + 1) * sizeof *context->data);
  memset(context->block, 0x5a, member->block_bytes);
  for (int r = 0; r < stage->n_roots; r++) {
    if (!root_is_of_context(stage, r)) {
      context->data[r] = r < drawn.program.n_roots ? member->kept[r] : NULL;
      continue;
    }
    context->data[r] = context->block + member->spans[r].offset;
    if (r < drawn.program.n_roots && drawn.is_input[r] && stage->roots[r].first == 0)
      drawn_root_fill(&drawn, r, m, context->data[r]);
  }
}

static void context_end(struct member *member, int m) {
  free(member->contexts[m].block);
  free(member->contexts[m].data);
  member->contexts[m] = (struct context){NULL, NULL};
}

static void item_arguments(const struct member *member, int m, int item, unsigned char **arguments) {
  const struct stage_item *it = &member->stage->items[item];
  for (int u = 0; u < drawn.steps[it->step].n_uses; u++)
    arguments[u] = member->contexts[m].data[it->roots[u]];
}

/* What is read until this step has run is as it was. */
static void check_until(const struct member *member, int m, int last) {
  int step = member->stage->items[last].step;
  for (int i = 0; i < last; i++) {
    const struct stage_item *item = &member->stage->items[i];
    unsigned char *arguments[DRAWN_USES_MAX];
    if (drawn.steps[item->step].until < step || item->step > step)
      continue;
    item_arguments(member, m, i, arguments);
    assert_true(drawn_step_hash(&drawn, item->step, arguments) == seen[m][item->step]);
  }
}

static void items_run(struct member *member, int m, int begin, int end) {
  for (int i = begin; i < end; i++) {
    unsigned char *arguments[DRAWN_USES_MAX];
    int step = member->stage->items[i].step;
    item_arguments(member, m, i, arguments);
    assert_true(drawn_step_run(&drawn, step, arguments) == seen[m][step]);
    runs[m][step]++;
    check_until(member, m, i);
  }
}

/* What crosses, and on which side of it the stage is. */
struct side {
  const struct stage_crossing *list;
  int n;
  bool is_lower;
};

/* Between the stage's roots and bytes, which take all of them side by side. */
static void side_copy(const struct side *side, const struct context *context, unsigned char *bytes,
                      bool is_sent) {
  for (int i = 0; i < side->n; i++) {
    unsigned char *data = context->data[side->is_lower ? side->list[i].lower : side->list[i].upper];
    memcpy(is_sent ? bytes : data, is_sent ? data : bytes, side->list[i].size_bytes);
    bytes += side->list[i].size_bytes;
  }
}

static unsigned char *side_send(const struct side *side, const struct context *context) {
  size_t size_bytes = 1;
  for (int i = 0; i < side->n; i++)
    size_bytes += side->list[i].size_bytes;
  unsigned char *bytes = mem_new(size_bytes);
  side_copy(side, context, bytes, true);
  return bytes;
}

static struct side side_of(int edge, bool is_upwards, bool is_lower) {
  const struct stage_edge *of = &slices->edges[edge];
  return (struct side){is_upwards ? of->forward : of->backward, is_upwards ? of->n_forward : of->n_backward,
                       is_lower};
}

static void forward_run(int s) {
  struct member *member = &members[s];
  int m = member->n_forward++;
  context_begin(member, m);
  if (s > 0) {
    struct side side = side_of(s - 1, true, false);
    side_copy(&side, &member->contexts[m], up[s - 1].bytes[m], false);
  }
  items_run(member, m, 0, member->stage->n_forward);
  if (s + 1 < slices->n_stages) {
    struct side side = side_of(s, true, true);
    up[s].bytes[m] = side_send(&side, &member->contexts[m]);
  }
}

static void backward_run(int s) {
  struct member *member = &members[s];
  int m = member->n_backward++;
  if (s + 1 < slices->n_stages) {
    struct side side = side_of(s, false, true);
    side_copy(&side, &member->contexts[m], down[s].bytes[m], false);
  }
  items_run(member, m, member->stage->n_forward, member->stage->n_items);
  if (s > 0) {
    struct side side = side_of(s - 1, false, false);
    down[s - 1].bytes[m] = side_send(&side, &member->contexts[m]);
  }
  context_end(member, m);
}

/* Backward if that is ready, else forward if few enough are in flight. False: it waits. */
static bool member_step(int s) {
  struct member *member = &members[s];
  int b = member->n_backward, f = member->n_forward;
  bool is_last = s + 1 == slices->n_stages;
  if (b < f && (is_last || down[s].bytes[b])) {
    backward_run(s);
    return true;
  }
  if (f == MICROBATCHES || f - b >= slices->n_stages - s || (s > 0 && !up[s - 1].bytes[f]))
    return false;
  forward_run(s);
  return true;
}

static void pipeline_run(void) {
  memset(runs, 0, sizeof runs);
  memset(up, 0, sizeof up);
  memset(down, 0, sizeof down);
  for (int s = 0; s < slices->n_stages; s++)
    member_init(&members[s], &slices->stages[s]);
  for (int left = 2 * MICROBATCHES * slices->n_stages; left > 0;)
    left -= member_step(drawn_below(&drawn, slices->n_stages));
  for (int s = 0; s < slices->n_stages; s++) {
    member_fini(&members[s]);
    for (int m = 0; m < MICROBATCHES; m++) {
      free(up[s].bytes[m]);
      free(down[s].bytes[m]);
    }
  }
}

/* Every step with nodes has run once for each microbatch. Returns how many runs of nobody's steps there were.
 */
static int check_runs(void) {
  int n_of_nobody = 0;
  for (int m = 0; m < MICROBATCHES; m++)
    for (int s = 0; s < drawn.program.n_steps; s++) {
      if (drawn.spans[s].first >= 0)
        assert_int_equal(runs[m][s], 1);
      else
        n_of_nobody += runs[m][s];
    }
  return n_of_nobody;
}

/* Some of the valid places. Returns how many. */
static int cuts_draw(int *cuts) {
  static bool is_valid[64];
  int n = 0, rarity = 1 + drawn_below(&drawn, 6);
  stages_find_places(&drawn.staged, is_valid);
  for (int p = 0; p <= drawn.staged.n_nodes; p++)
    if (is_valid[p] && drawn_below(&drawn, rarity) == 0)
      cuts[n++] = p;
  return n;
}

static void every_step_reads_the_same_however_the_program_is_cut(void **state) {
  int n_cuts = 0, n_crossings = 0, n_repeated = 0;
  (void)state;
  for (uint64_t seed = 1; seed <= PROGRAMS; seed++) {
    int cuts[STAGES_MAX], whole = 0;
    drawn_program_draw(&drawn, seed, seed % 2 == 0);
    for (int m = 0; m < MICROBATCHES; m++)
      drawn_program_run(&drawn, m, seen[m]);
    for (int way = 0; way < 3; way++) {
      int n = way ? cuts_draw(cuts) : 0;
      slices = stage_slices_new(&drawn.staged, cuts, n);
      pipeline_run();
      int n_of_nobody = check_runs();
      whole = way ? whole : n_of_nobody;
      n_repeated += n_of_nobody > whole;
      n_cuts += n;
      for (int e = 0; e < n; e++)
        n_crossings += slices->edges[e].n_forward + slices->edges[e].n_backward;
      stage_slices_free(slices);
    }
  }
  assert_true(n_cuts > 4 * PROGRAMS && n_crossings > 30 * PROGRAMS && n_repeated > PROGRAMS / 4);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_step_reads_the_same_however_the_program_is_cut),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
