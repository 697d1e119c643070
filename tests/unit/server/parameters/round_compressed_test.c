/* Gradients that are compressed on their way: whichever workers compute which microbatches, and in whatever
   order parts come, the sum has the bits of the definition: each sum of the wire level is rounded once, what
   is below and above it is added as ever. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "common/agree/float_setting.h"
#include "common/agree/random.h"
#include "common/agree/sum.h"
#include "server/parameters/round/round.h"

enum { ELEMS = COMPRESSOR_RANGE + 5, V_MAX = 9, WORKERS_MAX = 4, TRIALS = 12, BLOCK = 3, STEP = 11 };

struct fixture {
  struct compression compression;
  struct budget budget;
  struct pool pool;
  struct round round;
  float leaf[V_MAX][ELEMS];
  bool is_sent_whole[V_MAX]; /* [first microbatch of a node of the wire level]: a worker compressed it */
};

static void fixture_init(struct fixture *f, const char *name, uint32_t microbatches, uint32_t parts) {
  Weir__TrainSpec train = WEIR__TRAIN_SPEC__INIT;
  Weir__CompressionSpec spec = WEIR__COMPRESSION_SPEC__INIT;
  train.microbatches = microbatches;
  train.seed = 2;
  train.has_seed = true;
  train.compression = &spec;
  spec.gradients = (char *)name;
  spec.parts = parts;
  f->compression = compression_of(&train);
  memset(f->is_sent_whole, 0, sizeof f->is_sent_whole);
  for (uint32_t m = 0; m < microbatches; m++)
    for (uint64_t i = 0; i < ELEMS; i++)
      f->leaf[m][i] = ldexpf(random_uniform(7, m * ELEMS + i) - 0.5f, (int)(random_bits(8, m + i) % 12));
  f->budget = (struct budget){.bytes_max = SIZE_MAX};
  pool_init(&f->pool, &f->budget);
  round_init(&f->round, microbatches, ELEMS, &f->pool);
  f->round.compression = &f->compression;
  f->round.block = BLOCK;
}

static void fixture_fini(struct fixture *f) {
  round_fini(&f->round);
  pool_fini(&f->pool);
}

static uint64_t key_of(const struct fixture *f, struct tree_node node) {
  return compression_key(&f->compression, &(struct wire_sum){STEP, BLOCK, node});
}

/* What a worker has that adds, and rounds nothing. */
static void sum_plain(const struct fixture *f, struct tree_node node, float *out) {
  struct tree_node left = {node.first, node.level - 1}, right = left;
  float of_right[ELEMS];
  if (node.level == 0) {
    memcpy(out, f->leaf[node.first], sizeof of_right);
    return;
  }
  right.first += 1u << left.level;
  sum_plain(f, left, out);
  if (right.first >= f->compression.microbatches)
    return;
  sum_plain(f, right, of_right);
  sum_add(out, of_right, ELEMS);
}

/* The definition. With feedback, what meets on the server stays as it is. */
static void sum_node(const struct fixture *f, struct tree_node node, float *out) {
  struct tree_node left = {node.first, node.level - 1}, right = left;
  float of_right[ELEMS];
  if (node.level == f->compression.level) {
    sum_plain(f, node, out);
    if (!f->compression.gradients->has_feedback || f->is_sent_whole[node.first])
      compressor_round(f->compression.gradients, key_of(f, node), out, ELEMS);
    return;
  }
  right.first += 1u << left.level;
  sum_node(f, left, out);
  if (right.first >= f->compression.microbatches)
    return;
  sum_node(f, right, of_right);
  sum_add(out, of_right, ELEMS);
}

static int push(struct fixture *f, struct tree_node node, struct err *err) {
  float values[ELEMS];
  struct part part = {.step = STEP, .node = node, .values = values};
  sum_plain(f, node, values);
  if (compression_form(&f->compression, node) == SUM_IS_COMPRESSED) {
    compressor_encode(f->compression.gradients, key_of(f, node), values, ELEMS, values);
    f->is_sent_whole[node.first] = true;
  }
  *err = ERR_NONE;
  return round_add(&f->round, &part, err);
}

/* The nodes of [begin, end) that a worker sends: as it would without compression, but none above the wire
 * level. */
static int cover(const struct fixture *f, uint32_t begin, uint32_t end, struct tree_node *nodes) {
  uint32_t n = f->compression.microbatches, group = 1u << f->compression.level;
  int count = 0;
  while (begin < end) {
    struct tree_node covered[TREE_COVER_MAX];
    uint32_t next = begin / group * group + group;
    int n_covered;
    next = next < end ? next : end;
    n_covered = tree_cover(begin, next, n, covered);
    memcpy(nodes + count, covered, (size_t)n_covered * sizeof *nodes);
    count += n_covered;
    begin = next;
  }
  return count;
}

/* Workers at drawn borders, their parts in a drawn order, some of them twice. */
static void push_drawn(struct fixture *f, uint64_t key) {
  uint32_t n = f->compression.microbatches, borders[WORKERS_MAX + 1] = {0};
  struct tree_node nodes[2 * V_MAX];
  int n_nodes = 0;
  struct err err;
  for (int w = 1; w <= WORKERS_MAX; w++) {
    uint32_t left = n - borders[w - 1];
    borders[w] =
        w == WORKERS_MAX ? n : borders[w - 1] + (uint32_t)(random_bits(key, (uint64_t)w) % (left + 1));
    n_nodes += cover(f, borders[w - 1], borders[w], nodes + n_nodes);
  }
  for (int i = 0; i < n_nodes; i++) {
    int other = i + (int)(random_bits(key, 100 + (uint64_t)i) % (uint64_t)(n_nodes - i));
    struct tree_node next = nodes[other];
    nodes[other] = nodes[i];
    nodes[i] = next;
    assert_int_not_equal(compression_form(&f->compression, next), SUM_IS_TOO_HIGH);
    if (push(f, next, &err) || (i % 2 && push(f, next, &err)))
      fail_msg("(%u, %u): %s", next.first, next.level, err.text);
  }
}

static void any_workers_make_the_bits_of_the_definition(void **state) {
  const struct compressor_def *compressor;
  (void)state;
  for (int c = 0; (compressor = compressor_at(c)); c++)
    for (uint32_t v = 1; v <= V_MAX; v++)
      for (uint32_t parts = 1; parts <= v; parts++) {
        struct fixture f;
        float whole[ELEMS];
        fixture_init(&f, compressor->name, v, parts);
        for (uint64_t trial = 0; trial < TRIALS; trial++) {
          push_drawn(&f, random_key(v, parts, trial, 0));
          sum_node(&f, tree_root(v), whole);
          assert_non_null(round_sum(&f.round));
          if (memcmp(round_sum(&f.round), whole, sizeof whole) != 0)
            fail_msg("%s, %u microbatches in %u parts, trial %d", compressor->name, v, parts, (int)trial);
          round_clear(&f.round);
          memset(f.is_sent_whole, 0, sizeof f.is_sent_whole);
        }
        fixture_fini(&f);
      }
}

static void what_no_compressor_makes_is_refused_and_changes_nothing(void **state) {
  const struct compressor_def *compressor;
  (void)state;
  for (int c = 0; (compressor = compressor_at(c)); c++) {
    struct fixture f;
    float whole[ELEMS];
    uint8_t garbage[ELEMS * sizeof(float)];
    struct part part = {.step = STEP, .node = {0, 2}, .values = garbage};
    struct err err = ERR_NONE;
    fixture_init(&f, compressor->name, 8, 2);
    memset(garbage, 0xff, sizeof garbage);
    assert_int_equal(push(&f, (struct tree_node){1, 0}, &err), 0);
    assert_int_equal(round_add(&f.round, &part, &err), ERR_INVALID);
    assert_non_null(strstr(err.text, compressor->name));
    assert_int_equal(f.round.n_parts, 1);
    for (uint32_t m = 0; m < 4; m++)
      assert_int_equal(push(&f, (struct tree_node){m, 0}, &err), 0);
    assert_int_equal(push(&f, (struct tree_node){4, 2}, &err), 0);
    sum_node(&f, tree_root(8), whole);
    assert_memory_equal(round_sum(&f.round), whole, sizeof whole);
    fixture_fini(&f);
  }
}

/* Lower parts whose sum overflows are doubted as ever; computed again they make the same bits. */
static int n_doubted, n_judged;

static void on_doubted(void *user, const struct accepted *parts, int n) {
  (void)user, (void)parts;
  n_doubted += n;
}

static void on_judged(void *user, const struct judgement *judgement) {
  (void)user;
  n_judged += judgement->n_changed;
}

static void a_sum_that_overflows_below_the_wire_is_doubted(void **state) {
  struct fixture f;
  float whole[ELEMS], broken[ELEMS];
  struct part part = {.step = STEP, .node = {1, 0}, .values = broken};
  struct err err = ERR_NONE;
  (void)state;
  n_doubted = n_judged = 0;
  fixture_init(&f, "int8", 4, 2);
  f.round.listener = (struct round_listener){.on_doubted = on_doubted, .on_judged = on_judged};
  f.leaf[0][0] = 3e38f;
  f.leaf[1][0] = -3e38f;
  sum_node(&f, tree_root(4), whole);
  memcpy(broken, f.leaf[1], sizeof broken);
  broken[0] = 3e38f;
  assert_int_equal(push(&f, (struct tree_node){2, 1}, &err), 0);
  assert_int_equal(push(&f, (struct tree_node){0, 0}, &err), 0);
  assert_int_equal(round_add(&f.round, &part, &err), 0);
  assert_int_equal(n_doubted, 2);
  assert_null(round_sum(&f.round));
  assert_int_equal(push(&f, (struct tree_node){0, 0}, &err), 0);
  assert_int_equal(push(&f, (struct tree_node){1, 0}, &err), 0);
  assert_int_equal(n_judged, 1);
  assert_memory_equal(round_sum(&f.round), whole, sizeof whole);
  fixture_fini(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(any_workers_make_the_bits_of_the_definition),
      cmocka_unit_test(what_no_compressor_makes_is_refused_and_changes_nothing),
      cmocka_unit_test(a_sum_that_overflows_below_the_wire_is_doubted),
  };
  float_setting_apply();
  return cmocka_run_group_tests(tests, NULL, NULL);
}
