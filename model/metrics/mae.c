/* The mean absolute difference of output and target. */
#include <math.h>
#include <string.h>

#include "model/metrics/metric.h"

enum { ERRORS = 0, TARGETS = METRIC_SUM_COLUMNS, COLUMNS = 2 * METRIC_SUM_COLUMNS };

static bool mae_fits(const struct metric_site *site) {
  static const char *const losses[] = {"mse", "l1", "smooth_l1", "huber"};
  for (size_t i = 0; i < sizeof losses / sizeof *losses; i++)
    if (strcmp(site->loss, losses[i]) == 0)
      return true;
  return false;
}

static int64_t columns_of(const struct metric_site *site, uint32_t chunk_samples) {
  (void)site;
  (void)chunk_samples;
  return COLUMNS;
}

static int mae_add(const struct metric_batch *batch, float *columns, struct err *err) {
  const float *targets = batch->labels;
  int64_t n = batch->samples * batch->site->sample_labels;
  double sum = 0;
  (void)err;
  for (int64_t i = 0; i < n; i++)
    sum += fabs((double)batch->output[i] - (double)targets[i]);
  metric_sum_add(columns + ERRORS, sum);
  metric_sum_add(columns + TARGETS, (double)n);
  return 0;
}

static double mae_value(const struct metric_rows *rows) {
  return metric_sum_of_chunks(rows, ERRORS) / metric_sum_of_chunks(rows, TARGETS);
}

const struct metric_def metric_mae = {
    .name = "mae",
    .fits_what = "the losses mse, l1, smooth_l1 and huber",
    .fits = mae_fits,
    .is_lower_better = true,
    .columns = columns_of,
    .add = mae_add,
    .value = mae_value,
};
