/* The part of the labels whose class is among the five greatest scores; of equal scores the first counts as
   greater, as in accuracy. */
#include "model/metrics/metric.h"

enum { BEST = 5, HITS = 0, LABELS = METRIC_SUM_COLUMNS, COLUMNS = 2 * METRIC_SUM_COLUMNS };

static bool top5_fits(const struct metric_site *site) {
  return site->classes > BEST;
}

static int64_t columns_of(const struct metric_site *site, uint32_t chunk_samples) {
  (void)site;
  (void)chunk_samples;
  return COLUMNS;
}

static void top5_take(const struct metric_site *site, const struct metric_scores *scores, float *columns) {
  float own = scores->x[scores->label * scores->stride];
  int64_t rank = 0;
  for (int64_t c = 0; c < site->classes; c++) {
    float x = scores->x[c * scores->stride];
    rank += x > own || (x == own && c < scores->label);
  }
  metric_sum_add(columns + HITS, rank < BEST);
  metric_sum_add(columns + LABELS, 1);
}

static int top5_add(const struct metric_batch *batch, float *columns, struct err *err) {
  (void)err;
  metric_each_label(batch, top5_take, columns);
  return 0;
}

static double top5_value(const struct metric_rows *rows) {
  return metric_sum_of_chunks(rows, HITS) / metric_sum_of_chunks(rows, LABELS);
}

const struct metric_def metric_top5 = {
    .name = "top5",
    .fits_what = "losses of more than five classes",
    .fits = top5_fits,
    .is_fraction = true,
    .reads_scores = true,
    .columns = columns_of,
    .add = top5_add,
    .value = top5_value,
};
