/* Col2Im and its gradient as steps. */
#include "worker/backend/cuda/conv/col2im.h"

#include "model/ops/col2im.h"
#include "worker/backend/cuda/rows/rows.h"

enum { LENGTH_MAX = 1 << 20 }; /* so that products of two sizes fit */

struct col2im_step {
  struct cuda_col2im geometry;
  int columns, image; /* arguments */
  bool is_back;       /* image -> columns */
};

static int enqueue_col2im(struct backend_program *program, const struct cuda_step *step, cudaStream_t stream,
                          struct err *err) {
  const struct col2im_step *own = step->details;
  struct cuda_col2im geometry = own->geometry;
  (void)program;
  geometry.columns = cuda_arg_tensor(step, own->columns);
  geometry.image = cuda_arg_tensor(step, own->image);
  if (own->is_back)
    cuda_im2col_launch(&geometry, stream);
  else
    cuda_col2im_launch(&geometry, stream);
  return cuda_check(step->node, cudaGetLastError(), "fold windows", err);
}

/* False for what 32 bits cannot count. */
static bool col2im_init(struct cuda_col2im *geometry, const struct shape *image, const struct windows *w) {
  double columns = (double)w->taps * (double)w->out_elems;
  geometry->planes = image->dim[0] * image->dim[1];
  for (int d = 0; d < COL2IM_DIMS; d++) {
    if (w->in[d] > LENGTH_MAX || w->kernel[d] > LENGTH_MAX || w->stride[d] > LENGTH_MAX ||
        w->dilation[d] > LENGTH_MAX || w->pad_begin[d] > LENGTH_MAX || w->pad_end[d] > LENGTH_MAX)
      return false;
    geometry->in[d] = (int)w->in[d];
    geometry->out[d] = (int)w->out[d];
    geometry->kernel[d] = (int)w->kernel[d];
    geometry->stride[d] = (int)w->stride[d];
    geometry->dilation[d] = (int)w->dilation[d];
    geometry->pad[d] = (int)w->pad_begin[d];
  }
  return (double)geometry->planes * columns <= INT32_MAX && shape_elems(image) <= INT32_MAX;
}

static bool prepare_columns(struct backend_program *program, const struct node *node, bool is_back) {
  const struct graph *graph = cuda_view(program)->graph;
  struct shape image = node_input(graph, node, 0)->shape;
  struct col2im_step own = {.is_back = is_back};
  struct cuda_step *step;
  struct windows windows;
  struct err err = ERR_NONE;
  if (is_back ? windows_init(&windows, node, &image, NULL, &err)
              : col2im_windows(graph, node, &image, &windows, &err))
    return false;
  if (!col2im_init(&own.geometry, &image, &windows))
    return false;
  step = cuda_step_new(program, node);
  *(is_back ? &own.image : &own.columns) =
      cuda_read(program, step, node->inputs[0], CUDA_ANY_TYPE, CUDA_DENSE);
  *(is_back ? &own.columns : &own.image) =
      cuda_write(program, step, node->outputs[0], CUDA_ANY_TYPE, CUDA_DENSE);
  step->details = arena_copy(cuda_view(program)->memory, &own, sizeof own);
  step->enqueue = enqueue_col2im;
  cuda_step_end(program, step);
  return true;
}

static bool prepare_col2im(struct backend_program *program, const struct node *node) {
  return prepare_columns(program, node, false);
}

static bool prepare_col2im_grad(struct backend_program *program, const struct node *node) {
  return prepare_columns(program, node, true);
}

const struct cuda_kernel cuda_kernel_col2im = {.op = "Col2Im", .prepare = prepare_col2im};
const struct cuda_kernel cuda_kernel_col2im_grad = {.op = "Col2ImGrad", .prepare = prepare_col2im_grad};
