/* The gradient of the weights of depthwise convolutions of bf16, for images that are too small for oneDNN's
   direct kernel: its products of matrices, one a channel, are many times slower. */
#ifndef WEIR_WORKER_BACKEND_CPU_CONV_DEPTHWISE_H
#define WEIR_WORKER_BACKEND_CPU_CONV_DEPTHWISE_H

#include "worker/backend/cpu/cpu.h"

/* ConvGradWeight: dY, X -> dW. False, with nothing added, unless factors are bf16 and channels fill vectors.
 */
bool depthwise_prepare_grad_weight(struct backend_program *program, const struct node *node);

#endif
