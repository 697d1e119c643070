/* Resize and its gradient, where oneDNN's resampling means the same: linear with half-pixel coordinates, and
   nearest where every element becomes a whole number of them. */
#include "model/ops/shared/resize.h"
#include "worker/backend/cpu/cpu.h"

static bool is_half_pixel(const struct resize *resize) {
  return resize->coordinates == COORDINATES_HALF_PIXEL ||
         resize->coordinates == COORDINATES_HALF_PIXEL_SYMMETRIC ||
         resize->coordinates == COORDINATES_PYTORCH_HALF_PIXEL;
}

static bool is_linear(const struct resize *resize) {
  for (int d = 2; d < resize->in.rank; d++)
    if ((resize->out.dim[d] == 1 && resize->coordinates == COORDINATES_PYTORCH_HALF_PIXEL) ||
        (resize->is_antialiased && resize->out.dim[d] < resize->in.dim[d]))
      return false;
  return resize->mode == RESIZE_LINEAR && is_half_pixel(resize);
}

static bool is_repeated(const struct resize *resize) {
  bool is_floored = resize->coordinates == COORDINATES_ASYMMETRIC && resize->rounding == ROUND_FLOOR;
  bool is_rounded = is_half_pixel(resize) &&
                    (resize->rounding == ROUND_PREFER_FLOOR || resize->rounding == ROUND_PREFER_CEIL);
  for (int d = 2; d < resize->in.rank; d++)
    if (resize->out.dim[d] % resize->in.dim[d] != 0)
      return false;
  return resize->mode == RESIZE_NEAREST && (is_floored || is_rounded);
}

/* False if oneDNN computes something else. */
static bool choose_algorithm(const struct resize *resize, dnnl_alg_kind_t *kind) {
  if (resize->in.rank < 3 || resize->in.rank > 5 || resize->in.dim[0] != resize->out.dim[0] ||
      resize->in.dim[1] != resize->out.dim[1])
    return false;
  for (int d = 0; d < resize->in.rank; d++)
    if (resize->scale[d] * (double)resize->in.dim[d] != (double)resize->out.dim[d])
      return false;
  *kind = resize->mode == RESIZE_LINEAR ? dnnl_resampling_linear : dnnl_resampling_nearest;
  return is_linear(resize) || is_repeated(resize);
}

static dnnl_primitive_desc_t forward_describe(struct backend_program *program, const struct resize *resize,
                                              dnnl_alg_kind_t kind, const dnnl_memory_desc_t *x) {
  dnnl_memory_desc_t y = layout_any(resize->out.rank, resize->out.dim);
  dnnl_resampling_desc_t resampling;
  if (dnnl_resampling_forward_desc_init(&resampling, dnnl_forward_training, kind, NULL, x, &y))
    return NULL;
  return cpu_describe(program, &resampling, NULL, NULL);
}

/* X -> Y */
static bool prepare_resize(struct backend_program *program, const struct node *node) {
  const struct shape *in = &node_input(program->graph, node, 0)->shape;
  struct err err = ERR_NONE;
  struct resize resize;
  dnnl_alg_kind_t kind;
  if (resize_read(program->graph, node, in, &resize, &err) || !choose_algorithm(&resize, &kind))
    return false;
  dnnl_memory_desc_t x = cpu_layout_as(program, node->inputs[0], in->rank, in->dim);
  dnnl_primitive_desc_t desc = forward_describe(program, &resize, kind, &x);
  if (!desc)
    return false;
  struct cpu_step *step = cpu_step_new(program, node);
  cpu_read(program, step, DNNL_ARG_SRC, node->inputs[0], &x);
  cpu_write(program, step, DNNL_ARG_DST, node->outputs[0], cpu_query(desc, dnnl_query_dst_md, 0));
  cpu_step_end(program, step, desc);
  return true;
}

/* dY -> dX */
static bool prepare_resize_grad(struct backend_program *program, const struct node *node) {
  const struct shape *out = &node_input(program->graph, node, 0)->shape;
  const struct shape *in = &node_output(program->graph, node, 0)->shape;
  dnnl_memory_desc_t dx = layout_any(in->rank, in->dim), x;
  dnnl_resampling_desc_t resampling;
  struct err err = ERR_NONE;
  struct resize resize;
  dnnl_alg_kind_t kind;
  if (resize_read(program->graph, node, in, &resize, &err) || !choose_algorithm(&resize, &kind))
    return false;
  dnnl_memory_desc_t dy = cpu_layout_as(program, node->inputs[0], out->rank, out->dim);
  if (!layout_blocked_like(&dy, in->rank, in->dim, &x))
    x = layout_dense(in->rank, in->dim);
  if (dnnl_resampling_backward_desc_init(&resampling, kind, NULL, &dx, &dy))
    return false;
  dnnl_primitive_desc_t hint = forward_describe(program, &resize, kind, &x);
  dnnl_primitive_desc_t desc = hint ? cpu_describe(program, &resampling, NULL, hint) : NULL;
  if (!desc)
    return false;
  struct cpu_step *step = cpu_step_new(program, node);
  cpu_read(program, step, DNNL_ARG_DIFF_DST, node->inputs[0], &dy);
  cpu_write(program, step, DNNL_ARG_DIFF_SRC, node->outputs[0], cpu_query(desc, dnnl_query_diff_src_md, 0));
  cpu_step_end(program, step, desc);
  return true;
}

const struct cpu_kernel cpu_resize = {"Resize", prepare_resize};
const struct cpu_kernel cpu_resize_grad = {"ResizeGrad", prepare_resize_grad};
