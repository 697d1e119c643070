/* SoftCrossEntropy and its gradient: rows, or positions gathered to rows a tile at a time, in vector loops.
 */
#include "model/ops/soft_cross_entropy.h"

#include "worker/backend/cpu/loss/class_rows.h"

/* What each class of the rows is to have. */
static void soft_rows_aim(const struct soft_rows *rows, float *labels, int64_t tile) {
  for (int64_t t = 0; t < tile; t++, labels += rows->axis.classes)
    for (int64_t c = 0; c < rows->axis.classes; c++)
      labels[c] = (float)soft_target(rows, labels[c], c);
}

/* scratch: f32[2, CLASS_TILE, classes] at most; grads: NULL without gradients. */
static void soft_cross_entropy_walk(struct class_pass *pass, const struct soft_rows *rows,
                                    const struct tensor in[2], float *grads, float *scratch) {
  const struct class_axis *axis = &rows->axis;
  pass->rows.classes = axis->classes;
  for (int64_t o = 0; o < axis->outer; o++)
    for (int64_t i = 0; i < axis->inner; i += CLASS_TILE) {
      int64_t tile = axis->inner - i < CLASS_TILE ? axis->inner - i : CLASS_TILE;
      int64_t at = o * axis->classes * axis->inner + i;
      float *x = scratch, *target = scratch + tile * axis->classes;
      class_gather(axis, (const float *)in[0].data + at, tile, x);
      class_gather(axis, (const float *)in[1].data + at, tile, target);
      soft_rows_aim(rows, target, tile);
      for (int64_t t = 0; t < tile; t++)
        class_pass_soft_row(pass, x + t * axis->classes, target + t * axis->classes);
      if (grads)
        class_scatter(axis, x, tile, grads + at);
    }
}

static int run_forward(struct backend_program *program, struct cpu_step *step, const struct backend_run *run,
                       struct err *err) {
  struct class_step *details = class_step_open(step);
  const struct op_call *call = &details->call;
  struct class_pass pass = {0};
  struct soft_rows rows;
  (void)program, (void)run;
  if (soft_rows_init(&rows, call->node, call->in, err))
    return err->code;
  soft_cross_entropy_walk(&pass, &rows, call->in, NULL, details->scratch);
  *(float *)call->out[0].data = (float)pass.sums.loss;
  return ERR_OK;
}

static int run_backward(struct backend_program *program, struct cpu_step *step, const struct backend_run *run,
                        struct err *err) {
  struct class_step *details = class_step_open(step);
  const struct op_call *call = &details->call;
  struct class_pass pass = {.has_gradient = true, .scale = *(const float *)call->in[0].data};
  struct soft_rows rows;
  (void)program, (void)run;
  if (soft_rows_init(&rows, call->node, call->in + 1, err))
    return err->code;
  soft_cross_entropy_walk(&pass, &rows, call->in + 1, call->out[0].data, details->scratch);
  return ERR_OK;
}

static bool prepare_pass(struct backend_program *program, const struct node *node, int first,
                         int (*run)(struct backend_program *program, struct cpu_step *step,
                                    const struct backend_run *run, struct err *err)) {
  struct class_axis axis;
  struct shape labels;
  struct err err = ERR_NONE;
  if (class_rows_axis(node, &node_input(program->graph, node, first)->shape, &axis, &labels, &err))
    return false;
  int64_t tile = axis.inner < CLASS_TILE ? axis.inner : CLASS_TILE;
  class_step_add(program, node, &(struct class_wish){.scratch_elems = 2 * axis.classes * tile, .run = run});
  return true;
}

static bool prepare_soft_cross_entropy(struct backend_program *program, const struct node *node) {
  return prepare_pass(program, node, 0, run_forward);
}

static bool prepare_soft_cross_entropy_grad(struct backend_program *program, const struct node *node) {
  return prepare_pass(program, node, 1, run_backward);
}

const struct cpu_kernel cpu_soft_cross_entropy = {"SoftCrossEntropy", prepare_soft_cross_entropy};
const struct cpu_kernel cpu_soft_cross_entropy_grad = {"SoftCrossEntropyGrad",
                                                       prepare_soft_cross_entropy_grad};
