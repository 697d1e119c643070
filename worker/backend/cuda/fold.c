/* Folds as parts of steps: into how many parts rows are cut, and where everything lies. */
#include "worker/backend/cuda/fold.h"

/* Enough threads to fill a large GPU, each with enough elements to be worth its partial result. */
enum { THREADS_WANTED = 1 << 18, THREAD_ELEMS_LEAST = 16 };

struct cuda_folding cuda_folding_of(enum cuda_fold_kind kind, enum cuda_fold_finish finish) {
  return (struct cuda_folding){.fold = {.kind = kind, .finish = finish, .scale = 1.0},
                               .x = -1,
                               .other = -1,
                               .mean = -1,
                               .inv_std = -1,
                               .out = {-1, -1, -1},
                               .partials = -1,
                               .addend = -1,
                               .y = -1,
                               .bias = -1,
                               .scale = -1,
                               .masked = -1};
}

void cuda_folding_plan(struct backend_program *program, struct cuda_step *step,
                       struct cuda_folding *folding) {
  struct cuda_fold *fold = &folding->fold;
  int64_t n = fold->rows.n, most, parts;
  fold->lanes = cuda_rows_lanes(&fold->rows);
  most = n / ((int64_t)fold->lanes * THREAD_ELEMS_LEAST);
  parts = THREADS_WANTED / (fold->rows.rows * fold->lanes);
  parts = parts < most ? parts : most;
  parts = parts < 1 ? 1 : parts;
  fold->part_elems = (n + parts - 1) / parts;
  fold->parts = (n + fold->part_elems - 1) / fold->part_elems;
  if (fold->stat_elems)
    fold->by_stat_elems = cuda_divisor_of(fold->stat_elems);
  if (fold->parts > 1)
    folding->partials =
        cuda_scratch(program, step, (size_t)(fold->rows.rows * fold->parts) * 2 * sizeof(double));
}

int cuda_folding_enqueue(const struct cuda_folding *folding, const struct cuda_step *step,
                         cudaStream_t stream, struct err *err) {
  struct cuda_fold fold = folding->fold;
  fold.x = cuda_arg_tensor(step, folding->x);
  fold.other = cuda_arg_tensor(step, folding->other);
  fold.mean = cuda_arg_tensor(step, folding->mean).data;
  fold.inv_std = cuda_arg_tensor(step, folding->inv_std).data;
  for (int o = 0; o < 3; o++)
    fold.out[o] = cuda_arg_tensor(step, folding->out[o]);
  fold.partials = cuda_arg_tensor(step, folding->partials).data;
  fold.masking.addend = cuda_arg_tensor(step, folding->addend);
  fold.masking.y = cuda_arg_tensor(step, folding->y);
  fold.masking.bias = cuda_arg_tensor(step, folding->bias).data;
  fold.masking.masked = cuda_arg_tensor(step, folding->masked);
  fold.mask_scale = cuda_arg_tensor(step, folding->scale).data;
  cuda_fold_launch(&fold, stream);
  return cuda_check(step->node, cudaGetLastError(), "reduce", err);
}
