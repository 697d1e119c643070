/* ScaledAttention and its gradient by cuDNN's fused engines. The plan is settled when one is made, so that
   enqueuing only launches. */
#ifndef WEIR_WORKER_BACKEND_CUDA_ATTENTION_ATTENTION_DNN_H
#define WEIR_WORKER_BACKEND_CUDA_ATTENTION_ATTENTION_DNN_H

#include "worker/backend/cuda/attention/attention.h"
#include "worker/backend/cuda/attention/attention_graph.h"
#include "worker/backend/cuda/engine/cuda.h"

struct attention_dnn;

/* NULL, without an error, where cuDNN has no plan that gives the same bits every time (unless the program
   is_fast). The plan itself is not checked: see attention_probe.h. */
struct attention_dnn *attention_dnn_new(struct backend_program *program, const struct attention_kind *kind);
void attention_dnn_free(struct attention_dnn *dnn); /* NULL is ignored */
const struct attention_kind *attention_dnn_kind(const struct attention_dnn *dnn);
size_t attention_dnn_bytes(const struct attention_dnn *dnn); /* of scratch */

/* The bf16 tensors of io as for the kernels of attention.h, but that key and dkey may be CUDA_TURNED; of a
   gradient all gradients are made. io->along is not used. call->stream is the program's. */
int attention_dnn_enqueue(struct backend_program *program, const struct attention_dnn *dnn,
                          const struct cuda_attention_io *io, const struct attention_call *call,
                          struct err *err);

#endif
