/* The table of metrics, and what its rows share. */
#include "model/metrics/metric.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/agree/placement.h"
#include "common/base/def_table.h"
#include "model/graph/listing.h"

#define METRIC(name) extern const struct metric_def metric_##name;
#include "model/metrics/metric.def"
#undef METRIC

static const struct metric_def *const defs[] = {
#define METRIC(name) &metric_##name,
#include "model/metrics/metric.def"
#undef METRIC
};
static const struct def_table metrics = DEF_TABLE(defs);
_Static_assert(sizeof defs / sizeof *defs <= METRICS_NAMED_MAX, "every metric may be asked for at once");

const struct metric_def *metric_find(const char *name) {
  return def_find(&metrics, name);
}

static int fail_unknown(const char *name, struct err *err) {
  const char *near = def_nearest(&metrics, name);
  char known[DEF_NAMES_SIZE];
  if (near)
    return err_set(err, ERR_INVALID, "eval.metrics: there is no metric '%.60s'; did you mean '%s'?", name,
                   near);
  return err_set(err, ERR_INVALID, "eval.metrics: there is no metric '%.60s' (known: %s)", name,
                 def_names(&metrics, ", ", known));
}

bool metrics_read_scores(char *const *names, size_t n) {
  bool reads = false;
  for (size_t i = 0; i < n; i++)
    reads |= metric_find(names[i]) && metric_find(names[i])->reads_scores;
  return reads;
}

int metric_check_names(char *const *names, size_t n, struct err *err) {
  for (size_t i = 0; i < n; i++) {
    if (!metric_find(names[i]))
      return fail_unknown(names[i], err);
    for (size_t other = 0; other < i; other++)
      if (strcmp(names[other], names[i]) == 0)
        return err_set(err, ERR_INVALID, "eval.metrics: '%.60s' is there twice", names[i]);
  }
  return 0;
}

static int fail_unfit(const struct metric_site *site, const struct metric_def *metric, struct err *err) {
  struct listing fitting = {0};
  char shape[256];
  for (int i = 0; i < metrics.n; i++)
    if (defs[i]->fits(site))
      listing_add(&fitting, "%s", defs[i]->name);
  return err_set(err, ERR_INVALID,
                 "eval.metrics: '%s' is for %s, but the loss is %s%s%s of an output %s; what fits: %s",
                 metric->name, metric->fits_what, *site->loss ? "'" : "", *site->loss ? site->loss : "one",
                 *site->loss ? "'" : "", shape_text(&site->output, shape, sizeof shape),
                 fitting.count ? listing_text(&fitting) : "none");
}

int metric_set_init(struct metric_set *set, const struct metric_site *site,
                    const struct metric_request *request, struct err *err) {
  uint32_t chunk_samples = request->chunk_samples;
  *set = (struct metric_set){.site = *site, .row_elems = METRICS};
  if (metric_check_names(request->names, request->n, err))
    return err->code;
  for (size_t i = 0; i < request->n; i++) {
    const struct metric_def *metric = metric_find(request->names[i]);
    int64_t columns;
    if (!metric->fits(site))
      return fail_unfit(site, metric, err);
    columns = metric->columns(site, chunk_samples);
    if (columns > BLOCK_ELEMS_MAX - set->row_elems)
      return err_set(err, ERR_INVALID,
                     "eval.metrics: '%s' needs %lld numbers for an evaluation chunk of %u samples, more than "
                     "the %lld that are left of its row's %d: it is not for so many labels a sample",
                     metric->name, (long long)columns, chunk_samples,
                     (long long)(BLOCK_ELEMS_MAX - set->row_elems), BLOCK_ELEMS_MAX);
    set->items[set->n] = metric;
    set->columns[set->n++] = columns;
    set->row_elems += columns;
    set->reads_output |= columns > 0;
  }
  return 0;
}

int metric_set_add(const struct metric_set *set, const struct metric_batch *batch, float *row,
                   struct err *err) {
  float *columns = row + METRICS;
  for (int i = 0; i < set->n; columns += set->columns[i++])
    if (set->columns[i] > 0 && set->items[i]->add(batch, columns, err))
      return err_prefix(err, "metric '%s'", set->items[i]->name);
  return 0;
}

void metric_set_values(const struct metric_set *set, const double *totals, const float *const *rows,
                       uint32_t n_chunks, double values[METRICS_NAMED_MAX]) {
  const float **chunks = mem_new((n_chunks + 1) * sizeof *chunks);
  int64_t at = METRICS;
  for (int i = 0; i < set->n; at += set->columns[i++]) {
    struct metric_rows of = {totals, chunks, n_chunks, (uint32_t)set->columns[i]};
    for (uint32_t c = 0; c < n_chunks; c++)
      chunks[c] = rows[c] + at;
    values[i] = set->items[i]->value(&of);
  }
  free(chunks);
}

void metric_sum_add(float columns[METRIC_SUM_COLUMNS], double amount) {
  double sum = (double)columns[0] + (double)columns[1] + amount;
  columns[0] = (float)sum;
  columns[1] = isfinite(columns[0]) ? (float)(sum - (double)columns[0]) : 0;
}

double metric_sum_of_chunks(const struct metric_rows *rows, uint32_t column) {
  double sum = 0;
  for (uint32_t c = 0; c < rows->n_chunks; c++)
    sum += (double)rows->chunks[c][column] + (double)rows->chunks[c][column + 1];
  return sum;
}

/* Classes lie behind the samples, labels as the output without them. */
void metric_each_label(const struct metric_batch *batch, metric_take *take, float *columns) {
  const struct metric_site *site = batch->site;
  const int64_t *labels = batch->labels;
  int64_t inner = 1;
  for (int d = site->class_axis + 1; d < site->output.rank; d++)
    inner *= site->output.dim[d];
  for (int64_t l = 0; l < batch->samples * site->sample_labels; l++) {
    struct metric_scores scores = {.x = batch->output + l / inner * site->classes * inner + l % inner,
                                   .stride = inner,
                                   .label = labels[l],
                                   .index = batch->first * site->sample_labels + l};
    if (labels[l] != site->ignore_index && labels[l] >= 0 && labels[l] < site->classes)
      take(site, &scores, columns);
  }
}
