/* Conv, its gradients and ConvTranspose: by cuDNN, or by loops of our own. In f32 tensors are dense; in tf32
   and bf16 channels come last, as tensor cores read them, and stay so between convolutions.

   Ours take depthwise convolutions: they move more bytes than they multiply, and cuDNN's grouped kernels walk
   one group after the other but for some 16-bit shapes. Those of one filter a channel, over rows and columns
   with channels last, have kernels of their own (depthwise.h). Ours also take what cuDNN refuses. */
#include "model/ops/conv.h"

#include "worker/backend/cuda/conv/conv_dnn.h"
#include "worker/backend/cuda/conv/depthwise.h"
#include "worker/backend/cuda/product/matrix.h"
#include "worker/backend/cuda/product/product.h"

struct step_conv {
  enum conv_pass pass;
  struct cuda_conv shape; /* as it is executed: over the extended input, if there is one */
  struct conv_dnn *dnn;   /* NULL: loops of ours */
  bool is_depthwise;      /* of those loops, the ones for: */
  struct cuda_depthwise depthwise;
  int x, w, y;   /* arguments; x and y may be gradients */
  int bias;      /* of what is computed: added to it (CONV_WEIGHT: its gradient is written) */
  int workspace; /* -1: none */
  int sums;      /* partial sums of the bias's gradient */
  /* cuDNN pads alike on both sides and takes every window that fits. Otherwise the input is first copied to,
     or its gradient last taken from, a tensor that is just what the windows cover. */
  int extended; /* argument; -1: none */
  struct cuda_tensor extended_tensor, inner_tensor;
  int64_t shift[CUDA_CONV_DIMS];
};

/* The tensor as [n, c, d0, d1, d2]. */
static struct cuda_tensor five_dims(const struct cuda_conv *conv, enum cuda_type type,
                                    enum cuda_layout layout) {
  struct cuda_tensor tensor = {.type = type, .layout = layout, .rank = 2 + CUDA_CONV_DIMS};
  tensor.dim[0] = conv->n;
  tensor.dim[1] = conv->groups * conv->group_in;
  for (int d = 0; d < CUDA_CONV_DIMS; d++)
    tensor.dim[2 + d] = conv->in[d];
  tensor.elems = conv->n * tensor.dim[1] * conv->in_elems;
  return tensor;
}

/* Reads or writes the input through the extended tensor. */
static void *extended_begin(const struct step_conv *own, const struct cuda_step *step, cudaStream_t stream) {
  struct cuda_tensor extended = own->extended_tensor, inner = own->inner_tensor;
  int64_t shift[CUDA_CONV_DIMS];
  if (own->extended < 0)
    return step->args[own->x].tensor.data;
  extended.data = step->args[own->extended].tensor.data;
  inner.data = step->args[own->x].tensor.data;
  for (int d = 0; d < CUDA_CONV_DIMS; d++)
    shift[d] = -own->shift[d];
  if (own->pass != CONV_DATA)
    cuda_shift_launch(inner, extended, shift, stream);
  return extended.data;
}

static void extended_end(const struct step_conv *own, const struct cuda_step *step, cudaStream_t stream) {
  struct cuda_tensor extended = own->extended_tensor, inner = own->inner_tensor;
  if (own->extended < 0 || own->pass != CONV_DATA)
    return;
  extended.data = step->args[own->extended].tensor.data;
  inner.data = step->args[own->x].tensor.data;
  cuda_shift_launch(extended, inner, own->shift, stream);
}

/* A tensor of [n, c, spatial] as add_channels and channel_sums see it. */
static int64_t inner_of(const struct cuda_tensor *tensor) {
  return tensor->layout == CUDA_CHANNELS_LAST ? 1 : tensor->elems / tensor->dim[0] / tensor->dim[1];
}

static void sum_bias(const struct step_conv *own, const struct cuda_step *step, cudaStream_t stream) {
  struct cuda_tensor dy = step->args[own->y].tensor;
  int64_t inner = inner_of(&dy), channels = dy.dim[1];
  struct cuda_channel_view as = {.outer = dy.elems / channels / inner, .channels = channels, .inner = inner};
  cuda_channel_sums_launch(dy, as, step->args[own->sums].tensor.data, step->args[own->bias].tensor.data,
                           stream);
}

static int enqueue_dnn(struct backend_program *program, const struct cuda_step *step, cudaStream_t stream,
                       struct err *err) {
  const struct step_conv *own = step->details;
  const struct conv_dnn_io io = {.x = extended_begin(own, step, stream),
                                 .w = step->args[own->w].tensor.data,
                                 .y = step->args[own->y].tensor.data,
                                 .workspace =
                                     own->workspace >= 0 ? step->args[own->workspace].tensor.data : NULL};
  int code = conv_dnn_enqueue(program, own->dnn, step->node, &io, err);
  if (code)
    return code;
  extended_end(own, step, stream);
  if (own->bias >= 0 && own->pass == CONV_WEIGHT) {
    sum_bias(own, step, stream);
  } else if (own->bias >= 0) {
    struct cuda_tensor out = step->args[own->pass == CONV_FORWARD ? own->y : own->x].tensor;
    cuda_add_channels_launch(out, step->args[own->bias].tensor.data, out.dim[1], inner_of(&out), stream);
  }
  return ERR_OK;
}

static void loops_launch(const struct step_conv *own, const struct cuda_conv_io *io, float *partials,
                         cudaStream_t stream) {
  if (own->pass == CONV_FORWARD)
    cuda_conv_forward_launch(&own->shape, io, stream);
  else if (own->pass == CONV_DATA)
    cuda_conv_data_launch(&own->shape, io, stream);
  else
    cuda_conv_weight_launch(&own->shape, io, partials, stream);
}

static void depthwise_launch(const struct step_conv *own, const struct cuda_conv_io *io, float *partials,
                             cudaStream_t stream) {
  if (own->pass == CONV_FORWARD)
    cuda_depthwise_forward_launch(&own->depthwise, io, stream);
  else if (own->pass == CONV_DATA)
    cuda_depthwise_data_launch(&own->depthwise, io, stream);
  else
    cuda_depthwise_weight_launch(&own->depthwise, io, partials, stream);
}

static int enqueue_loops(struct backend_program *program, const struct cuda_step *step, cudaStream_t stream,
                         struct err *err) {
  const struct step_conv *own = step->details;
  const struct cuda_arg *args = step->args;
  const struct cuda_conv_io io = {.x = args[own->x].tensor,
                                  .w = args[own->w].tensor,
                                  .y = args[own->y].tensor,
                                  .bias = own->bias >= 0 ? args[own->bias].tensor.data : NULL};
  float *partials = own->workspace >= 0 ? args[own->workspace].tensor.data : NULL;
  (void)program;
  (void)err;
  if (own->is_depthwise)
    depthwise_launch(own, &io, partials, stream);
  else
    loops_launch(own, &io, partials, stream);
  if (own->pass == CONV_WEIGHT && own->bias >= 0)
    sum_bias(own, step, stream);
  return ERR_OK;
}

static void conv_release(struct cuda_step *step) {
  struct step_conv *own = step->details;
  conv_dnn_free(own->dnn);
}

static void shape_init(struct cuda_conv *shape, const struct conv *conv) {
  const struct windows *windows = &conv->windows;
  *shape = (struct cuda_conv){.dims = windows->dims,
                              .n = conv->n,
                              .groups = conv->groups,
                              .group_in = conv->group_in,
                              .group_out = conv->group_out,
                              .in_elems = windows->in_elems,
                              .out_elems = windows->out_elems,
                              .taps = windows->taps};
  for (int d = 0; d < CUDA_CONV_DIMS; d++) {
    shape->in[d] = windows->in[d];
    shape->out[d] = windows->out[d];
    shape->kernel[d] = windows->kernel[d];
    shape->stride[d] = windows->stride[d];
    shape->dilation[d] = windows->dilation[d];
    shape->pad[d] = windows->pad_begin[d];
  }
}

/* Whether cuDNN, padding both sides with pad_begin, finds just these windows. */
static bool is_plain(const struct cuda_conv *shape) {
  for (int d = 0; d < CUDA_CONV_DIMS; d++) {
    int64_t span = (shape->kernel[d] - 1) * shape->dilation[d] + 1;
    int64_t room = shape->in[d] + 2 * shape->pad[d] - span;
    if (shape->pad[d] < 0 || room < 0 || room / shape->stride[d] + 1 != shape->out[d])
      return false;
  }
  return true;
}

/* The input becomes what the windows cover. */
static void conv_extend(struct step_conv *own) {
  struct cuda_conv *shape = &own->shape;
  shape->in_elems = 1;
  for (int d = 0; d < CUDA_CONV_DIMS; d++) {
    own->shift[d] = shape->pad[d];
    shape->in[d] = (shape->out[d] - 1) * shape->stride[d] + (shape->kernel[d] - 1) * shape->dilation[d] + 1;
    shape->pad[d] = 0;
    shape->in_elems *= shape->in[d];
  }
}

/* What cuDNN takes of it, in the first layout in which it does; sets own->dnn, or leaves it NULL. */
static enum cuda_layout conv_choose(struct backend_program *program, struct step_conv *own,
                                    enum cuda_type type, enum cuda_layout wanted) {
  const struct cuda_conv given = own->shape;
  bool is_extended = !is_plain(&given);
  if (given.group_in == 1 && given.groups > 1)
    return wanted;
  if (is_extended)
    conv_extend(own);
  own->dnn = conv_dnn_new(program, own->pass, &own->shape, type, wanted);
  if (!own->dnn && wanted != CUDA_DENSE)
    own->dnn = conv_dnn_new(program, own->pass, &own->shape, type, wanted = CUDA_DENSE);
  if (!own->dnn) {
    own->shape = given;
  } else if (is_extended) {
    own->extended_tensor = five_dims(&own->shape, type, wanted);
    own->inner_tensor = five_dims(&given, type, wanted);
    own->extended = 0; /* its argument is added with the others */
  }
  return wanted;
}

/* Of the partial sums of our gradient of weights. */
static size_t partials_bytes(const struct step_conv *own) {
  return own->is_depthwise ? cuda_depthwise_weight_bytes(&own->depthwise)
                           : cuda_conv_weight_bytes(&own->shape);
}

static void add_scratch(struct backend_program *program, struct cuda_step *step, struct step_conv *own,
                        const struct value *dy) {
  size_t workspace_bytes = own->dnn                   ? conv_dnn_workspace_bytes(own->dnn)
                           : own->pass == CONV_WEIGHT ? partials_bytes(own)
                                                      : 0;
  if (workspace_bytes > 0)
    own->workspace = cuda_scratch(program, step, workspace_bytes);
  if (own->extended >= 0)
    own->extended = cuda_scratch(
        program, step, (size_t)own->extended_tensor.elems * (own->extended_tensor.type == CUDA_BF16 ? 2 : 4));
  if (own->pass == CONV_WEIGHT && own->bias >= 0) {
    int64_t channels = dy->shape.dim[1], rest = shape_elems(&dy->shape) / channels;
    own->sums =
        cuda_scratch(program, step, cuda_channel_sums_bytes((struct cuda_channel_view){rest, channels, 1}));
  }
}

/* The values of the node by what they are to the convolution; bias -1: none. */
struct roles {
  int x, w, y, bias;
};

/* Whether coordinates are ints with room to spare, as our loops take them. */
static bool has_small_coordinates(const struct cuda_conv *shape) {
  const int64_t most = INT32_MAX / 4;
  for (int d = 0; d < CUDA_CONV_DIMS; d++)
    if (shape->in[d] > most || shape->out[d] > most || shape->stride[d] > most || shape->pad[d] > most ||
        shape->pad[d] < -most || shape->kernel[d] * shape->dilation[d] > most)
      return false;
  return shape->in_elems <= INT32_MAX && shape->out_elems <= INT32_MAX;
}

/* Our gradient of weights has a block for each partial sum at most. */
static bool fits_grid(const struct step_conv *own) {
  return own->dnn || own->is_depthwise || own->pass != CONV_WEIGHT ||
         cuda_conv_weight_bytes(&own->shape) / sizeof(float) <= INT32_MAX;
}

static bool prepare_pass(struct backend_program *program, const struct node *node, enum conv_pass pass,
                         const struct cuda_conv *shape, const struct roles *roles) {
  const struct graph *graph = cuda_view(program)->graph;
  struct step_conv *own = arena_new(cuda_view(program)->memory, sizeof *own);
  enum cuda_type type = cuda_factor_type(program);
  if (!has_small_coordinates(shape))
    return false;
  bool is_f32 = cuda_view(program)->options.precision == PRECISION_F32;
  *own = (struct step_conv){
      .pass = pass, .shape = *shape, .bias = -1, .workspace = -1, .sums = -1, .extended = -1};
  enum cuda_layout layout = conv_choose(program, own, type, is_f32 ? CUDA_DENSE : CUDA_CHANNELS_LAST);
  own->is_depthwise = !own->dnn && cuda_depthwise_init(&own->depthwise, &own->shape, layout);
  if (!fits_grid(own))
    return false;
  enum cuda_type out_type = own->dnn ? type : CUDA_ANY_TYPE, w_type = own->dnn ? type : CUDA_F32;
  enum cuda_layout w_layout = own->dnn ? layout : CUDA_DENSE;
  struct cuda_step *step = cuda_step_new(program, node);
  step->enqueue = own->dnn ? enqueue_dnn : enqueue_loops;
  step->details = own;
  step->release = conv_release;
  own->x = pass == CONV_DATA ? cuda_write(program, step, roles->x, out_type, layout)
                             : cuda_read(program, step, roles->x, type, layout);
  own->w = pass == CONV_WEIGHT ? cuda_write(program, step, roles->w, w_type, w_layout)
                               : cuda_read(program, step, roles->w, w_type, w_layout);
  own->y = pass == CONV_FORWARD ? cuda_write(program, step, roles->y, out_type, layout)
                                : cuda_read(program, step, roles->y, type, layout);
  if (roles->bias >= 0)
    own->bias = pass == CONV_WEIGHT ? cuda_write(program, step, roles->bias, CUDA_F32, CUDA_DENSE)
                                    : cuda_read(program, step, roles->bias, CUDA_F32, CUDA_DENSE);
  add_scratch(program, step, own, &graph->values[roles->y]);
  cuda_step_end(program, step);
  return true;
}

static bool prepare_of(struct backend_program *program, const struct node *node, enum conv_pass pass,
                       const struct roles *roles) {
  const struct graph *graph = cuda_view(program)->graph;
  struct err err = ERR_NONE;
  struct cuda_conv shape;
  struct conv conv;
  if (conv_init(&conv, node, &graph->values[roles->x].shape, &graph->values[roles->w].shape, &err))
    return false;
  shape_init(&shape, &conv);
  return prepare_pass(program, node, pass, &shape, roles);
}

/* Conv: X, W, [B] -> Y */
static bool prepare_conv(struct backend_program *program, const struct node *node) {
  return prepare_of(program, node, CONV_FORWARD,
                    &(struct roles){.x = node->inputs[0],
                                    .w = node->inputs[1],
                                    .y = node->outputs[0],
                                    .bias = node->n_inputs > 2 ? node->inputs[2] : -1});
}

/* ConvGradInput: dY, W -> dX */
static bool prepare_conv_grad_input(struct backend_program *program, const struct node *node) {
  return prepare_of(
      program, node, CONV_DATA,
      &(struct roles){.x = node->outputs[0], .w = node->inputs[1], .y = node->inputs[0], .bias = -1});
}

/* ConvGradWeight: dY, X -> dW, [dB] */
static bool prepare_conv_grad_weight(struct backend_program *program, const struct node *node) {
  return prepare_of(program, node, CONV_WEIGHT,
                    &(struct roles){.x = node->inputs[1],
                                    .w = node->outputs[0],
                                    .y = node->inputs[0],
                                    .bias = node->n_outputs > 1 ? node->outputs[1] : -1});
}

/* ConvTranspose: X, W, [B] -> Y: the gradient of the input of a convolution whose result X is. */
static bool prepare_conv_transpose(struct backend_program *program, const struct node *node) {
  const struct graph *graph = cuda_view(program)->graph;
  const struct shape *x = &node_input(graph, node, 0)->shape, *w = &node_input(graph, node, 1)->shape;
  struct roles roles = {.x = node->outputs[0],
                        .w = node->inputs[1],
                        .y = node->inputs[0],
                        .bias = node->n_inputs > 2 ? node->inputs[2] : -1};
  int64_t groups = node_attr_int(node, "group", 1);
  struct err err = ERR_NONE;
  struct conv conv = {
      .n = x->dim[0], .groups = groups, .group_in = w->dim[1], .group_out = x->dim[1] / groups};
  struct cuda_conv shape;
  if (windows_init_transposed(&conv.windows, node, x, w->dim + 2, &err))
    return false;
  shape_init(&shape, &conv);
  return prepare_pass(program, node, CONV_DATA, &shape, &roles);
}

const struct cuda_kernel cuda_kernel_conv = {.op = "Conv", .prepare = prepare_conv};
const struct cuda_kernel cuda_kernel_conv_grad_input = {.op = "ConvGradInput",
                                                        .prepare = prepare_conv_grad_input};
const struct cuda_kernel cuda_kernel_conv_grad_weight = {.op = "ConvGradWeight",
                                                         .prepare = prepare_conv_grad_weight};
const struct cuda_kernel cuda_kernel_conv_transpose = {.op = "ConvTranspose",
                                                       .prepare = prepare_conv_transpose};
