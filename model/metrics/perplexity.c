/* The exponential of the loss: of each label, as that counts by loss_options. */
#include <math.h>
#include <string.h>

#include "model/metrics/metric.h"

static bool perplexity_fits(const struct metric_site *site) {
  return site->classes > 0 || strcmp(site->loss, "cross_entropy") == 0; /* of soft labels, too */
}

static int64_t columns_of(const struct metric_site *site, uint32_t chunk_samples) {
  (void)site;
  (void)chunk_samples;
  return 0;
}

static double perplexity_value(const struct metric_rows *rows) {
  return exp(rows->totals[METRIC_LOSS_SUM] / rows->totals[METRIC_DENOMINATOR]);
}

const struct metric_def metric_perplexity = {
    .name = "perplexity",
    .fits_what = "losses of classes",
    .fits = perplexity_fits,
    .is_lower_better = true,
    .columns = columns_of,
    .value = perplexity_value,
};
