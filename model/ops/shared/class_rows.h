/* Losses over rows of class scores, in f64: what CrossEntropy and LinearCrossEntropy share. Of a row x with
   label y, class weights w (1 without) and smoothing e:
     t[c]    = (1 - e) w[y] [c = y] + e w[c] / classes
     loss    = sum of t[c] (norm - x[c]), norm = log(sum of exp(x[c]))
     dx[c]   = (sum of t) softmax(x)[c] - t[c]
   as PyTorch's cross_entropy. Where the scores are log-probabilities already, norm is 0 and so is the
   softmax: its nll_loss. A label that is ignore_index counts nothing. */
#ifndef WEIR_MODEL_OPS_SHARED_CLASS_ROWS_H
#define WEIR_MODEL_OPS_SHARED_CLASS_ROWS_H

#include "model/graph/op.h"

/* From the attributes ignore_index (default -100), label_smoothing (0) and log_probabilities (0). */
struct class_rows {
  int64_t classes, ignore_index;
  double smoothing;
  bool is_log;          /* scores are log-probabilities */
  const float *weights; /* f32[classes]; NULL: 1 each */
  double weights_sum;
};

/* Over the rows that count. */
struct class_sums {
  double loss;
  double correct;     /* rows whose greatest score, the first of equals, is the label's */
  double scored;      /* rows */
  double denominator; /* weights of their labels: what the mean loss is divided by */
};

/* Scores as [outer, classes, inner], their labels as [outer, inner]. */
struct class_axis {
  int64_t outer, classes, inner;
};

/* By the attribute axis (default 1). labels: the shape without it. Errors: INVALID. */
int class_rows_axis(const struct node *node, const struct shape *scores, struct class_axis *axis,
                    struct shape *labels, struct err *err);

enum { CLASS_ROWS_SUMS = 4 }; /* outputs: loss_sum, correct, scored, denominator, each f32[] */

/* The input is i64 of that shape; else INVALID. */
int class_rows_check_labels(const struct graph *graph, const struct node *node, int input,
                            const struct shape *shape, struct err *err);
/* The input, if present, is f32[classes]; else INVALID. */
int class_rows_check_weights(const struct graph *graph, const struct node *node, int input, int64_t classes,
                             struct err *err);
/* The types of the sums. */
int class_rows_infer(struct graph *graph, const struct node *node, struct err *err);

/* inputs: the labels, and the weights, whose data may be NULL. Errors: INVALID for a label that is neither in
   [0, classes) nor ignored, with its value and sample. */
int class_rows_init(struct class_rows *loss, const struct node *node, const struct tensor inputs[2],
                    int64_t classes, struct err *err);

/* A row: its scores, `stride` elements apart. */
struct class_row {
  const float *x;
  int64_t stride, label;
};
void class_rows_add(const struct class_rows *loss, const struct class_row *row, struct class_sums *sums);
/* dx = scale times the gradient of the row's loss; dx may be x, and has its stride. */
void class_rows_gradient(const struct class_rows *loss, const struct class_row *row, double scale, float *dx);

/* log(sum(exp(x))) of a row is greatest + rest: x is subtracted from greatest first, which loses no digits.
 */
struct class_norm {
  int64_t found; /* the first of the greatest */
  double greatest, rest;
};
struct class_norm class_norm_of(const float *x, int64_t classes, int64_t stride);

/* Writes those outputs that have data. */
void class_rows_finish(const struct class_sums *sums, const struct tensor out[CLASS_ROWS_SUMS]);

static inline double class_rows_weight(const struct class_rows *loss, int64_t class) {
  return loss->weights ? (double)loss->weights[class] : 1.0;
}

#endif
