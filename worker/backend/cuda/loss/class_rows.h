/* Losses over rows of class scores, and their gradients: what CrossEntropy, SoftCrossEntropy,
   LinearCrossEntropy and ONNX's two losses of classifiers share (model/ops/shared/class_rows.h has the
   formulas).
 */
#ifndef WEIR_WORKER_BACKEND_CUDA_LOSS_CLASS_ROWS_H
#define WEIR_WORKER_BACKEND_CUDA_LOSS_CLASS_ROWS_H

#include <cuda_runtime_api.h>

#include "worker/backend/cuda/rows/rows.h"

/* Sums over rows: loss, correct, scored, denominator. Each block writes the sums over its rows. */
enum { CLASS_SUMS = 4, CLASS_BLOCKS_MAX = 4096 };

struct cuda_class_pass {
  struct cuda_rows rows;       /* a row's elements are classes */
  struct cuda_tensor scores;   /* absent: only labels are looked at */
  struct cuda_tensor labels;   /* I64 or I32, one a row; absent: targets */
  struct cuda_tensor targets;  /* of scores' shape: probabilities */
  struct cuda_tensor gradient; /* of scores' shape, perhaps in their bytes; absent: not written */
  struct cuda_tensor log_prob; /* of scores' shape; absent: not written */
  struct cuda_tensor row_loss; /* an element a row; absent: not written */
  const float *bias;           /* f32[classes], added to scores; NULL: 0 each */
  const float *weights;        /* f32[classes]; NULL: 1 each */
  const float *dsum;           /* the gradient's factor; NULL: 1 */
  double *sums;                /* [blocks][CLASS_SUMS]; NULL: not written */
  double smoothing;
  int64_t ignored;
  bool has_ignored;
  bool is_log;       /* scores are log-probabilities */
  bool is_of_labels; /* nothing but the label's score is looked at: is_log, without smoothing or `correct` */
  int64_t first_row; /* rows before this pass's: a fault's place counts them too */
  int node;
  struct cuda_fault *fault;
  int lanes;
  int64_t blocks;
};

/* Adds the sums of all blocks -> out, F32 scalars; absent ones are not written. is_mean: the loss is divided
   by the denominator. */
struct cuda_loss_sums {
  const double *sums; /* [parts][CLASS_SUMS] */
  int64_t parts;
  bool is_mean;
  struct cuda_tensor out[CLASS_SUMS];
};

/* The gradient of a loss that takes the label's log-probability: of NegativeLogLikelihoodLoss by its input,
   of SoftmaxCrossEntropyLoss by its scores, through the logarithms of their softmax. */
struct cuda_label_grad {
  struct cuda_rows rows;
  struct cuda_tensor labels, gradient;
  struct cuda_tensor dloss;               /* a scalar, or an element a row; absent: 0 */
  struct cuda_tensor log_prob, dlog_prob; /* absent: NegativeLogLikelihoodLoss; absent: 0 */
  const float *weights;
  const float *denominator; /* that the mean was divided by; NULL: not a mean */
  bool is_each;             /* dloss has an element a row */
  int64_t ignored;
  bool has_ignored;
  int lanes;
};

#ifdef __cplusplus
extern "C" {
#endif

void cuda_class_pass_launch(const struct cuda_class_pass *pass, cudaStream_t stream);
void cuda_loss_sums_launch(const struct cuda_loss_sums *sums, cudaStream_t stream);
void cuda_label_grad_launch(const struct cuda_label_grad *grad, cudaStream_t stream);

#ifdef __cplusplus
}
#else
#include "worker/backend/cuda/engine/cuda.h"

/* A pass of a step, and where its sums go: which of the arguments the tensors are; -1: none. */
struct cuda_class_step {
  struct cuda_class_pass pass;
  int scores, labels, targets, gradient, log_prob, row_loss, weights, dsum, sums, out[CLASS_SUMS];
  bool is_mean;
};

struct cuda_class_step cuda_class_step_of(const struct backend_program *program, const struct node *node);
/* Sets how many threads and blocks the pass takes; its rows are set. */
void cuda_class_pass_plan(struct cuda_class_pass *pass);
/* The same for the step's pass. Adds the scratch of the sums, unless no out is an argument. */
void cuda_class_step_plan(struct backend_program *program, struct cuda_step *step,
                          struct cuda_class_step *own);
int cuda_class_step_enqueue(const struct cuda_class_step *own, const struct cuda_step *step,
                            cudaStream_t stream, struct err *err);
/* The sums of `parts` blocks -> out. */
int cuda_class_step_sum(const struct cuda_class_step *own, const struct cuda_step *step, int64_t parts,
                        cudaStream_t stream, struct err *err);
/* Ends a step that only makes this pass. */
void cuda_class_step_end(struct backend_program *program, struct cuda_step *step,
                         const struct cuda_class_step *own);
#endif

#endif
