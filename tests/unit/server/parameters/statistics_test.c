/* Rows come in any order and are merged in the microbatches' order. */
#include <malloc.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "server/parameters/round/statistics.h"

enum { MICROBATCHES = 3, CHUNKS = 2, ELEMS = METRICS + 2 };

struct fixture {
  struct statistics statistics;
};

/* A block with the metrics and two running statistics of one element, of momenta 0.9 and 0.5. */
static void fixture_init(struct fixture *fixture) {
  struct statistic of_model[] = {{.begin = METRICS, .elems = 1, .momentum = 0.9f},
                                 {.begin = METRICS + 1, .elems = 1, .momentum = 0.5f}};
  struct model model = {.statistics = of_model, .n_statistics = 2, .metrics.row_elems = METRICS};
  struct block block = {.kind = BLOCK_STATISTICS, .begin = 0, .elems = ELEMS};
  struct plan plan = {.microbatches = MICROBATCHES, .eval_chunks = CHUNKS};
  struct err err;
  assert_int_equal(statistics_init(&fixture->statistics, &model, &block, &plan, &err), 0);
}

static void fixture_fini(struct fixture *fixture) {
  statistics_fini(&fixture->statistics);
}

static void add(struct fixture *fixture, uint32_t first, bool is_evaluation, const float *row) {
  struct part part = {.node = {first, 0}, .is_evaluation = is_evaluation, .values = row};
  struct err err = ERR_NONE;
  if (statistics_add(&fixture->statistics, &part, &err))
    fail_msg("row %u: %s", first, err.text);
}

static const float rows[MICROBATCHES][ELEMS] = {
    {1.5f, 4, 1, 4, 4, 10, 1}, {2.25f, 4, 2, 4, 4, 20, 2}, {3.125f, 3, 3, 3, 2, 40, 4}};

static void rows_are_merged_in_order_whatever_order_they_come_in(void **state) {
  static const uint32_t orders[][MICROBATCHES] = {{0, 1, 2}, {2, 1, 0}, {1, 2, 0}};
  static const float before[ELEMS] = {9, 9, 9, 9, 9, 100, 8};
  (void)state;
  for (int o = 0; o < 3; o++) {
    struct fixture fixture;
    float after[ELEMS], expected = 100;
    fixture_init(&fixture);
    for (int m = 0; m < MICROBATCHES; m++) {
      assert_false(statistics_is_complete(&fixture.statistics));
      add(&fixture, orders[o][m], false, rows[orders[o][m]]);
    }
    assert_true(statistics_is_complete(&fixture.statistics));
    statistics_merge(&fixture.statistics, before, after);
    for (int m = 0; m < MICROBATCHES; m++)
      expected = expected * 0.9f + rows[m][METRICS] * (1 - 0.9f);
    assert_true(after[METRICS] == expected);
    assert_true(after[METRICS + 1] == ((8 * 0.5f + 0.5f) * 0.5f + 1) * 0.5f + 2);
    assert_true(after[METRIC_LOSS_SUM] == 6.875f && after[METRIC_SAMPLES] == 11);
    assert_true(after[METRIC_CORRECT] == 6 && after[METRIC_DENOMINATOR] == 11);
    assert_true(after[METRIC_SCORED] == 10);
    fixture_fini(&fixture);
  }
}

static void a_row_that_is_there_already_is_ignored(void **state) {
  struct fixture fixture;
  (void)state;
  fixture_init(&fixture);
  add(&fixture, 1, false, rows[1]);
  add(&fixture, 1, false, rows[0]);
  assert_false(statistics_is_complete(&fixture.statistics));
  add(&fixture, 0, false, rows[0]);
  add(&fixture, 2, false, rows[2]);
  assert_true(statistics_metrics(&fixture.statistics, 0).sum[METRIC_LOSS_SUM] == 6.875);
  fixture_fini(&fixture);
}

static void metrics_are_summed_in_double_precision(void **state) {
  struct fixture fixture;
  float row[ELEMS] = {16777216, 1, 1, 1}, one[ELEMS] = {1, 1, 1, 1};
  (void)state;
  fixture_init(&fixture);
  add(&fixture, 0, false, row);
  add(&fixture, 1, false, one);
  add(&fixture, 2, false, one);
  assert_true(statistics_metrics(&fixture.statistics, 0).sum[METRIC_LOSS_SUM] == 16777218);
  fixture_fini(&fixture);
}

static void an_evaluation_counts_metrics_alone(void **state) {
  struct fixture fixture;
  float row[ELEMS] = {2.5f, 128, 100, 128, 128, NAN, NAN};
  struct metrics metrics;
  (void)state;
  fixture_init(&fixture);
  add(&fixture, 1, true, row);
  add(&fixture, 1, true, row);
  assert_false(statistics_is_evaluation_complete(&fixture.statistics));
  add(&fixture, 0, true, row);
  assert_true(statistics_is_evaluation_complete(&fixture.statistics));
  assert_false(statistics_is_complete(&fixture.statistics));
  metrics = statistics_eval_metrics(&fixture.statistics);
  assert_true(metrics.sum[METRIC_LOSS_SUM] == 5 && metrics.sum[METRIC_CORRECT] == 200);
  statistics_clear(&fixture.statistics);
  assert_false(statistics_is_evaluation_complete(&fixture.statistics));
  fixture_fini(&fixture);
}

/* Rows of a size of their own, kept by chunk: the same values in whatever order they come. */
static void named_metrics_are_finished_in_the_chunks_order(void **state) {
  enum { HITS = METRICS, LABELS = METRICS + METRIC_SUM_COLUMNS, ROW = METRICS + 4 };
  struct metric_site site = {.loss = "cross_entropy",
                             .output = {.rank = 2, .dim = {4, 9}},
                             .class_axis = 1,
                             .classes = 9,
                             .sample_labels = 1};
  float chunks[CHUNKS][ROW] = {{1, 16, 2, 16, 16}, {3, 4, 1, 4, 4}};
  double values[2][METRICS_NAMED_MAX];
  (void)state;
  chunks[0][HITS] = 7;
  chunks[0][LABELS] = 16;
  chunks[1][HITS] = 1;
  chunks[1][LABELS] = 4;
  for (int order = 0; order < 2; order++) {
    struct fixture fixture;
    struct metrics totals;
    struct err err = ERR_NONE;
    fixture_init(&fixture);
    assert_int_equal(
        metric_set_init(
            &fixture.statistics.eval_metrics, &site,
            &(struct metric_request){.names = (char *[]){"top5", "perplexity"}, .n = 2, .chunk_samples = 16},
            &err),
        0);
    assert_int_equal(fixture.statistics.eval_metrics.row_elems, ROW);
    for (int c = 0; c < CHUNKS; c++)
      add(&fixture, (uint32_t)(order ? CHUNKS - 1 - c : c), true, chunks[order ? CHUNKS - 1 - c : c]);
    totals = statistics_eval_metrics(&fixture.statistics);
    statistics_eval_values(&fixture.statistics, &totals, values[order]);
    fixture_fini(&fixture);
  }
  assert_true(values[0][0] == 8.0 / 20 && values[0][1] == exp(4.0 / 20));
  assert_memory_equal(values[0], values[1], 2 * sizeof(double));
}

static void a_row_that_is_not_finite_is_refused(void **state) {
  struct fixture fixture;
  float row[ELEMS] = {1, 1, 1, 1, 1, INFINITY}, eval_row[ELEMS] = {NAN};
  struct part part = {.node = {0, 0}, .values = row};
  struct err err;
  (void)state;
  fixture_init(&fixture);
  assert_int_equal(statistics_add(&fixture.statistics, &part, &err), ERR_INVALID);
  assert_string_equal(err.text, "element 5 is inf, not a finite number");
  part.is_evaluation = true;
  part.values = eval_row;
  assert_int_equal(statistics_add(&fixture.statistics, &part, &err), ERR_INVALID);
  assert_int_equal(fixture.statistics.n_rows + fixture.statistics.n_eval_rows, 0);
  fixture_fini(&fixture);
}

/* Of two replicas, each of which has taken two steps of its own. */
static void rows_of_replicas_are_averaged_and_have_the_metrics_of_each_step(void **state) {
  enum { STEPS = 2, ROW = ELEMS + STEPS * METRICS };
  static const float of_replicas[2][ROW] = {{0, 0, 0, 0, 0, 10, 1, 1.5f, 4, 1, 4, 4, 1.25f, 4, 3, 4, 4},
                                            {0, 0, 0, 0, 0, 20, 4, 2.5f, 4, 2, 4, 4, 2, 4, 3, 4, 4}};
  struct statistic of_model[] = {{.begin = METRICS, .elems = 2, .momentum = 0.9f}};
  struct model model = {.statistics = of_model, .n_statistics = 1, .metrics.row_elems = METRICS};
  struct block block = {.kind = BLOCK_STATISTICS, .begin = 0, .elems = ELEMS};
  struct plan plan = {.microbatches = 8, .replicas = 2, .inner_steps = STEPS};
  float before[ELEMS] = {0, 0, 0, 0, 0, 100, 100}, after[ELEMS];
  struct fixture fixture;
  struct err err;
  (void)state;
  assert_int_equal(block_part_elems(&block, STEPS), ROW);
  assert_int_equal(statistics_init(&fixture.statistics, &model, &block, &plan, &err), 0);
  add(&fixture, 1, false, of_replicas[1]);
  assert_false(statistics_is_complete(&fixture.statistics));
  add(&fixture, 0, false, of_replicas[0]);
  assert_true(statistics_is_complete(&fixture.statistics));
  statistics_merge(&fixture.statistics, before, after);
  assert_true(after[METRICS] == 15 && after[METRICS + 1] == 2.5f);
  assert_true(statistics_metrics(&fixture.statistics, 0).sum[METRIC_LOSS_SUM] == 4);
  assert_true(statistics_metrics(&fixture.statistics, 1).sum[METRIC_LOSS_SUM] == 3.25);
  assert_true(statistics_metrics(&fixture.statistics, 1).sum[METRIC_CORRECT] == 6);
  fixture_fini(&fixture);
}

static size_t allocated_bytes(void) {
  struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

/* The largest plan that a spec allows, of the smallest block: its rows take their own bytes, not a block's.
 */
static void rows_take_memory_by_their_own_size(void **state) {
  enum { MANY = 4096 };
  struct model model = {.metrics.row_elems = METRICS};
  struct block block = {.kind = BLOCK_STATISTICS, .begin = 0, .elems = METRICS};
  struct plan plan = {.microbatches = MANY};
  struct statistics statistics;
  size_t before = allocated_bytes();
  struct err err;
  (void)state;
  assert_int_equal(statistics_init(&statistics, &model, &block, &plan, &err), 0);
  for (uint32_t m = 0; m < MANY; m++) {
    float row[METRICS] = {1};
    assert_int_equal(statistics_add(&statistics, &(struct part){.node = {m, 0}, .values = row}, &err), 0);
  }
  assert_true(statistics_is_complete(&statistics));
  assert_in_range(allocated_bytes() - before, 0, MANY * METRICS * sizeof(float) + 2 * MANY);
  statistics_fini(&statistics);
}

static void what_is_missing_are_the_rows_that_did_not_come(void **state) {
  struct fixture fixture;
  float row[ELEMS] = {0};
  uint64_t microbatches[1] = {UINT64_C(1) << 60}, chunks[1] = {0};
  (void)state;
  fixture_init(&fixture);
  add(&fixture, 1, false, row);
  add(&fixture, 0, true, row);
  statistics_missing(&fixture.statistics, microbatches);
  statistics_missing_evaluation(&fixture.statistics, chunks);
  assert_int_equal(microbatches[0], UINT64_C(1) << 60 | 5);
  assert_int_equal(chunks[0], 2);
  fixture_fini(&fixture);
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rows_are_merged_in_order_whatever_order_they_come_in),
      cmocka_unit_test(a_row_that_is_there_already_is_ignored),
      cmocka_unit_test(metrics_are_summed_in_double_precision),
      cmocka_unit_test(an_evaluation_counts_metrics_alone),
      cmocka_unit_test(named_metrics_are_finished_in_the_chunks_order),
      cmocka_unit_test(a_row_that_is_not_finite_is_refused),
      cmocka_unit_test(rows_of_replicas_are_averaged_and_have_the_metrics_of_each_step),
      cmocka_unit_test(rows_take_memory_by_their_own_size),
      cmocka_unit_test(what_is_missing_are_the_rows_that_did_not_come),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
