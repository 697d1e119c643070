/* Launchers of recurrent.cu: what LSTM, GRU and RNN do in a time step besides products of matrices. Letters
   and the record are those of model/ops/shared/recurrent.h; all tensors are f32. */
#ifndef WEIR_WORKER_BACKEND_CUDA_RECURRENT_RECURRENT_H
#define WEIR_WORKER_BACKEND_CUDA_RECURRENT_RECURRENT_H

#include <cuda_runtime_api.h>

#include "model/ops/shared/activation.h"
#include "worker/backend/cuda/engine/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

enum cuda_cell { CUDA_RNN, CUDA_GRU, CUDA_LSTM };

/* One direction of one execution; pointers into device memory, NULL where absent. */
struct cuda_recurrent {
  enum cuda_cell cell;
  int64_t steps, batch, hidden, directions, direction, gates; /* gates: of the cell */
  bool is_reverse, is_batch_first, is_coupled, is_linear_first;
  float clip; /* infinite without */
  struct activation functions[3];
  int node; /* for faults */
  struct cuda_fault *fault;

  const int32_t *lengths;
  const float *bias, *p;                         /* [2gh], [3h] */
  float *gate_sums, *h_before, *c_before, *kept; /* record: [rows,gh], then [rows,h] each */
  const float *h_first, *c_first;                /* the node's inputs: [d,b,h], batch first [b,d,h] */
  float *y, *y_h, *y_c;                          /* the node's outputs */
  const float *dy, *dy_h, *dy_c;                 /* backward: gradients of those */
  float *dh, *dc, *d_spare;                      /* backward: [b,h] */
  float *d_gates, *d_kept;                       /* backward: [rows,gh], [rows,h] */
  float *dh_first, *dc_first;                    /* backward: gradients of h_first, c_first */
};

/* gate_sums = the biases (without biases: left alone); h_before and c_before of the first step = the initial
   states. A length that no sequence can have is a fault. */
void cuda_recurrent_begin_launch(const struct cuda_recurrent *pass, cudaStream_t stream);
/* Of step t, walked as the s-th: gate_sums have their products. GRU: part 0 before, 1 behind the product with
   the hidden gate's weights; the others: part 1 alone. The state goes to the next step, or out. */
void cuda_recurrent_step_launch(const struct cuda_recurrent *pass, int64_t t, int part, cudaStream_t stream);

/* dh and dc = the gradients of the final states. */
void cuda_recurrent_begin_back_launch(const struct cuda_recurrent *pass, cudaStream_t stream);
/* Fills d_gates (and d_kept) of step t; dh and dc become what goes to the step before besides products. GRU:
   part 1 behind the product of the hidden gate's gradient (d_spare). */
void cuda_recurrent_step_back_launch(const struct cuda_recurrent *pass, int64_t t, int part,
                                     cudaStream_t stream);
void cuda_recurrent_end_back_launch(const struct cuda_recurrent *pass, cudaStream_t stream);

/* Fills products [rows,3h]: the sums of its columns are the gradients of LSTM's peepholes. */
void cuda_recurrent_peepholes_launch(const struct cuda_recurrent *pass, float *products, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
