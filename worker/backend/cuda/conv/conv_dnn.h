/* Convolutions by cuDNN. The algorithm and its workspace are settled when one is made, by cuDNN's own ranking
   and never by timing, so that enqueuing only launches. */
#ifndef WEIR_WORKER_BACKEND_CUDA_CONV_CONV_DNN_H
#define WEIR_WORKER_BACKEND_CUDA_CONV_CONV_DNN_H

#include "worker/backend/cuda/conv/conv.h"
#include "worker/backend/cuda/engine/cuda.h"

enum conv_pass {
  CONV_FORWARD, /* x, w -> y */
  CONV_DATA,    /* dy, w -> dx */
  CONV_WEIGHT,  /* x, dy -> dw */
};

struct conv_dnn;

/* x, w and y, or their gradients, are all of one type (F32, BF16) and layout; pads are the same in front and
   behind, and `out` is as many windows as fit. NULL, without an error, where cuDNN has no algorithm that
   gives the same bits every time (unless the program is_fast). */
struct conv_dnn *conv_dnn_new(struct backend_program *program, enum conv_pass pass,
                              const struct cuda_conv *conv, enum cuda_type type, enum cuda_layout layout);
void conv_dnn_free(struct conv_dnn *conv); /* NULL is ignored */
size_t conv_dnn_workspace_bytes(const struct conv_dnn *conv);

struct conv_dnn_io {
  void *x, *w, *y;
  void *workspace; /* NULL: none is needed */
};
int conv_dnn_enqueue(struct backend_program *program, const struct conv_dnn *conv, const struct node *node,
                     const struct conv_dnn_io *io, struct err *err);

#endif
