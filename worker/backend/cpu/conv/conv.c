/* Convolutions: forward, gradient of the input, gradient of weights and bias. All let oneDNN choose blocked
   layouts. */
#include "worker/backend/cpu/cpu.h"
#include "worker/backend/cpu/window.h"
#include "worker/backend/cpu/conv/depthwise.h"
#include "worker/backend/cpu/conv/tiled.h"
#include "worker/backend/cpu/conv/winograd.h"

struct conv {
  int rank, weights_rank; /* grouped weights are [G, O/G, I/G, ...] */
  dnnl_dims_t in, weights, bias, out;
  bool has_bias;
  dnnl_alg_kind_t algorithm;
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
  conv->has_bias = false;
  conv->algorithm = dnnl_convolution_direct;
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

/* In the types that are given; oneDNN may choose the layouts. */
static dnnl_primitive_desc_t typed_describe(struct backend_program *program, const struct conv *conv,
                                            enum conv_way way, dnnl_data_type_t factors,
                                            dnnl_data_type_t result) {
  const dnnl_memory_desc_t in = layout_any(conv->rank, conv->in), out = layout_any(conv->rank, conv->out);
  const dnnl_memory_desc_t weights = layout_any(conv->weights_rank, conv->weights);
  const dnnl_memory_desc_t bias = layout_dense(1, conv->bias);
  const struct window *w = &conv->window;
  dnnl_memory_desc_t x = layout_typed(in, factors), y = layout_typed(out, factors);
  dnnl_memory_desc_t w_factor = layout_typed(weights, factors);
  dnnl_memory_desc_t y_result = layout_typed(out, way == CONV_FORWARD ? result : factors);
  dnnl_memory_desc_t dx = layout_typed(in, result), dw = layout_typed(weights, result);
  dnnl_convolution_desc_t forward, backward;
  dnnl_status_t status = dnnl_dilated_convolution_forward_desc_init(
      &forward, dnnl_forward_training, conv->algorithm, &x, &w_factor, conv->has_bias ? &bias : NULL,
      &y_result, w->strides, w->dilations, w->pads_begin, w->pads_end);
  dnnl_primitive_desc_t desc = status ? NULL : cpu_describe(program, &forward, NULL, NULL);
  if (!desc || way == CONV_FORWARD)
    return desc;
  if (way == CONV_GRAD_INPUT)
    status = dnnl_dilated_convolution_backward_data_desc_init(
        &backward, conv->algorithm, &dx, &w_factor, &y, w->strides, w->dilations, w->pads_begin, w->pads_end);
  else
    status = dnnl_dilated_convolution_backward_weights_desc_init(
        &backward, conv->algorithm, &x, &dw, conv->has_bias ? &bias : NULL, &y, w->strides, w->dilations,
        w->pads_begin, w->pads_end);
  return status ? NULL : cpu_describe(program, &backward, NULL, desc);
}

static struct winograd_shape winograd_shape_of(const struct conv *conv) {
  return (struct winograd_shape){.rank = conv->rank,
                                 .weights_rank = conv->weights_rank,
                                 .in = conv->in,
                                 .out = conv->out,
                                 .window = &conv->window};
}

/* Winograd's algorithm, where it pays; oneDNN has it with AVX-512 only. */
static dnnl_primitive_desc_t winograd_describe(struct backend_program *program, const struct conv *conv,
                                               enum conv_way way) {
  struct conv by = *conv;
  by.algorithm = dnnl_convolution_winograd;
  struct winograd_shape shape = winograd_shape_of(conv);
  return winograd_pays(&shape, way) ? typed_describe(program, &by, way, dnnl_f32, dnnl_f32) : NULL;
}

/* In the program's types, or in f32 where oneDNN has no direct kernel for them. */
static dnnl_primitive_desc_t conv_describe(struct backend_program *program, const struct conv *conv,
                                           enum conv_way way, int result) {
  dnnl_primitive_desc_t f32 = NULL, desc;
  if (program->is_fast)
    f32 = winograd_describe(program, conv, way);
  if (!f32)
    f32 = typed_describe(program, conv, way, dnnl_f32, dnnl_f32);
  if (!program->is_bf16)
    return f32;
  desc = typed_describe(program, conv, way, dnnl_bf16, cpu_type(program, result));
  return cpu_rank(desc) == CPU_RANK_DIRECT ? desc : f32;
}

/* Conv: X, W, [B] -> Y */
static bool prepare_conv(struct backend_program *program, const struct node *node) {
  struct conv conv;
  int x = node->inputs[0], w = node->inputs[1], b = node->n_inputs > 2 ? node->inputs[2] : -1;
  if (!conv_init(&conv, program->graph, node, &(struct roles){.x = x, .w = w, .y = node->outputs[0]}))
    return false;
  conv.has_bias = b >= 0;
  struct winograd_shape shape = winograd_shape_of(&conv);
  if (tiled_prepare(program, node, CONV_FORWARD, &shape))
    return true;
  dnnl_primitive_desc_t desc = conv_describe(program, &conv, CONV_FORWARD, node->outputs[0]);
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
  int dy = node->inputs[0], w = node->inputs[1];
  if (!conv_init(&conv, program->graph, node, &(struct roles){.x = node->outputs[0], .w = w, .y = dy}))
    return false;
  struct winograd_shape shape = winograd_shape_of(&conv);
  if (tiled_prepare(program, node, CONV_GRAD_INPUT, &shape))
    return true;
  dnnl_primitive_desc_t desc = conv_describe(program, &conv, CONV_GRAD_INPUT, node->outputs[0]);
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
  int dy = node->inputs[0], x = node->inputs[1];
  int db = node->n_outputs > 1 ? node->outputs[1] : -1;
  if (!conv_init(&conv, program->graph, node, &(struct roles){.x = x, .w = node->outputs[0], .y = dy}))
    return false;
  conv.has_bias = db >= 0;
  struct winograd_shape shape = winograd_shape_of(&conv);
  if (tiled_prepare(program, node, CONV_GRAD_WEIGHT, &shape))
    return true;
  dnnl_primitive_desc_t desc = conv_describe(program, &conv, CONV_GRAD_WEIGHT, node->outputs[0]);
  if (cpu_rank(desc) != CPU_RANK_DIRECT && depthwise_prepare_grad_weight(program, node))
    return true;
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
