/* Row-wise kernels as steps. */
#include "worker/backend/cuda/rows/row_wise.h"

struct cuda_row_step cuda_row_step_of(enum cuda_row_wise_kind kind) {
  return (struct cuda_row_step){
      .row_wise = {.kind = kind},
      -1,
      -1,
      -1,
      -1,
      -1,
      -1,
      -1,
      -1,
      -1,
  };
}

void cuda_row_step_channels(struct cuda_row_step *own, int64_t run, int64_t channels) {
  own->row_wise.by_run = cuda_divisor_of(run);
  own->row_wise.by_channels = cuda_divisor_of(channels);
}

struct cuda_row_wise cuda_row_step_operands(const struct cuda_row_step *own, const struct cuda_step *step) {
  struct cuda_row_wise row_wise = own->row_wise;
  row_wise.a = cuda_arg_tensor(step, own->a);
  row_wise.b = cuda_arg_tensor(step, own->b);
  row_wise.c = cuda_arg_tensor(step, own->c);
  row_wise.out = cuda_arg_tensor(step, own->out);
  row_wise.out2 = cuda_arg_tensor(step, own->out2);
  row_wise.scale = cuda_arg_tensor(step, own->scale).data;
  row_wise.bias = cuda_arg_tensor(step, own->bias).data;
  row_wise.mean = cuda_arg_tensor(step, own->mean).data;
  row_wise.inv_std = cuda_arg_tensor(step, own->inv_std).data;
  return row_wise;
}

int cuda_row_step_enqueue(const struct cuda_row_step *own, const struct cuda_step *step, cudaStream_t stream,
                          struct err *err) {
  struct cuda_row_wise row_wise = cuda_row_step_operands(own, step);
  row_wise.lanes = cuda_rows_lanes(&row_wise.rows);
  cuda_row_wise_launch(&row_wise, stream);
  return cuda_check(step->node, cudaGetLastError(), "normalise rows", err);
}

static int enqueue_row_wise(struct backend_program *program, const struct cuda_step *step,
                            cudaStream_t stream, struct err *err) {
  (void)program;
  return cuda_row_step_enqueue(step->details, step, stream, err);
}

void cuda_row_step_end(struct backend_program *program, struct cuda_step *step, struct cuda_row_step *own) {
  step->details = arena_copy(cuda_view(program)->memory, own, sizeof *own);
  step->enqueue = enqueue_row_wise;
  cuda_step_end(program, step);
}
