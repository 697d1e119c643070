/* Folds as parts of steps: into how many parts rows are cut, and where everything lies. */
#include "worker/backend/cuda/rows/fold.h"

/* Enough threads to fill a large GPU, each with enough elements to be worth its partial result. */
enum { THREADS_WANTED = 1 << 18, THREAD_ELEMS_LEAST = 16 };

/* Of sums of neighbouring rows: how many a thread has; the groups of them that a block has at most.
   BLOCKS_WANTED: two a multiprocessor at a time, in whole rounds of 132 of them. */
enum { GROUP_ROWS = 8, GROUPS_MAX = 32, BLOCKS_WANTED = 792, GROUP_ELEMS_LEAST = 8 };

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

/* Rows that lie side by side, whose elements are but added, and enough of them for the threads of a block. */
static bool plan_groups(struct cuda_fold *fold) {
  const struct cuda_rows *rows = &fold->rows;
  bool is_sum = fold->kind == FOLD_SUM || fold->kind == FOLD_ABS || fold->kind == FOLD_SQUARES ||
                fold->kind == FOLD_MOMENTS || fold->kind == FOLD_GRADIENTS || fold->kind == FOLD_MASKED;
  int64_t all = rows->k1 / GROUP_ROWS, tiles = (all + GROUPS_MAX - 1) / GROUPS_MAX;
  if (!is_sum || fold->stat_elems || rows->r0 != 1 || rows->k1 % GROUP_ROWS != 0)
    return false;
  int groups = (int)((all + tiles - 1) / tiles);
  if (rows->n < 2 * (int64_t)(ROWS_BLOCK / groups))
    return false;
  fold->groups = groups;
  fold->lanes = ROWS_BLOCK / groups;
  return true;
}

void cuda_folding_plan(struct backend_program *program, struct cuda_step *step,
                       struct cuda_folding *folding) {
  struct cuda_fold *fold = &folding->fold;
  int64_t n = fold->rows.n, most, parts;
  if (plan_groups(fold)) {
    most = n / ((int64_t)fold->lanes * GROUP_ELEMS_LEAST);
    parts = BLOCKS_WANTED * GROUP_ROWS * (int64_t)fold->groups / fold->rows.rows;
  } else {
    fold->lanes = cuda_rows_lanes(&fold->rows);
    most = n / ((int64_t)fold->lanes * THREAD_ELEMS_LEAST);
    parts = THREADS_WANTED / (fold->rows.rows * fold->lanes);
  }
  parts = parts < most ? parts : most;
  parts = parts < 1 ? 1 : parts;
  fold->part_elems = (n + parts - 1) / parts;
  fold->parts = (n + fold->part_elems - 1) / fold->part_elems;
  if (fold->stat_elems)
    fold->by_stat_elems = cuda_divisor_of(fold->stat_elems);
  if (fold->parts > 1)
    cuda_folding_parts(program, step, folding, fold->parts);
}

void cuda_folding_parts(struct backend_program *program, struct cuda_step *step, struct cuda_folding *folding,
                        int64_t parts) {
  struct cuda_fold *fold = &folding->fold;
  fold->parts = parts;
  folding->partials = cuda_scratch(program, step, (size_t)(fold->rows.rows * parts) * 2 * sizeof(double));
}

struct cuda_fold cuda_folding_operands(const struct cuda_folding *folding, const struct cuda_step *step) {
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
  return fold;
}

int cuda_folding_enqueue(const struct cuda_folding *folding, const struct cuda_step *step,
                         cudaStream_t stream, struct err *err) {
  struct cuda_fold fold = cuda_folding_operands(folding, step);
  cuda_fold_launch(&fold, stream);
  return cuda_check(step->node, cudaGetLastError(), "reduce", err);
}
