/* Forks from memory: a fork refers to its parent's buffers where they are as its base says, and whatever the
   two do after that, neither changes a bit of the other. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "common/agree/spec.h"
#include "common/base/log.h"
#include "tests/support/parameters/fork_fixture.h"
#include "tests/support/parameters/parameters_calls.h"

/* What every block of a run has: weights, then slots. */
struct bits {
  void *content[BLOCKS];
  size_t size_bytes[BLOCKS];
};

static void bits_read(struct bits *bits, const struct hosted_run *run) {
  for (uint32_t b = 0; b < BLOCKS; b++)
    bits->content[b] = read_content(run, b, &bits->size_bytes[b]);
}

static void bits_free(struct bits *bits) {
  for (uint32_t b = 0; b < BLOCKS; b++)
    free(bits->content[b]);
}

static bool bits_are_same(const struct bits *a, const struct bits *b) {
  for (uint32_t i = 0; i < BLOCKS; i++)
    if (a->size_bytes[i] != b->size_bytes[i] || memcmp(a->content[i], b->content[i], a->size_bytes[i]) != 0)
      return false;
  return true;
}

static bool has_bits(const struct hosted_run *run, const struct bits *expected) {
  struct bits bits;
  bool are_same;
  bits_read(&bits, run);
  are_same = bits_are_same(&bits, expected);
  bits_free(&bits);
  return are_same;
}

static bool is_shared(const struct hosted_run *a, const struct hosted_run *b, uint32_t block) {
  return a->blocks[block].current == b->blocks[block].current;
}

/* "unit-2" with nothing changed, of "unit-1" as it stands. */
static void load_unchanged(struct fork_fixture *f, struct forked *fork) {
  Weir__ForkSource from = fork_source(f);
  fork_load(f, &(struct fork_order){"unit-2", "unit-1", f->spec, 0, 1, &from}, fork);
}

static void fork_end(struct fork_fixture *f, struct forked *fork) {
  run_table_remove(&f->parent.snapshots.server.runs, "unit-2", "the test is over");
  hosted_run_put(fork->run);
}

/* The workers of a run push a step of it. */
static void run_steps(struct fork_fixture *f, const char *run, uint64_t step) {
  f->parent.snapshots.server.called = run;
  push_version(&f->parent.snapshots.server, step);
  f->parent.snapshots.server.called = NULL;
}

static void a_fork_refers_to_its_parents_buffers_and_reads_nothing(void **state) {
  struct fork_fixture f;
  struct forked fork;
  const struct hosted_run *parent;
  (void)state;
  fork_fixture_init(&f, make_order(1, 1), 1);
  parent = f.parent.snapshots.run;
  fork_hide_blocks(&f.parent.snapshots.store);
  load_unchanged(&f, &fork);
  assert_int_equal(fork.n_adopted, BLOCKS);
  assert_int_equal(fork.restored.bytes, 0);
  for (uint32_t b = 0; b < BLOCKS; b++) {
    assert_true(is_shared(fork.run, parent, b));
    assert_ptr_equal(fork.run->blocks[b].slots, parent->blocks[b].slots);
    assert_int_equal(fork.run->blocks[b].version, 1);
  }
  fork_end(&f, &fork);
  for (uint32_t b = 0; b < BLOCKS; b++)
    assert_true(buffer_is_sole(parent->blocks[b].current));
  fork_fixture_fini(&f);
}

/* One makes a step of its own, then the other, to the end; first: who is before the other. */
static void assert_apart(const char *first, const char *second) {
  struct fork_fixture f;
  struct forked fork;
  struct bits before, after;
  const struct hosted_run *runs[2];
  fork_fixture_init(&f, make_order(1, 1), 1);
  load_unchanged(&f, &fork);
  fork_begin(&f, fork.run);
  runs[strcmp(first, "unit-1") != 0] = f.parent.snapshots.run;
  runs[strcmp(first, "unit-1") == 0] = fork.run;
  for (uint64_t step = 1; step < STEPS; step++) {
    bits_read(&before, runs[1]);
    run_steps(&f, first, step);
    assert_true(has_bits(runs[1], &before));
    bits_free(&before);
    bits_read(&after, runs[0]);
    run_steps(&f, second, step);
    assert_true(has_bits(runs[1], &after)); /* the same step of the same bits */
    assert_true(has_bits(runs[0], &after));
    bits_free(&after);
    for (uint32_t b = 0; b < BLOCKS; b++)
      assert_false(is_shared(runs[0], runs[1], b) ||
                   (runs[0]->blocks[b].slots && runs[0]->blocks[b].slots == runs[1]->blocks[b].slots));
  }
  fork_end(&f, &fork);
  fork_fixture_fini(&f);
}

static void a_step_of_either_leaves_the_other_as_it_is(void **state) {
  (void)state;
  assert_apart("unit-1", "unit-2");
  assert_apart("unit-2", "unit-1");
}

static void slots_are_updated_in_place_again_when_nobody_else_refers_to_them(void **state) {
  struct fork_fixture f;
  struct forked fork;
  const struct buffer *slots;
  (void)state;
  fork_fixture_init(&f, make_order(1, 1), 1);
  load_unchanged(&f, &fork);
  fork_begin(&f, fork.run);
  slots = f.parent.snapshots.run->blocks[0].slots;
  run_steps(&f, "unit-2", 1);
  assert_ptr_not_equal(fork.run->blocks[0].slots, slots);
  run_steps(&f, "unit-1", 1);
  assert_ptr_equal(f.parent.snapshots.run->blocks[0].slots, slots);
  slots = fork.run->blocks[0].slots;
  run_steps(&f, "unit-2", 2);
  assert_ptr_equal(fork.run->blocks[0].slots, slots);
  fork_end(&f, &fork);
  fork_fixture_fini(&f);
}

/* Ends the run that the fixture began with. */
static void parent_ends(struct fork_fixture *f) {
  hosted_run_put(f->parent.snapshots.run);
  f->parent.snapshots.run = NULL;
  run_table_remove(&f->parent.snapshots.server.runs, "unit-1", "it was cancelled");
  for (int s = 0; s < 2; s++)
    shard_settle(f->parent.snapshots.server.shards[s]);
}

static void a_fork_outlives_the_parent_whose_memory_it_has(void **state) {
  struct fork_fixture f;
  struct forked fork;
  struct bits bits;
  (void)state;
  fork_fixture_init(&f, make_order(1, 1), 1);
  load_unchanged(&f, &fork);
  fork_begin(&f, fork.run);
  bits_read(&bits, fork.run);
  parent_ends(&f);
  assert_true(has_bits(fork.run, &bits));
  assert_true(buffer_is_sole(fork.run->blocks[0].current));
  run_steps(&f, "unit-2", 1);
  run_steps(&f, "unit-2", 2);
  bits_free(&bits);
  fork_end(&f, &fork);
  fork_fixture_fini(&f);
}

/* The parent has gone on to the version. */
static void assert_adopts_of_later(uint64_t version, bool has_momentum, uint32_t expected) {
  struct fork_fixture f;
  struct forked fork, read;
  struct bits bits;
  const Weir__LoadRun *order = make_order(1, 1);
  order->spec->train->optimizer->momentum = has_momentum ? 0.5 : 0;
  fork_fixture_init(&f, order, 1);
  for (uint64_t step = 1; step < version; step++)
    run_steps(&f, "unit-1", step);
  load_unchanged(&f, &fork);
  assert_int_equal(fork.n_adopted, expected);
  fork_load(&f, &(struct fork_order){"unit-3", "unit-1", f.spec, 0, 1, NULL}, &read);
  assert_int_equal(read.restored.n_blocks, BLOCKS);
  bits_read(&bits, read.run);
  assert_true(has_bits(fork.run, &bits));
  bits_free(&bits);
  hosted_run_put(read.run);
  fork_end(&f, &fork);
  fork_fixture_fini(&f);
}

/* The version before the newest is there until a push of the newest step proves that nobody needs it. Slots
   are those of the newest alone. */
static void a_parent_that_has_gone_on_gives_what_it_still_has(void **state) {
  (void)state;
  assert_adopts_of_later(2, true, 1); /* the running statistics */
  assert_adopts_of_later(2, false, BLOCKS);
  assert_adopts_of_later(3, true, 0);
  assert_adopts_of_later(3, false, 0);
}

static void assert_adopts_nothing(struct fork_fixture *f, Weir__ForkSource from) {
  struct forked fork;
  fork_load(f, &(struct fork_order){"unit-2", "unit-1", f->spec, 0, 1, &from}, &fork);
  assert_int_equal(fork.n_adopted, 0);
  assert_int_equal(fork.restored.n_blocks, fork.run->n_own);
  fork_end(f, &fork);
}

static void garbage_is_read_from_the_store(void **state) {
  struct fork_fixture f;
  Weir__ForkSource from;
  static char *const ids[] = {"", "unit", "unit-2", "unit-9", "../unit-1", "unit-1 ", "%s%n\xff"};
  (void)state;
  fork_fixture_init(&f, make_order(1, 1), 1);
  for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
    from = fork_source(&f);
    from.run = ids[i];
    assert_adopts_nothing(&f, from);
  }
  for (int shift = 0; shift < 64; shift++) {
    from = fork_source(&f);
    from.incarnation = shift ? UINT64_MAX >> (shift - 1) : 0;
    if (from.incarnation != 1)
      assert_adopts_nothing(&f, from);
    from.incarnation = 1;
    from.step = shift ? UINT64_MAX >> (shift - 1) : 0;
    if (from.step != 1)
      assert_adopts_nothing(&f, from);
  }
  from = fork_source(&f);
  f.parent.snapshots.run->cut_hash ^= 1; /* as of another model, whose blocks are as large */
  assert_adopts_nothing(&f, from);
  fork_fixture_fini(&f);
}

/* Of the run that leaves these tensors alone. */
static uint64_t cut_without(struct parameters_fixture *f, char *frozen, const char *own_id, size_t servers) {
  Weir__LoadRun order = *make_order(1, servers);
  struct hosted_run *run;
  struct err err;
  uint64_t hash;
  order.spec->model->frozen = &frozen;
  order.spec->model->n_frozen = frozen ? 1 : 0;
  if (make_run(f, &order, own_id, &run, &err))
    fail_msg("%s", err.text);
  hash = run->cut_hash;
  hosted_run_put(run);
  return hash;
}

static void runs_that_train_other_tensors_have_other_cuts(void **state) {
  struct parameters_fixture f;
  (void)state;
  parameters_fixture_init(&f, 1);
  assert_true(cut_without(&f, NULL, "server-1", 1) == cut_without(&f, NULL, "server-2", 2));
  assert_true(cut_without(&f, NULL, "server-1", 1) != cut_without(&f, "head.bias", "server-1", 1));
  /* of one size */
  assert_true(cut_without(&f, "fc1_bn.bias", "server-1", 1) !=
              cut_without(&f, "fc1_bn.weight", "server-1", 1));
  parameters_fixture_fini(&f);
}

static void a_fork_on_more_servers_adopts_its_own_blocks(void **state) {
  struct fork_fixture f;
  struct forked fork;
  Weir__ForkSource from;
  (void)state;
  fork_fixture_init(&f, make_order(1, 1), 1);
  from = fork_source(&f);
  for (size_t servers = 2; servers <= SERVERS_MAX; servers++) {
    fork_load(&f, &(struct fork_order){"unit-2", "unit-1", f.spec, 0, servers, &from}, &fork);
    assert_true(fork.run->n_own > 0 && fork.run->n_own < BLOCKS);
    assert_int_equal(fork.n_adopted, fork.run->n_own);
    for (uint32_t b = 0; b < fork.run->n_own; b++)
      assert_ptr_equal(fork.run->blocks[b].current,
                       f.parent.snapshots.run->blocks[fork.run->blocks[b].index].current);
    fork_end(&f, &fork);
  }
  fork_fixture_fini(&f);
}

/* What a fork keeps of each weight beside what its parent keeps. */
enum kept { SAME, LESS, MORE, OF_SAME_SIZE, KEPT_WAYS };

static void keep(Weir__RunSpec *spec, enum kept way, bool is_averaged) {
  Weir__OptimizerSpec *optimizer = spec->train->optimizer;
  static const char *const names[KEPT_WAYS] = {[MORE] = "adam", [OF_SAME_SIZE] = "lion"};
  if (names[way]) {
    optimizer->name = mem_strdup(names[way]); /* in the place of the default, which is nobody's */
    optimizer->has_momentum = false;
  }
  if (way == LESS)
    optimizer->momentum = 0;
  if (!is_averaged)
    return;
  spec->train->average = mem_new(sizeof *spec->train->average);
  weir__average_spec__init(spec->train->average);
  spec->train->average->has_decay = true;
  spec->train->average->decay = 0.5;
}

/* What the fork has of the average, where both keep one. */
static void assert_average_goes_on(const struct hosted_run *parent, const struct hosted_run *fork) {
  for (uint32_t b = 0; b < STATISTICS_BLOCK; b++) {
    const struct hosted_block *was = &parent->blocks[b], *is = &fork->blocks[b];
    assert_memory_equal(hosted_block_average(was, was->slots), hosted_block_average(is, is->slots),
                        is->current->size_bytes);
    assert_memory_not_equal(is->current->data, hosted_block_average(is, is->slots), is->current->size_bytes);
  }
}

/* A fork whose blocks lie otherwise, from memory and from the store. */
static void assert_is_same_from_memory(struct fork_fixture *f, const char *of, enum kept way,
                                       bool is_averaged, bool is_adopted) {
  Weir__RunSpec *spec = spec_copy(make_order(1, 1)->spec);
  Weir__ForkSource from = fork_source(f);
  struct forked fork, read;
  struct bits bits;
  uint64_t slots_step;
  keep(spec, way, is_averaged);
  slots_step = way == SAME ? 0 : f->parent.version;
  from.run = (char *)of;
  fork_load(f, &(struct fork_order){"unit-5", of, spec, slots_step, 1, &from}, &fork);
  fork_load(f, &(struct fork_order){"unit-6", of, spec, slots_step, 1, NULL}, &read);
  assert_int_equal(fork.n_adopted, is_adopted ? BLOCKS : 0);
  bits_read(&bits, read.run);
  assert_true(has_bits(fork.run, &bits));
  if (is_averaged && f->spec->train->average)
    assert_average_goes_on(f->parent.snapshots.run, fork.run);
  bits_free(&bits);
  hosted_run_put(fork.run);
  hosted_run_put(read.run);
  spec_free(spec);
}

static void slots_that_lie_otherwise_are_what_the_store_would_give(void **state) {
  struct fork_fixture f;
  (void)state;
  for (int is_averaged = 0; is_averaged < 2; is_averaged++) {
    Weir__LoadRun order = *make_order(1, 1);
    order.spec = spec_copy(order.spec);
    keep(order.spec, SAME, is_averaged);
    fork_fixture_init(&f, &order, 2);
    for (int way = 0; way < KEPT_WAYS; way++)
      for (int keeps_average = 0; keeps_average < 2; keeps_average++)
        assert_is_same_from_memory(&f, "unit-1", (enum kept)way, keeps_average, true);
    fork_fixture_fini(&f);
    spec_free(order.spec);
  }
}

/* The fork's slots are new and as large as its parent's, whose slots are what its base names: a fork of the
   fork there has those of the base. */
static void a_fork_of_a_fork_that_keeps_other_values_is_read_from_the_store(void **state) {
  struct fork_fixture f;
  struct forked fork;
  Weir__RunSpec *other;
  Weir__ForkSource from;
  (void)state;
  fork_fixture_init(&f, make_order(1, 1), 1);
  other = spec_copy(f.spec);
  keep(other, OF_SAME_SIZE, false);
  from = fork_source(&f);
  fork_load(&f, &(struct fork_order){"unit-2", "unit-1", other, 1, 1, &from}, &fork);
  assert_int_equal(fork.n_adopted, BLOCKS);
  assert_true(is_shared(fork.run, f.parent.snapshots.run, 0));
  fork_begin(&f, fork.run);
  assert_is_same_from_memory(&f, "unit-2", SAME, false, false);
  fork_end(&f, &fork);
  load_unchanged(&f, &fork);
  fork_begin(&f, fork.run);
  assert_is_same_from_memory(&f, "unit-2", SAME, false, true); /* and one whose parent changed nothing */
  assert_is_same_from_memory(&f, "unit-2", MORE, true, true);
  fork_end(&f, &fork);
  spec_free(other);
  fork_fixture_fini(&f);
}

/* Pushes all parts of the block, whose update has to wait for others'. */
static void push_waiting_step(struct parameters_fixture *server, uint32_t block, uint64_t step) {
  for (uint32_t m = 0; m < MICROBATCHES; m++) {
    struct attempt attempt;
    start_part(server, &attempt, block, step, m);
    attempt_finish(&attempt);
    assert_int_equal(attempt.err.code, 0);
    free(attempt.data);
  }
}

/* The update of a block that has all of its parts waits for sums over the others. It has no memory to move
   slots to, which are its own; then a fork refers to them. */
static void an_update_that_waits_for_sums_goes_on_beside_a_fork(void **state) {
  struct fork_fixture f;
  struct forked parent, fork;
  struct bits bits;
  struct parameters_fixture *server = &f.parent.snapshots.server;
  Weir__ForkSource from;
  struct attempt last;
  (void)state;
  fork_fixture_init(&f, make_order(1, 1), 1);
  f.spec->train->has_clip_norm = true;
  f.spec->train->clip_norm = 1;
  load_unchanged(&f, &parent);
  fork_begin(&f, parent.run);
  parent_ends(&f);
  server->called = "unit-2";
  push_waiting_step(server, 0, 1);
  assert_true(parent.run->blocks[0].update.is_waiting && !parent.run->blocks[0].next_slots);
  from = fork_source(&f);
  from.run = (char *)"unit-2";
  fork_load(&f, &(struct fork_order){"unit-3", "unit-2", f.spec, 0, 1, &from}, &fork);
  assert_int_equal(fork.n_adopted, BLOCKS);
  bits_read(&bits, fork.run);
  push_waiting_step(server, 1, 1);
  push_waiting_step(server, 2, 1);
  push_rows(server, 1);
  start_pull(server, &last, 0, 2);
  finish_with_version(&last, 2);
  assert_true(has_bits(fork.run, &bits));
  bits_free(&bits);
  hosted_run_put(fork.run);
  fork_end(&f, &parent);
  fork_fixture_fini(&f);
}

int main(void) {
  float_setting_apply();
  log_set_level(LOG_ERROR);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_fork_refers_to_its_parents_buffers_and_reads_nothing),
      cmocka_unit_test(a_step_of_either_leaves_the_other_as_it_is),
      cmocka_unit_test(slots_are_updated_in_place_again_when_nobody_else_refers_to_them),
      cmocka_unit_test(a_fork_outlives_the_parent_whose_memory_it_has),
      cmocka_unit_test(a_parent_that_has_gone_on_gives_what_it_still_has),
      cmocka_unit_test(garbage_is_read_from_the_store),
      cmocka_unit_test(runs_that_train_other_tensors_have_other_cuts),
      cmocka_unit_test(a_fork_on_more_servers_adopts_its_own_blocks),
      cmocka_unit_test(slots_that_lie_otherwise_are_what_the_store_would_give),
      cmocka_unit_test(a_fork_of_a_fork_that_keeps_other_values_is_read_from_the_store),
      cmocka_unit_test(an_update_that_waits_for_sums_goes_on_beside_a_fork),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
