/* Sums: of several tensors, and of the rows of one. */
#include "worker/backend/cpu/cpu.h"

/* Sum: X1, ..., Xn -> Y, all of one shape */
static bool prepare_sum(struct backend_program *program, const struct node *node) {
  const struct graph *graph = program->graph;
  dnnl_memory_desc_t layout = *cpu_layout(program, node->inputs[0]), layouts[OP_INPUTS_MAX];
  float scales[OP_INPUTS_MAX];
  dnnl_primitive_desc_t desc = NULL;
  if (node->n_inputs < 2)
    return false;
  for (int i = 0; i < node->n_inputs; i++) {
    if (!shape_is_same(&node_input(graph, node, i)->shape, &node_input(graph, node, 0)->shape))
      return false;
    layouts[i] = layout;
    scales[i] = 1;
  }
  if (dnnl_sum_primitive_desc_create(&desc, &layout, node->n_inputs, scales, layouts, program->attr,
                                     program->engine))
    return false;
  struct cpu_step *step = cpu_step_new(program, node);
  for (int i = 0; i < node->n_inputs; i++)
    cpu_read(program, step, DNNL_ARG_MULTIPLE_SRC + i, node->inputs[i], &layout);
  cpu_write(program, step, DNNL_ARG_DST, node->outputs[0], &layout);
  cpu_step_end(program, step, desc);
  dnnl_primitive_desc_destroy(desc);
  return true;
}

/* in f32[rows,cols] -> out f32[cols]: a few columns at a time, each summed down the rows in f64. */
static void sum_rows(const float *in, int64_t rows, int64_t cols, float *out) {
  enum { COLUMNS = 64 };
  for (int64_t begin = 0; begin < cols; begin += COLUMNS) {
    int64_t n = cols - begin < COLUMNS ? cols - begin : COLUMNS;
    double sums[COLUMNS] = {0};
    for (int64_t r = 0; r < rows; r++)
      for (int64_t c = 0; c < n; c++)
        sums[c] += in[r * cols + begin + c];
    for (int64_t c = 0; c < n; c++)
      out[begin + c] = (float)sums[c];
  }
}

static int run_sum_rows(struct backend_program *program, struct cpu_step *step, const struct backend_run *run,
                        struct err *err) {
  (void)program;
  (void)run;
  (void)err;
  const dnnl_memory_desc_t *in = &step->args[0].layout;
  sum_rows(step->args[0].data, in->dims[0], in->dims[1], step->args[1].data);
  return ERR_OK;
}

/* SumTo: X -> Y where only leading dimensions are summed, as for a bias: a matrix summed down its rows. */
static bool prepare_sum_to(struct backend_program *program, const struct node *node) {
  const struct shape *in = &node_input(program->graph, node, 0)->shape;
  const struct shape *out = &node_output(program->graph, node, 0)->shape;
  int64_t cols = shape_elems(out), trailing = 1;
  int d = in->rank - 1, o = out->rank - 1;
  for (; d >= 0 && o >= 0 && in->dim[d] == out->dim[o]; d--, o--)
    trailing *= in->dim[d];
  if (trailing != cols)
    return false;
  dnnl_memory_desc_t matrix = layout_dense(2, (const int64_t[]){shape_elems(in) / cols, cols});
  struct cpu_step *step = cpu_step_new(program, node);
  cpu_use(program, step, 0, cpu_buffer_in(program, node, node->inputs[0], NULL), &matrix);
  cpu_write(program, step, 0, node->outputs[0], NULL);
  step->run = run_sum_rows;
  cpu_step_end(program, step, NULL);
  return true;
}

const struct cpu_kernel cpu_sum = {"Sum", prepare_sum};
const struct cpu_kernel cpu_sum_to = {"SumTo", prepare_sum_to};
