/* Which nodes' attention cuDNN computes. */
#ifndef WEIR_WORKER_BACKEND_CUDA_ATTENTION_ATTENTION_PLANS_H
#define WEIR_WORKER_BACKEND_CUDA_ATTENTION_ATTENTION_PLANS_H

#include "worker/backend/cuda/attention/attention_dnn.h"

/* NULL where another way is better or the only one: not in bf16, behind a mask that is not causal, of heads
   that cuDNN's engines do not take, of few rows or columns, or where cuDNN is not trusted. The program owns
   it; nodes alike share one. */
struct attention_dnn *attention_plan_find(struct backend_program *program, const struct cuda_attention *shape,
                                          bool has_mask, bool is_grad);
void attention_plans_free(struct backend_program *program);

#endif
