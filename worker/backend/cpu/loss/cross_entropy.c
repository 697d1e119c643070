/* CrossEntropy and its gradient: rows, or positions gathered to rows a tile at a time, in vector loops. */
#include "worker/backend/cpu/loss/class_rows.h"

/* in: scores and labels. grads: NULL without gradients. scratch: f32[CLASS_TILE, classes] at most. */
static void cross_entropy_walk(struct class_pass *pass, const struct class_axis *axis,
                               const struct tensor in[2], float *grads, float *scratch) {
  const float *scores = in[0].data;
  const int64_t *label = in[1].data;
  for (int64_t o = 0; o < axis->outer; o++)
    for (int64_t i = 0; i < axis->inner; i += CLASS_TILE) {
      int64_t tile = axis->inner - i < CLASS_TILE ? axis->inner - i : CLASS_TILE;
      int64_t at = o * axis->classes * axis->inner + i;
      class_gather(axis, scores + at, tile, scratch);
      for (int64_t t = 0; t < tile; t++)
        class_pass_row(pass, scratch + t * axis->classes, *label++);
      if (grads)
        class_scatter(axis, scratch, tile, grads + at);
    }
}

/* first: the input that is the scores. */
static int pass_init(struct class_pass *pass, struct class_axis *axis, const struct op_call *call, int first,
                     struct err *err) {
  struct shape labels;
  if (class_rows_axis(call->node, &call->in[first].shape, axis, &labels, err))
    return err->code;
  return class_rows_init(&pass->rows, call->node, &call->in[first + 1], axis->classes, err);
}

static int run_forward(struct backend_program *program, struct cpu_step *step, const struct backend_run *run,
                       struct err *err) {
  struct class_step *details = class_step_open(step);
  const struct op_call *call = &details->call;
  struct class_pass pass = {0};
  struct class_axis axis;
  (void)program, (void)run;
  if (pass_init(&pass, &axis, call, 0, err))
    return err->code;
  cross_entropy_walk(&pass, &axis, call->in, NULL, details->scratch);
  class_rows_finish(&pass.sums, call->out);
  return ERR_OK;
}

static int run_backward(struct backend_program *program, struct cpu_step *step, const struct backend_run *run,
                        struct err *err) {
  struct class_step *details = class_step_open(step);
  const struct op_call *call = &details->call;
  struct class_pass pass = {.has_gradient = true, .scale = *(const float *)call->in[0].data};
  struct class_axis axis;
  (void)program, (void)run;
  if (pass_init(&pass, &axis, call, 1, err))
    return err->code;
  cross_entropy_walk(&pass, &axis, call->in + 1, call->out[0].data, details->scratch);
  return ERR_OK;
}

static bool prepare_pass(struct backend_program *program, const struct node *node, int first,
                         int (*run)(struct backend_program *program, struct cpu_step *step,
                                    const struct backend_run *run, struct err *err)) {
  struct class_axis axis;
  struct shape labels;
  struct err err = ERR_NONE;
  if (node_attr_int(node, "log_probabilities", 0) ||
      class_rows_axis(node, &node_input(program->graph, node, first)->shape, &axis, &labels, &err))
    return false;
  int64_t tile = axis.inner < CLASS_TILE ? axis.inner : CLASS_TILE;
  class_step_add(program, node, &(struct class_wish){.scratch_elems = axis.classes * tile, .run = run});
  return true;
}

static bool prepare_cross_entropy(struct backend_program *program, const struct node *node) {
  return prepare_pass(program, node, 0, run_forward);
}

static bool prepare_cross_entropy_grad(struct backend_program *program, const struct node *node) {
  return prepare_pass(program, node, 1, run_backward);
}

const struct cpu_kernel cpu_cross_entropy = {"CrossEntropy", prepare_cross_entropy};
const struct cpu_kernel cpu_cross_entropy_grad = {"CrossEntropyGrad", prepare_cross_entropy_grad};
