/* Metrics of an evaluation, by name in the spec's eval.metrics: rows of metric.def. A worker adds the samples
   of an eval chunk to the metric's columns of the chunk's row; the server finishes the value from the rows of
   all chunks, in their order and in f64. So it does not depend on who evaluated what. */
#ifndef WEIR_MODEL_METRICS_METRIC_H
#define WEIR_MODEL_METRICS_METRIC_H

#include "model/graph/graph.h"

enum { METRICS_NAMED_MAX = 8 }; /* rows of metric.def at most */

/* The columns that every row of statistics begins with, of a microbatch or an eval chunk: the loss is the
   sums of LOSS_SUM / DENOMINATOR, the accuracy those of CORRECT / SCORED (labels that count; none for losses
   without classes). */
enum { METRIC_LOSS_SUM, METRIC_SAMPLES, METRIC_CORRECT, METRIC_DENOMINATOR, METRIC_SCORED, METRICS };

/* What an evaluation of a model offers to metrics. */
struct metric_site {
  const char *loss;      /* its name; "": the model computes its loss itself */
  struct shape output;   /* f32, of one execution: [samples,...] */
  int class_axis;        /* of the output, where there are classes */
  int64_t classes;       /* 0: labels are f32 targets of the output's shape, or there are none */
  int64_t ignore_index;  /* of classes: a label that does not count */
  int64_t sample_labels; /* labels of each sample; 0: there are none */
};

/* One execution of a chunk. */
struct metric_batch {
  const struct metric_site *site;
  const float *output; /* of the site's shape */
  const void *labels;  /* i64 classes or f32 targets, site->sample_labels of each sample */
  uint32_t first;      /* the first sample's place in the chunk */
  uint32_t samples;    /* valid ones: what follows is padding and does not count */
};

/* The rows of all chunks, in order. */
struct metric_rows {
  const double *totals;       /* of the columns that every row begins with: [METRICS] */
  const float *const *chunks; /* [n_chunks]: the metric's columns of each, finite but of any value */
  uint32_t n_chunks, n_columns;
};

struct metric_def {
  const char *name;
  const char *fits_what; /* for messages: "losses of classes" */
  bool (*fits)(const struct metric_site *site);
  bool is_lower_better; /* for checkpoint.keep_best */
  bool is_fraction;     /* of 1: people are shown a percentage */
  bool reads_scores;    /* of losses of classes: the eval graph keeps them, however many there are */
  /* What the metric has of a row: 0 where the columns that every row has are enough, and the output is not
     read. */
  int64_t (*columns)(const struct metric_site *site, uint32_t chunk_samples);
  /* Adds a batch to the chunk's columns f32[columns], which were 0 before the first. Errors: INVALID for
     labels that it cannot take, with the sample. */
  int (*add)(const struct metric_batch *batch, float *columns, struct err *err);
  double (*value)(const struct metric_rows *rows); /* NaN where the samples say nothing */
};

const struct metric_def *metric_find(const char *name); /* NULL if unknown */

/* What a run asks for. Plain data, which may be copied. */
struct metric_set {
  struct metric_site site;
  const struct metric_def *items[METRICS_NAMED_MAX];
  int64_t columns[METRICS_NAMED_MAX]; /* of each */
  int n;
  int64_t row_elems; /* of an evaluation's row: the columns that every row has, then each metric's */
  bool reads_output;
};

/* True if one of them reads the scores of classes. */
bool metrics_read_scores(char *const *names, size_t n);
/* The names are known and each is there once; else INVALID, naming eval.metrics. */
int metric_check_names(char *const *names, size_t n, struct err *err);
/* The metrics that a spec asks for, by names that were checked, of evaluations in chunks. */
struct metric_request {
  char *const *names;
  size_t n;
  uint32_t chunk_samples;
};
/* The metrics of a request as a set for this site. Errors: INVALID for one that does not fit, with those that
   do; for a row of more than BLOCK_ELEMS_MAX columns. */
int metric_set_init(struct metric_set *set, const struct metric_site *site,
                    const struct metric_request *request, struct err *err);
/* Adds a batch to a chunk's row f32[set->row_elems]. Errors: those of the metrics, naming the metric. */
int metric_set_add(const struct metric_set *set, const struct metric_batch *batch, float *row,
                   struct err *err);
/* The values of the set's metrics, in its order. rows: f32[set->row_elems] of each chunk. totals: as in
   metric_rows. */
void metric_set_values(const struct metric_set *set, const double *totals, const float *const *rows,
                       uint32_t n_chunks, double values[METRICS_NAMED_MAX]);

/* For rows: a sum in f64 that travels in two columns, exact for whole numbers up to 2^48. */
enum { METRIC_SUM_COLUMNS = 2 };
void metric_sum_add(float columns[METRIC_SUM_COLUMNS], double amount);
double metric_sum_of_chunks(const struct metric_rows *rows, uint32_t column); /* of that sum's columns */

/* For rows that look at classes: calls `take` with the scores of each label that counts (of site->classes,
   `stride` elements apart) and its index in the chunk. */
struct metric_scores {
  const float *x;
  int64_t stride, label;
  int64_t index; /* of the label, in the chunk */
};
typedef void metric_take(const struct metric_site *site, const struct metric_scores *scores, float *columns);
void metric_each_label(const struct metric_batch *batch, metric_take *take, float *columns);

#endif
