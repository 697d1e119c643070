/* ScaledAttention by matrix products: where factors may be rounded tensor cores make them, and writing the
   scores of a few matrices at a time costs less than multiplying without them. */
#ifndef WEIR_WORKER_BACKEND_CUDA_ATTENTION_ATTENTION_PRODUCTS_H
#define WEIR_WORKER_BACKEND_CUDA_ATTENTION_ATTENTION_PRODUCTS_H

#include "worker/backend/cuda/attention/attention.h"
#include "worker/backend/cuda/engine/cuda.h"

struct attention_products;

/* NULL where tiles are the better way: in fp32, and of matrices whose scores are few or too many. */
struct attention_products *attention_products_new(struct backend_program *program,
                                                  const struct cuda_attention *shape, bool is_grad);
size_t attention_products_bytes(const struct attention_products *products); /* of scratch */

/* Tensors of the program's factor type; io as for the kernels of attention.h. */
int attention_products_forward(const struct attention_products *products, const struct cuda_attention_io *io,
                               const struct attention_call *call, struct err *err);
int attention_products_backward(const struct attention_products *products, const struct cuda_attention_io *io,
                                const struct attention_call *call, struct err *err);

#endif
