/* The part of the labels whose class has the greatest score; with bce_with_logits of the outputs that are on
   their target's side: a logit above 0 where the target is above 1/2. */
#include <string.h>

#include "model/metrics/metric.h"

enum { HITS = 0, TARGETS = METRIC_SUM_COLUMNS, COLUMNS = 2 * METRIC_SUM_COLUMNS };

static bool accuracy_fits(const struct metric_site *site) {
  return site->classes > 0 || strcmp(site->loss, "bce_with_logits") == 0;
}

/* Every row has what losses of classes need. */
static int64_t columns_of(const struct metric_site *site, uint32_t chunk_samples) {
  (void)chunk_samples;
  return site->classes > 0 ? 0 : COLUMNS;
}

static int accuracy_add(const struct metric_batch *batch, float *columns, struct err *err) {
  const float *targets = batch->labels;
  int64_t n = batch->samples * batch->site->sample_labels, hits = 0;
  (void)err;
  for (int64_t i = 0; i < n; i++)
    hits += (batch->output[i] > 0) == (targets[i] > 0.5f);
  metric_sum_add(columns + HITS, (double)hits);
  metric_sum_add(columns + TARGETS, (double)n);
  return 0;
}

static double accuracy_value(const struct metric_rows *rows) {
  if (rows->n_columns == 0)
    return rows->totals[METRIC_CORRECT] / rows->totals[METRIC_SCORED];
  return metric_sum_of_chunks(rows, HITS) / metric_sum_of_chunks(rows, TARGETS);
}

const struct metric_def metric_accuracy = {
    .name = "accuracy",
    .fits_what = "losses of classes and bce_with_logits",
    .fits = accuracy_fits,
    .is_fraction = true,
    .columns = columns_of,
    .add = accuracy_add,
    .value = accuracy_value,
};
