/* What the kernels of CrossEntropy and LinearCrossEntropy share: steps over a node's dense tensors with
   scratch, and one row of scores in f32 with sums in f64. */
#ifndef WEIR_WORKER_BACKEND_CPU_LOSS_CLASS_ROWS_H
#define WEIR_WORKER_BACKEND_CPU_LOSS_CLASS_ROWS_H

#include "model/ops/shared/class_rows.h"
#include "worker/backend/cpu/cpu.h"

/* The details of a step: the node's tensors as its reference kernel sees them, and scratch. */
struct class_step {
  struct op_call call;
  float *scratch;
  const void *more; /* the kernel's own; NULL */
};

/* What a step is to be: f32 but for its first n_bf16 inputs. */
struct class_wish {
  int64_t scratch_elems;
  int n_bf16;
  int (*run)(struct backend_program *program, struct cpu_step *step, const struct backend_run *run,
             struct err *err);
  const void *more;
};

void class_step_add(struct backend_program *program, const struct node *node, const struct class_wish *wish);
/* For `run`: where the bytes are. */
struct class_step *class_step_open(struct cpu_step *step);

enum { CLASS_TILE = 16 }; /* neighbouring positions: whole cache lines of scores */

/* Positions that are neighbours become rows x[tile][classes], and back. scores: of the first. */
void class_gather(const struct class_axis *axis, const float *scores, int64_t tile, float *x);
void class_scatter(const struct class_axis *axis, const float *x, int64_t tile, float *scores);

/* What is done to rows, and what came of it. */
struct class_pass {
  struct class_rows rows; /* not of log-probabilities */
  bool has_gradient;
  double scale; /* of the gradient */
  struct class_sums sums;
};

/* Adds the row's loss to the sums. x f32[classes], the row's scores, becomes their gradient; without
   has_gradient it is scratch afterwards. */
void class_pass_row(struct class_pass *pass, float *x, int64_t label);
/* The same for a row whose label is f32[classes], a probability for each class. Adds to sums.loss only. */
void class_pass_soft_row(struct class_pass *pass, float *x, const float *target);

#endif
