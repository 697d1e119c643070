/* LRN and its gradient as steps, in the layout that x has. */
#include "worker/backend/cuda/conv/pool.h"
#include "worker/backend/cuda/rows/rows.h"

struct lrn_step {
  struct cuda_lrn lrn;
  int x, dy, out, responses; /* arguments; -1: none */
};

static int enqueue_lrn(struct backend_program *program, const struct cuda_step *step, cudaStream_t stream,
                       struct err *err) {
  const struct lrn_step *own = step->details;
  struct cuda_lrn lrn = own->lrn;
  (void)program;
  lrn.x = cuda_arg_tensor(step, own->x);
  lrn.dy = cuda_arg_tensor(step, own->dy);
  lrn.out = cuda_arg_tensor(step, own->out);
  lrn.responses = cuda_arg_tensor(step, own->responses).data;
  cuda_lrn_launch(&lrn, stream);
  return cuda_check(step->node, cudaGetLastError(), "normalise channels", err);
}

static void lrn_init(struct cuda_lrn *lrn, const struct node *node, const struct shape *x,
                     enum cuda_layout layout) {
  int64_t size = node_attr_int(node, "size", 1);
  *lrn = (struct cuda_lrn){.channels = x->dim[1],
                           .inner = 1,
                           .below = (size - 1) / 2,
                           .above = size / 2,
                           .elems = shape_elems(x),
                           .alpha = node_attr_float(node, "alpha", 1e-4f) / (float)size,
                           .beta = node_attr_float(node, "beta", 0.75f),
                           .bias = node_attr_float(node, "bias", 1.0f)};
  for (int d = 2; d < x->rank && layout != CUDA_CHANNELS_LAST; d++)
    lrn->inner *= x->dim[d];
}

/* X -> Y; dY, X -> dX */
static bool prepare_lrn(struct backend_program *program, const struct node *node) {
  bool is_grad = node->n_inputs > 1;
  enum cuda_layout layout = cuda_layout_of(program, node->inputs[is_grad]);
  struct lrn_step own = {.dy = -1, .responses = -1};
  struct cuda_step *step;
  lrn_init(&own.lrn, node, &node_input(cuda_view(program)->graph, node, 0)->shape, layout);
  if (own.lrn.elems > INT32_MAX)
    return false;
  step = cuda_step_new(program, node);
  own.x = cuda_read(program, step, node->inputs[is_grad], CUDA_ANY_TYPE, layout);
  if (is_grad) {
    own.dy = cuda_read(program, step, node->inputs[0], CUDA_ANY_TYPE, layout);
    own.responses = cuda_rows_scratch(program, step, own.lrn.elems);
  }
  own.out = cuda_write(program, step, node->outputs[0], CUDA_ANY_TYPE, layout);
  step->details = arena_copy(cuda_view(program)->memory, &own, sizeof own);
  step->enqueue = enqueue_lrn;
  cuda_step_end(program, step);
  return true;
}

const struct cuda_kernel cuda_kernel_lrn = {.op = "LRN", .prepare = prepare_lrn};
const struct cuda_kernel cuda_kernel_lrn_grad = {.op = "LRNGrad", .prepare = prepare_lrn};
