/* Whether cuDNN's attention computes what our tiles compute. */
#ifndef WEIR_WORKER_BACKEND_CUDA_ATTENTION_ATTENTION_PROBE_H
#define WEIR_WORKER_BACKEND_CUDA_ATTENTION_ATTENTION_PROBE_H

#include "worker/backend/cuda/attention/attention_graph.h"
#include "worker/backend/cuda/engine/cuda.h"

/* Computes two random matrices of the kind by cuDNN and by our tiles, and compares them: once for each kind
   (whatever its batch and heads), device and process. A difference that bf16 does not explain is logged. For
   a program that is being prepared. Waits for the device. Any thread. */
bool attention_is_trusted(struct backend_program *program, const struct attention_kind *kind);

#endif
