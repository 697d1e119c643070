/* Tensors from one form to another. */
#ifndef WEIR_WORKER_BACKEND_CUDA_ENGINE_CONVERT_H
#define WEIR_WORKER_BACKEND_CUDA_ENGINE_CONVERT_H

#include <cuda_runtime_api.h>

#include "worker/backend/cuda/engine/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* to = from, of the same shape. Types differ only as F32 and BF16 do; layouts as they like, but
   that TURNED is made of DENSE alone, and back. */
void cuda_convert_launch(struct cuda_tensor from, struct cuda_tensor to, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
