/* Convolutions: forward, gradient of the input, gradient of weights and bias. All let oneDNN choose blocked
   layouts. */
#include "worker/backend/cpu/cpu.h"
#include "worker/backend/cpu/window.h"

struct conv {
  int rank, weights_rank; /* grouped weights are [G, O/G, I/G, ...] */
  dnnl_dims_t in, weights, bias, out;
  struct window window;
};

static void put_one(dnnl_dims_t dims, int at, int n) {
  for (int d = n; d > at; d--)
    dims[d] = dims[d - 1];
  dims[at] = 1;
}

/* oneDNN has fast kernels for depthwise convolutions of two spatial dimensions only: a line is an image of
   height 1. */
static void add_height(struct conv *conv) {
  put_one(conv->in, 2, conv->rank);
  put_one(conv->out, 2, conv->rank);
  put_one(conv->weights, 3, conv->weights_rank);
  put_one(conv->window.strides, 0, 1);
  conv->window.dilations[1] = conv->window.dilations[0];
  conv->window.pads_begin[1] = conv->window.pads_begin[0];
  conv->window.pads_end[1] = conv->window.pads_end[0];
  conv->window.dilations[0] = conv->window.pads_begin[0] = conv->window.pads_end[0] = 0;
  conv->rank++;
  conv->weights_rank++;
}

/* The values of the node by what they are to the convolution. */
struct roles {
  int x, w, y;
};

static bool conv_init(struct conv *conv, const struct graph *graph, const struct node *node,
                      const struct roles *roles) {
  const struct shape *x = &graph->values[roles->x].shape, *w = &graph->values[roles->w].shape;
  const struct shape *y = &graph->values[roles->y].shape;
  int64_t groups = node_attr_int(node, "group", 1);
  int g = groups > 1;
  if (x->rank < 3 || x->rank > 5 || w->rank != x->rank || y->rank != x->rank || groups < 1)
    return false;
  if (w->dim[0] % groups || w->dim[1] * groups != x->dim[1] || w->dim[0] != y->dim[1])
    return false;
  conv->rank = x->rank;
  conv->weights_rank = x->rank + g;
  conv->bias[0] = w->dim[0];
  conv->weights[0] = groups;
  conv->weights[g] = w->dim[0] / groups;
  for (int d = 0; d < x->rank; d++) {
    conv->in[d] = x->dim[d];
    conv->out[d] = y->dim[d];
    if (d > 0)
      conv->weights[g + d] = w->dim[d];
  }
  if (!window_init(&conv->window, node, x, w->dim + 2))
    return false;
  if (x->rank == 3 && g && w->dim[1] == 1)
    add_height(conv);
  return true;
}

static dnnl_primitive_desc_t conv_describe(struct backend_program *program, const struct conv *conv,
                                           bool has_bias) {
  dnnl_convolution_desc_t desc;
  dnnl_memory_desc_t in = layout_any(conv->rank, conv->in), out = layout_any(conv->rank, conv->out);
  dnnl_memory_desc_t weights = layout_any(conv->weights_rank, conv->weights);
  dnnl_memory_desc_t bias = layout_dense(1, conv->bias);
  const struct window *w = &conv->window;
  if (dnnl_dilated_convolution_forward_desc_init(&desc, dnnl_forward_training, dnnl_convolution_direct, &in,
                                                 &weights, has_bias ? &bias : NULL, &out, w->strides,
                                                 w->dilations, w->pads_begin, w->pads_end))
    return NULL;
  return cpu_describe(program, &desc, NULL, NULL);
}

/* Conv: X, W, [B] -> Y */
static bool prepare_conv(struct backend_program *program, const struct node *node) {
  struct conv conv;
  int x = node->inputs[0], w = node->inputs[1], b = node->n_inputs > 2 ? node->inputs[2] : -1;
  if (!conv_init(&conv, program->graph, node, &(struct roles){.x = x, .w = w, .y = node->outputs[0]}))
    return false;
  dnnl_primitive_desc_t desc = conv_describe(program, &conv, b >= 0);
  if (!desc)
    return false;
  struct cpu_step *step = cpu_step_new(program, node);
  cpu_read(program, step, DNNL_ARG_SRC, x, cpu_query(desc, dnnl_query_src_md, 0));
  cpu_read(program, step, DNNL_ARG_WEIGHTS, w, cpu_query(desc, dnnl_query_weights_md, 0));
  if (b >= 0)
    cpu_read(program, step, DNNL_ARG_BIAS, b, NULL);
  cpu_write(program, step, DNNL_ARG_DST, node->outputs[0], cpu_query(desc, dnnl_query_dst_md, 0));
  cpu_step_end(program, step, desc);
  return true;
}

/* ConvGradInput: dY, W -> dX */
static bool prepare_conv_grad_input(struct backend_program *program, const struct node *node) {
  struct conv conv;
  dnnl_convolution_desc_t backward;
  int dy = node->inputs[0], w = node->inputs[1];
  if (!conv_init(&conv, program->graph, node, &(struct roles){.x = node->outputs[0], .w = w, .y = dy}))
    return false;
  dnnl_memory_desc_t in = layout_any(conv.rank, conv.in), out = layout_any(conv.rank, conv.out);
  dnnl_memory_desc_t weights = layout_any(conv.weights_rank, conv.weights);
  dnnl_primitive_desc_t hint = conv_describe(program, &conv, false);
  if (!hint || dnnl_dilated_convolution_backward_data_desc_init(
                   &backward, dnnl_convolution_direct, &in, &weights, &out, conv.window.strides,
                   conv.window.dilations, conv.window.pads_begin, conv.window.pads_end))
    return false;
  dnnl_primitive_desc_t desc = cpu_describe(program, &backward, NULL, hint);
  if (!desc)
    return false;
  struct cpu_step *step = cpu_step_new(program, node);
  cpu_read(program, step, DNNL_ARG_DIFF_DST, dy, cpu_query(desc, dnnl_query_diff_dst_md, 0));
  cpu_read(program, step, DNNL_ARG_WEIGHTS, w, cpu_query(desc, dnnl_query_weights_md, 0));
  cpu_write(program, step, DNNL_ARG_DIFF_SRC, node->outputs[0], cpu_query(desc, dnnl_query_diff_src_md, 0));
  cpu_step_end(program, step, desc);
  return true;
}

/* ConvGradWeight: dY, X -> dW, [dB] */
static bool prepare_conv_grad_weight(struct backend_program *program, const struct node *node) {
  struct conv conv;
  dnnl_convolution_desc_t backward;
  int dy = node->inputs[0], x = node->inputs[1];
  int db = node->n_outputs > 1 ? node->outputs[1] : -1;
  if (!conv_init(&conv, program->graph, node, &(struct roles){.x = x, .w = node->outputs[0], .y = dy}))
    return false;
  dnnl_memory_desc_t in = layout_any(conv.rank, conv.in), out = layout_any(conv.rank, conv.out);
  dnnl_memory_desc_t weights = layout_any(conv.weights_rank, conv.weights);
  dnnl_memory_desc_t bias = layout_dense(1, conv.bias);
  dnnl_primitive_desc_t hint = conv_describe(program, &conv, db >= 0);
  if (!hint || dnnl_dilated_convolution_backward_weights_desc_init(
                   &backward, dnnl_convolution_direct, &in, &weights, db >= 0 ? &bias : NULL, &out,
                   conv.window.strides, conv.window.dilations, conv.window.pads_begin, conv.window.pads_end))
    return false;
  dnnl_primitive_desc_t desc = cpu_describe(program, &backward, NULL, hint);
  if (!desc)
    return false;
  struct cpu_step *step = cpu_step_new(program, node);
  cpu_read(program, step, DNNL_ARG_DIFF_DST, dy, cpu_query(desc, dnnl_query_diff_dst_md, 0));
  cpu_read(program, step, DNNL_ARG_SRC, x, cpu_query(desc, dnnl_query_src_md, 0));
  cpu_write(program, step, DNNL_ARG_DIFF_WEIGHTS, node->outputs[0],
            cpu_query(desc, dnnl_query_diff_weights_md, 0));
  if (db >= 0)
    cpu_write(program, step, DNNL_ARG_DIFF_BIAS, db, NULL);
  cpu_step_end(program, step, desc);
  return true;
}

const struct cpu_kernel cpu_conv = {"Conv", prepare_conv};
const struct cpu_kernel cpu_conv_grad_input = {"ConvGradInput", prepare_conv_grad_input};
const struct cpu_kernel cpu_conv_grad_weight = {"ConvGradWeight", prepare_conv_grad_weight};
