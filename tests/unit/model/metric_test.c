/* Metrics against their definitions, whatever the split into chunks and batches. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "common/agree/random.h"
#include "model/metrics/metric.h"
#include "model/model.h"

enum {
  SAMPLES = 61,
  PLACES = 3,
  CLASSES = 9,
  CHUNK = 16,
  BATCH = 4,
  CHUNKS = 4,
  ROW_MAX = 4096,
  IGNORED = 7
};

/* What is evaluated: scores f32[SAMPLES, classes, PLACES] with labels [SAMPLES, PLACES], or outputs
   f32[SAMPLES] with targets. */
struct fixture {
  struct metric_site site;
  float output[SAMPLES * CLASSES * PLACES];
  int64_t labels[SAMPLES * PLACES];
  float targets[SAMPLES];
  float rows[CHUNKS][ROW_MAX];
  double totals[METRICS];
};

static float draw(uint64_t index) {
  return (float)(random_key(5, 1, index, 0) >> 40) / 16777216.0f;
}

/* Few different values, so that there are many ties. */
static struct fixture *fixture_classes(int64_t classes, int axis) {
  struct fixture *f = calloc(1, sizeof *f);
  f->site = (struct metric_site){.loss = "cross_entropy",
                                 .output = {.rank = 3, .dim = {BATCH, PLACES, classes}},
                                 .class_axis = axis,
                                 .classes = classes,
                                 .ignore_index = IGNORED,
                                 .sample_labels = PLACES};
  if (axis == 1)
    f->site.output = (struct shape){.rank = 3, .dim = {BATCH, classes, PLACES}};
  for (int i = 0; i < SAMPLES * PLACES * classes; i++)
    f->output[i] = floorf(draw((uint64_t)i) * 12) / 4;
  for (int i = 0; i < SAMPLES * PLACES; i++)
    f->labels[i] =
        draw(90000 + (uint64_t)i) < 0.2f ? IGNORED : (int64_t)(draw((uint64_t)i + 70000) * (float)classes);
  return f;
}

static struct fixture *fixture_targets(const char *loss) {
  struct fixture *f = calloc(1, sizeof *f);
  f->site = (struct metric_site){.loss = loss, .output = {.rank = 2, .dim = {BATCH, 1}}, .sample_labels = 1};
  for (int i = 0; i < SAMPLES; i++) {
    f->output[i] = floorf(draw((uint64_t)i) * 20) / 8 - 1;
    f->targets[i] = draw(5000 + (uint64_t)i) < 0.4f;
  }
  return f;
}

static float score(const struct fixture *f, int label, int64_t class) {
  int64_t inner = f->site.class_axis == 1 ? PLACES : 1;
  return f->output[label / inner * f->site.classes * inner + class * inner + label % inner];
}

/* All samples, batch by batch; of the last batches some samples are padding, which is not to count. */
static double evaluate(struct fixture *f, const char *name) {
  char *names[] = {(char *)name};
  int64_t sample_elems = f->site.classes > 0 ? f->site.classes * PLACES : 1;
  const float *rows[CHUNKS];
  double values[METRICS_NAMED_MAX];
  struct metric_set set;
  struct err err = ERR_NONE;
  if (metric_set_init(&set, &f->site,
                      &(struct metric_request){.names = names, .n = 1, .chunk_samples = CHUNK}, &err))
    fail_msg("%s", err.text);
  assert_true(set.row_elems <= ROW_MAX);
  memset(f->rows, 0, sizeof f->rows);
  for (int begin = 0; begin < SAMPLES; begin += BATCH) {
    struct metric_batch batch = {.site = &f->site,
                                 .output = f->output + begin * sample_elems,
                                 .first = (uint32_t)(begin % CHUNK),
                                 .samples = SAMPLES - begin < BATCH ? SAMPLES - begin : BATCH};
    batch.labels = f->site.classes > 0 ? (void *)(f->labels + begin * PLACES) : (void *)(f->targets + begin);
    if (set.reads_output && metric_set_add(&set, &batch, f->rows[begin / CHUNK], &err))
      fail_msg("%s", err.text);
  }
  for (int c = 0; c < CHUNKS; c++)
    rows[c] = f->rows[c];
  metric_set_values(&set, f->totals, rows, CHUNKS, values);
  return values[0];
}

static void top5_counts_labels_with_fewer_than_five_greater_scores(void **state) {
  (void)state;
  for (int axis = 1; axis <= 2; axis++) {
    struct fixture *f = fixture_classes(CLASSES, axis);
    int hits = 0, counted = 0;
    for (int l = 0; l < SAMPLES * PLACES; l++) {
      int greater = 0;
      for (int c = 0; c < CLASSES && f->labels[l] != IGNORED; c++)
        greater += score(f, l, c) > score(f, l, f->labels[l]) ||
                   (score(f, l, c) == score(f, l, f->labels[l]) && c < f->labels[l]);
      hits += f->labels[l] != IGNORED && greater < 5;
      counted += f->labels[l] != IGNORED;
    }
    assert_true(hits > 0 && hits < counted && counted < SAMPLES * PLACES);
    assert_true(evaluate(f, "top5") == (double)hits / counted);
    free(f);
  }
}

/* Over all pairs of a positive and a negative. */
static double auc_by_definition(const float *scores, const int *kinds, int n) {
  double right = 0, pairs = 0;
  for (int p = 0; p < n; p++)
    for (int q = 0; q < n; q++)
      if (kinds[p] == 1 && kinds[q] == 0) {
        right += scores[p] > scores[q] ? 1 : scores[p] == scores[q] ? 0.5 : 0;
        pairs++;
      }
  return right / pairs;
}

static void auc_counts_the_pairs_in_order_and_ties_half(void **state) {
  float scores[SAMPLES * PLACES];
  int kinds[SAMPLES * PLACES];
  struct fixture *f = fixture_targets("bce_with_logits");
  (void)state;
  for (int i = 0; i < SAMPLES; i++)
    kinds[i] = (int)f->targets[i];
  assert_true(evaluate(f, "auc") == auc_by_definition(f->output, kinds, SAMPLES));
  free(f);
  for (int axis = 1; axis <= 2; axis++) {
    f = fixture_classes(2, axis);
    for (int l = 0; l < SAMPLES * PLACES; l++) {
      scores[l] = score(f, l, 1) - score(f, l, 0);
      kinds[l] = (int)f->labels[l];
    }
    assert_true(evaluate(f, "auc") == auc_by_definition(scores, kinds, SAMPLES * PLACES));
    free(f);
  }
}

static void auc_of_one_class_alone_is_not_a_number(void **state) {
  struct fixture *f = fixture_targets("bce_with_logits");
  (void)state;
  for (int i = 0; i < SAMPLES; i++)
    f->targets[i] = 1;
  assert_true(isnan(evaluate(f, "auc")));
  free(f);
}

static void auc_names_a_sample_whose_label_is_neither_0_nor_1(void **state) {
  struct fixture *f = fixture_targets("bce_with_logits");
  struct metric_batch batch = {
      .site = &f->site, .output = f->output, .labels = f->targets, .first = 8, .samples = BATCH};
  struct metric_set set;
  struct err err = ERR_NONE;
  (void)state;
  f->targets[2] = 0.25f;
  assert_int_equal(
      metric_set_init(&set, &f->site,
                      &(struct metric_request){.names = (char *[]){"auc"}, .n = 1, .chunk_samples = CHUNK},
                      &err),
      0);
  assert_int_equal(metric_set_add(&set, &batch, f->rows[0], &err), ERR_INVALID);
  assert_string_equal(err.text, "metric 'auc': sample 10 of the chunk has a label that is neither 0 nor 1");
  free(f);
}

static void mae_is_the_mean_absolute_difference(void **state) {
  struct fixture *f = fixture_targets("mse");
  double sum = 0;
  (void)state;
  for (int i = 0; i < SAMPLES; i++)
    sum += fabs((double)f->output[i] - f->targets[i]); /* exact: multiples of 1/8 */
  assert_true(evaluate(f, "mae") == sum / SAMPLES);
  free(f);
}

static void accuracy_of_logits_is_the_part_on_their_target_s_side(void **state) {
  struct fixture *f = fixture_targets("bce_with_logits");
  int hits = 0;
  (void)state;
  for (int i = 0; i < SAMPLES; i++)
    hits += (f->output[i] > 0) == (f->targets[i] > 0.5f);
  assert_true(evaluate(f, "accuracy") == (double)hits / SAMPLES);
  free(f);
}

static void accuracy_and_perplexity_of_classes_need_no_columns(void **state) {
  struct fixture *f = fixture_classes(CLASSES, 1);
  (void)state;
  f->totals[METRIC_LOSS_SUM] = 30;
  f->totals[METRIC_DENOMINATOR] = 20;
  f->totals[METRIC_CORRECT] = 3;
  f->totals[METRIC_SCORED] = 4;
  assert_true(evaluate(f, "perplexity") == exp(1.5));
  assert_true(evaluate(f, "accuracy") == 0.75);
  free(f);
}

static void sums_of_whole_numbers_beyond_f32_stay_exact(void **state) {
  float columns[METRIC_SUM_COLUMNS] = {0}, one[METRIC_SUM_COLUMNS] = {0};
  const float *chunks[] = {columns, one};
  struct metric_rows rows = {.chunks = chunks, .n_chunks = 2, .n_columns = METRIC_SUM_COLUMNS};
  (void)state;
  for (int i = 0; i < 3; i++)
    metric_sum_add(columns, 33554433); /* 2^25 + 1 */
  metric_sum_add(one, 1);
  assert_true(metric_sum_of_chunks(&rows, 0) == 3.0 * 33554433 + 1);
}

static void expect_unfit(const struct metric_site *site, const char *name, const char *text) {
  struct metric_set set;
  struct err err = ERR_NONE;
  assert_int_equal(
      metric_set_init(
          &set, site,
          &(struct metric_request){.names = (char *[]){(char *)name}, .n = 1, .chunk_samples = CHUNK}, &err),
      ERR_INVALID);
  if (!strstr(err.text, text))
    fail_msg("'%s' has no '%s'", err.text, text);
}

static void a_metric_that_does_not_fit_is_refused_with_those_that_do(void **state) {
  struct fixture *classes = fixture_classes(CLASSES, 1), *targets = fixture_targets("mse");
  struct metric_site own_loss = {.loss = "", .output = {.rank = 0}};
  (void)state;
  expect_unfit(&classes->site, "mae", "'mae' is for the losses mse");
  expect_unfit(&classes->site, "mae", "what fits: accuracy, perplexity, top5");
  expect_unfit(&classes->site, "auc", "the loss is 'cross_entropy' of an output [4,9,3]");
  expect_unfit(&targets->site, "perplexity", "what fits: mae");
  expect_unfit(&own_loss, "accuracy", "the loss is one of an output []; what fits: none");
  expect_unfit(&targets->site, "map", "did you mean 'mae'?");
  classes->site.classes = 2;
  classes->site.sample_labels = 1 << 20;
  expect_unfit(&classes->site, "auc", "'auc' needs 33554432 numbers for an evaluation chunk of 16 samples");
  free(classes);
  free(targets);
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(top5_counts_labels_with_fewer_than_five_greater_scores),
      cmocka_unit_test(auc_counts_the_pairs_in_order_and_ties_half),
      cmocka_unit_test(auc_of_one_class_alone_is_not_a_number),
      cmocka_unit_test(auc_names_a_sample_whose_label_is_neither_0_nor_1),
      cmocka_unit_test(mae_is_the_mean_absolute_difference),
      cmocka_unit_test(accuracy_of_logits_is_the_part_on_their_target_s_side),
      cmocka_unit_test(accuracy_and_perplexity_of_classes_need_no_columns),
      cmocka_unit_test(sums_of_whole_numbers_beyond_f32_stay_exact),
      cmocka_unit_test(a_metric_that_does_not_fit_is_refused_with_those_that_do),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
