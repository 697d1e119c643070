/* Spreads as parts of steps. */
#include "worker/backend/cuda/rows/spread.h"

struct cuda_spreading cuda_spreading_of(enum cuda_spread_kind kind) {
  return (struct cuda_spreading){
      .spread = {.kind = kind, .scale = 1.0}, .x = -1, .dy = -1, .out = -1, .row = {-1, -1, -1, -1}};
}

int cuda_spreading_enqueue(const struct cuda_spreading *spreading, const struct cuda_step *step,
                           cudaStream_t stream, struct err *err) {
  struct cuda_spread spread = spreading->spread;
  spread.x = cuda_arg_tensor(step, spreading->x);
  spread.dy = cuda_arg_tensor(step, spreading->dy);
  spread.out = cuda_arg_tensor(step, spreading->out);
  for (int i = 0; i < SPREAD_VECTORS; i++)
    spread.row[i] = cuda_arg_tensor(step, spreading->row[i]);
  cuda_spread_launch(&spread, stream);
  return cuda_check(step->node, cudaGetLastError(), "spread rows", err);
}
