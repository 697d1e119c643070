/* Sums and means along axes, as loops over a dense tensor; means over all spatial dimensions as oneDNN's
   pools, in the layout that their input has. */
#include "model/ops/shared/reduce.h"

#include "worker/backend/cpu/channels.h"
#include "worker/backend/cpu/cpu.h"
#include "worker/backend/cpu/lanes.h"
#include "worker/backend/cpu/pool.h"
#include "worker/backend/cpu/reals.h"

/* out[k0,k1] = scale * the sum of x[r0,k0,r1,k1] over r0 and r1. Dimensions that are not there are 1. */
struct reduction {
  int64_t r0, k0, r1, k1;
  double scale;
  bool is_bf16; /* x, of which k1 is more than 1 */
};

/* Takes dimension d of the tensor, from the innermost outwards: a run of dimensions that are all reduced, or
   all kept, is one of the reduction's. False when these are not enough. */
static bool take_dim(struct reduction *reduction, int *place, bool is_reduced, int64_t dim) {
  int64_t *const places[] = {&reduction->k1, &reduction->r1, &reduction->k0, &reduction->r0};
  if (*place % 2 != is_reduced)
    ++*place;
  if (*place == 4)
    return false;
  *places[*place] *= dim;
  return true;
}

/* From -> to as for reduce_sum_to. */
static bool reduction_init(struct reduction *reduction, const struct shape *from, const struct shape *to,
                           double scale) {
  int place = 0;
  *reduction = (struct reduction){1, 1, 1, 1, scale, false};
  for (int d = from->rank - 1, own = to->rank - 1; d >= 0; d--, own--)
    if (from->dim[d] != 1 && !take_dim(reduction, &place, own < 0 || to->dim[own] == 1, from->dim[d]))
      return false;
  return true;
}

LANES_SUM(sum_of, v)

/* k1 is 1: rows of r1 elements. */
static void sum_rows(const struct reduction *reduction, const float *x, float *out) {
  for (int64_t k = 0; k < reduction->k0; k++) {
    double sum = 0.0;
    for (int64_t r = 0; r < reduction->r0; r++)
      sum += sum_of(x + (r * reduction->k0 + k) * reduction->r1, 0, reduction->r1);
    out[k] = (float)(sum * reduction->scale);
  }
}

enum { COLUMNS = 512, ROWS = 8 };

/* sums f64[n] += the sum of n columns of x f32[rows,stride]: some rows in f32 first, in pairs. */
static void add_columns(const float *x, int64_t rows, int64_t stride, int64_t n, double *sums) {
  for (; rows >= ROWS; rows -= ROWS, x += ROWS * stride)
    for (int64_t c = 0; c < n; c++) {
      const float *v = x + c;
      sums[c] += ((v[0] + v[stride]) + (v[2 * stride] + v[3 * stride])) +
                 ((v[4 * stride] + v[5 * stride]) + (v[6 * stride] + v[7 * stride]));
    }
  for (; rows > 0; rows--, x += stride)
    for (int64_t c = 0; c < n; c++)
      sums[c] += x[c];
}

/* The same of the r1 rows that begin at element `at` of a tensor, which are widened where they are bf16. */
static void add_rows(const struct reduction *reduction, const void *x, int64_t at, int64_t n, double *sums) {
  int64_t stride = reduction->k1;
  float wide[ROWS * COLUMNS];
  if (!reduction->is_bf16) {
    add_columns((const float *)x + at, reduction->r1, stride, n, sums);
    return;
  }
  for (int64_t left = reduction->r1, rows; left > 0; left -= rows, at += rows * stride) {
    rows = left < ROWS ? left : ROWS;
    for (int64_t r = 0; r < rows; r++)
      reals_widen(x, at + r * stride, n, wide + r * COLUMNS);
    add_columns(wide, rows, COLUMNS, n, sums);
  }
}

/* A few columns at a time, each summed down the rows. */
static void sum_columns(const struct reduction *reduction, const void *x, float *out) {
  int64_t plane = reduction->r1 * reduction->k1;
  for (int64_t k = 0; k < reduction->k0; k++, out += reduction->k1)
    for (int64_t begin = 0; begin < reduction->k1; begin += COLUMNS) {
      int64_t n = reduction->k1 - begin < COLUMNS ? reduction->k1 - begin : COLUMNS;
      double sums[COLUMNS] = {0};
      for (int64_t r = 0; r < reduction->r0; r++)
        add_rows(reduction, x, (r * reduction->k0 + k) * plane + begin, n, sums);
      for (int64_t c = 0; c < n; c++)
        out[begin + c] = (float)(sums[c] * reduction->scale);
    }
}

static int run_reduction(struct backend_program *program, struct cpu_step *step,
                         const struct backend_run *run, struct err *err) {
  (void)program;
  (void)run;
  (void)err;
  const struct reduction *reduction = step->details;
  if (reduction->k1 == 1)
    sum_rows(reduction, step->args[0].data, step->args[1].data);
  else
    sum_columns(reduction, step->args[0].data, step->args[1].data);
  return ERR_OK;
}

static bool prepare_reduction(struct backend_program *program, const struct node *node,
                              const struct shape *to, double scale) {
  struct reduction reduction;
  if (!reduction_init(&reduction, &node_input(program->graph, node, 0)->shape, to, scale))
    return false;
  dnnl_data_type_t type = reduction.k1 > 1 ? cpu_produced_type(program, node->inputs[0]) : dnnl_f32;
  reduction.is_bf16 = type == dnnl_bf16;
  struct cpu_step *step = cpu_step_new(program, node);
  cpu_read_dense(program, step, node->inputs[0], type);
  cpu_write(program, step, 0, node->outputs[0], NULL);
  step->details = arena_copy(&program->memory, &reduction, sizeof reduction);
  step->run = run_reduction;
  cpu_step_end(program, step, NULL);
  return true;
}

/* SumTo: X -> Y */
static bool prepare_sum_to(struct backend_program *program, const struct node *node) {
  return channels_prepare_sum(program, node) ||
         prepare_reduction(program, node, &node_output(program->graph, node, 0)->shape, 1.0);
}

static bool prepare_sum(struct backend_program *program, const struct node *node) {
  struct err err = ERR_NONE;
  struct shape kept;
  return !reduce_kept_shape(program->graph, node, &kept, &err) &&
         prepare_reduction(program, node, &kept, 1.0);
}

static bool prepare_mean(struct backend_program *program, const struct node *node) {
  const struct shape *x = &node_input(program->graph, node, 0)->shape;
  struct err err = ERR_NONE;
  struct shape kept;
  if (reduce_kept_shape(program->graph, node, &kept, &err))
    return false;
  dnnl_memory_desc_t layout = cpu_layout(program, node->inputs[0]);
  if (reduce_is_pool(x, &kept) && !layout_is_dense(&layout) && pool_prepare_global(program, node))
    return true;
  return prepare_reduction(program, node, &kept, (double)shape_elems(&kept) / (double)shape_elems(x));
}

const struct cpu_kernel cpu_sum_to = {"SumTo", prepare_sum_to};
const struct cpu_kernel cpu_reduce_sum = {"ReduceSum", prepare_sum};
const struct cpu_kernel cpu_reduce_mean = {"ReduceMean", prepare_mean};
