/* The area under the ROC curve of two classes: the part of the pairs of a positive and a negative label in
   which the positive one has the greater score, ties counted half. Exact: the row has the score and the
   label of each, not a histogram. The score is the logit, or of two classes the difference of their scores,
   in f32. */
#include <stdlib.h>
#include <math.h>
#include <string.h>

#include "model/metrics/metric.h"

/* Columns of a label: its score, and what it is. A row begins with zeros. */
enum { SCORE, KIND, LABEL_COLUMNS };
#define KIND_NEGATIVE 1.0f
#define KIND_POSITIVE 2.0f

static bool auc_fits(const struct metric_site *site) {
  if (site->classes == 0)
    return strcmp(site->loss, "bce_with_logits") == 0 && site->sample_labels == 1;
  return site->classes == 2;
}

static int64_t columns_of(const struct metric_site *site, uint32_t chunk_samples) {
  return LABEL_COLUMNS * (int64_t)chunk_samples * site->sample_labels;
}

static void auc_note(float *columns, int64_t index, float score, bool is_positive) {
  columns[index * LABEL_COLUMNS + SCORE] = score;
  columns[index * LABEL_COLUMNS + KIND] = is_positive ? KIND_POSITIVE : KIND_NEGATIVE;
}

static void auc_take(const struct metric_site *site, const struct metric_scores *scores, float *columns) {
  (void)site;
  auc_note(columns, scores->index, scores->x[scores->stride] - scores->x[0], scores->label == 1);
}

static int auc_add(const struct metric_batch *batch, float *columns, struct err *err) {
  const float *targets = batch->labels;
  if (batch->site->classes > 0) {
    metric_each_label(batch, auc_take, columns);
    return 0;
  }
  for (uint32_t s = 0; s < batch->samples; s++) {
    if (targets[s] != 0 && targets[s] != 1)
      return err_set(err, ERR_INVALID, "sample %u of the chunk has a label that is neither 0 nor 1",
                     batch->first + s);
    auc_note(columns, batch->first + s, batch->output[s], targets[s] == 1);
  }
  return 0;
}

struct scored {
  float score;
  bool is_positive;
};

static int auc_compare(const void *a, const void *b) {
  const struct scored *left = a, *right = b;
  return (left->score > right->score) - (left->score < right->score);
}

/* Of all chunks, by score; freed by the caller. */
static struct scored *sort_labels(const struct metric_rows *rows, size_t *n) {
  size_t most = (size_t)rows->n_chunks * rows->n_columns / LABEL_COLUMNS;
  struct scored *labels = mem_new((most + 1) * sizeof *labels);
  *n = 0;
  for (uint32_t c = 0; c < rows->n_chunks; c++)
    for (uint32_t at = 0; at + LABEL_COLUMNS <= rows->n_columns; at += LABEL_COLUMNS) {
      const float *label = rows->chunks[c] + at;
      if (label[KIND] == KIND_NEGATIVE || label[KIND] == KIND_POSITIVE)
        labels[(*n)++] = (struct scored){label[SCORE], label[KIND] == KIND_POSITIVE};
    }
  qsort(labels, *n, sizeof *labels, auc_compare);
  return labels;
}

/* Whole numbers until the last division. */
static double auc_value(const struct metric_rows *rows) {
  size_t n;
  struct scored *labels = sort_labels(rows, &n);
  uint64_t negatives = 0, positives = 0, halves = 0; /* below, and pairs in the right order, times two */
  for (size_t begin = 0, end; begin < n; begin = end) {
    uint64_t of[2] = {0, 0};
    for (end = begin; end < n && labels[end].score == labels[begin].score; end++)
      of[labels[end].is_positive]++;
    halves += of[1] * (2 * negatives + of[0]);
    negatives += of[0];
    positives += of[1];
  }
  free(labels);
  return negatives && positives ? (double)halves / 2 / ((double)negatives * (double)positives) : (double)NAN;
}

const struct metric_def metric_auc = {
    .name = "auc",
    .fits_what = "two classes: bce_with_logits with one output a sample, or a loss of two classes",
    .fits = auc_fits,
    .reads_scores = true,
    .columns = columns_of,
    .add = auc_add,
    .value = auc_value,
};
