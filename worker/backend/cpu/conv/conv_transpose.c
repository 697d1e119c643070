/* ConvTranspose as a oneDNN deconvolution: X, W, [B] -> Y. */
#include "model/ops/conv.h"
#include "worker/backend/cpu/cpu.h"
#include "worker/backend/cpu/window.h"

struct deconv {
  int rank, weights_rank; /* grouped weights are [G, O/G, I/G, ...]; ONNX's [G, I/G, O/G, ...] */
  dnnl_dims_t in, weights, bias, out;
  struct window window;
};

static bool deconv_init(struct deconv *deconv, const struct graph *graph, const struct node *node) {
  const struct shape *x = &node_input(graph, node, 0)->shape, *w = &node_input(graph, node, 1)->shape;
  const struct shape *y = &node_output(graph, node, 0)->shape;
  int64_t groups = node_attr_int(node, "group", 1);
  int g = groups > 1;
  struct err err = ERR_NONE;
  struct windows windows;
  if (windows_init_transposed(&windows, node, x, w->dim + 2, &err))
    return false;
  deconv->rank = x->rank;
  deconv->weights_rank = x->rank + g;
  deconv->bias[0] = y->dim[1];
  deconv->weights[0] = groups;
  deconv->weights[g] = w->dim[1];
  deconv->weights[g + 1] = w->dim[0] / groups;
  for (int d = 0; d < x->rank; d++) {
    deconv->in[d] = x->dim[d];
    deconv->out[d] = y->dim[d];
    if (d > 1)
      deconv->weights[g + d] = w->dim[d];
  }
  return window_of(&deconv->window, &windows);
}

static dnnl_primitive_desc_t typed_describe(struct backend_program *program, const struct deconv *deconv,
                                            bool has_bias, dnnl_data_type_t factors,
                                            dnnl_data_type_t result) {
  dnnl_deconvolution_desc_t desc;
  dnnl_memory_desc_t in = layout_typed(layout_any(deconv->rank, deconv->in), factors);
  dnnl_memory_desc_t out = layout_typed(layout_any(deconv->rank, deconv->out), result);
  dnnl_memory_desc_t weights = layout_typed(layout_any(deconv->weights_rank, deconv->weights), factors);
  dnnl_memory_desc_t bias = layout_dense(1, deconv->bias);
  const struct window *w = &deconv->window;
  if (dnnl_dilated_deconvolution_forward_desc_init(&desc, dnnl_forward_training, dnnl_deconvolution_direct,
                                                   &in, &weights, has_bias ? &bias : NULL, &out, w->strides,
                                                   w->dilations, w->pads_begin, w->pads_end))
    return NULL;
  return cpu_describe(program, &desc, NULL, NULL);
}

/* In the program's types, or in f32 where oneDNN has no direct kernel for them. */
static dnnl_primitive_desc_t deconv_describe(struct backend_program *program, const struct deconv *deconv,
                                             const struct node *node, bool has_bias) {
  dnnl_primitive_desc_t f32 = typed_describe(program, deconv, has_bias, dnnl_f32, dnnl_f32), desc;
  if (!program->is_bf16)
    return f32;
  desc = typed_describe(program, deconv, has_bias, dnnl_bf16, cpu_type(program, node->outputs[0]));
  return cpu_rank(desc) == CPU_RANK_DIRECT ? desc : f32;
}

/* The same bytes with ONNX's order of the channels. */
static bool swap_channels(const dnnl_memory_desc_t *layout, bool is_grouped, dnnl_memory_desc_t *swapped) {
  int order[DNNL_MAX_NDIMS];
  for (int d = 0; d < layout->ndims; d++)
    order[d] = d;
  order[is_grouped] = is_grouped + 1;
  order[is_grouped + 1] = is_grouped;
  return dnnl_memory_desc_permute_axes(swapped, layout, order) == dnnl_success;
}

static bool prepare_conv_transpose(struct backend_program *program, const struct node *node) {
  struct deconv deconv;
  int b = node->n_inputs > 2 ? node->inputs[2] : -1;
  dnnl_primitive_desc_t desc = NULL;
  dnnl_memory_desc_t swapped;
  if (deconv_init(&deconv, program->graph, node))
    desc = deconv_describe(program, &deconv, node, b >= 0);
  if (!desc)
    return false;
  const dnnl_memory_desc_t *weights = cpu_query(desc, dnnl_query_weights_md, 0);
  if (!swap_channels(weights, deconv.weights_rank > deconv.rank, &swapped))
    return false;
  struct cpu_step *step = cpu_step_new(program, node);
  cpu_read(program, step, DNNL_ARG_SRC, node->inputs[0], cpu_query(desc, dnnl_query_src_md, 0));
  cpu_use(program, step, DNNL_ARG_WEIGHTS, cpu_buffer_in(program, node, node->inputs[1], &swapped), weights);
  if (b >= 0)
    cpu_read(program, step, DNNL_ARG_BIAS, b, NULL);
  cpu_write(program, step, DNNL_ARG_DST, node->outputs[0], cpu_query(desc, dnnl_query_dst_md, 0));
  cpu_step_end(program, step, desc);
  return true;
}

const struct cpu_kernel cpu_conv_transpose = {"ConvTranspose", prepare_conv_transpose};
