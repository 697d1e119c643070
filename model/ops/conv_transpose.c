/* ConvTranspose (ONNX 1..11; 1 to 3 spatial dimensions, groups, dilations): the gradient of a convolution's
   input, taken forward. So its own gradients are a convolution, and the gradient of one's weights. */
#include "model/ops/conv.h"
#include "model/ops/shared/backward.h"
#include "model/ops/shared/infer.h"

/* The convolution of which this is the transpose; x f32[n, groups * group_out, out...], w f32[groups *
   group_out, group_in, kernel...] -> y f32[n, groups * group_in, in...]. x and w: shapes. */
static int transposed_init(struct conv *conv, const struct node *node, const struct shape *x,
                           const struct shape *w, struct err *err) {
  char left[128], right[128];
  conv->groups = node_attr_int(node, "group", 1);
  if (x->rank < 3 || w->rank != x->rank || conv->groups < 1 || x->dim[1] % conv->groups ||
      w->dim[0] != x->dim[1])
    return node_error(
        node, err, ERR_INVALID, "an input of shape %s and weights of shape %s do not fit (group %lld)",
        shape_text(x, left, sizeof left), shape_text(w, right, sizeof right), (long long)conv->groups);
  conv->n = x->dim[0];
  conv->group_in = w->dim[1];
  conv->group_out = x->dim[1] / conv->groups;
  return windows_init_transposed(&conv->windows, node, x, w->dim + 2, err);
}

static int conv_transpose_infer(struct graph *graph, const struct node *node, struct err *err) {
  struct shape x, w, y;
  struct conv conv;
  if (infer_check_f32(graph, node, err))
    return err->code;
  x = node_input(graph, node, 0)->shape;
  w = node_input(graph, node, 1)->shape;
  if (transposed_init(&conv, node, &x, &w, err))
    return err->code;
  if (__builtin_mul_overflow(conv.groups, conv.group_in, &y.dim[1]))
    return node_error(node, err, ERR_INVALID, "%lld groups of %lld channels are too many",
                      (long long)conv.groups, (long long)conv.group_in);
  y.rank = x.rank;
  y.dim[0] = conv.n;
  for (int i = 2; i < x.rank; i++)
    y.dim[i] = conv.windows.in[WINDOWS_DIMS - x.rank + i];
  if (node_input(graph, node, 2) && infer_check_vector(graph, node, 2, y.dim[1], err))
    return err->code;
  return infer_f32(graph, node, 0, &y, err);
}

static int conv_transpose_backward(struct autodiff *ad, struct graph *graph, const struct node *node,
                                   struct err *err) {
  struct shape x = node_input(graph, node, 0)->shape, w = node_input(graph, node, 1)->shape;
  struct attr attrs[WINDOWS_ATTRS + 1];
  struct windows_lists lists;
  struct conv conv;
  int dy = autodiff_grad(ad, node, 0), n;
  if (transposed_init(&conv, node, &x, &w, err))
    return err->code;
  n = windows_attrs(&conv.windows, &lists, attrs);
  attrs[n++] = attr_of_int("group", conv.groups);
  if (autodiff_wants(ad, node, 1))
    autodiff_add(
        ad, node, 1,
        backward_node(graph, "ConvGradWeight", VALUES(node->inputs[0], dy), (struct attr_list){attrs, n}));
  if (autodiff_wants(ad, node, 2)) {
    struct shape bias = node_input(graph, node, 2)->shape, channels = {.rank = x.rank};
    for (int i = 0; i < x.rank; i++)
      channels.dim[i] = i == 1 ? bias.dim[0] : 1;
    autodiff_add(ad, node, 2, backward_reshape(graph, backward_sum_to(graph, dy, &channels), &bias));
  }
  if (autodiff_wants(ad, node, 0))
    autodiff_add(ad, node, 0,
                 backward_node(graph, "Conv", VALUES(dy, node->inputs[1]), (struct attr_list){attrs, n}));
  return ERR_OK;
}

static int conv_transpose_ref(const struct op_call *call, struct err *err) {
  const float *bias = call->in[2].data;
  float *y = call->out[0].data;
  struct conv conv;
  if (transposed_init(&conv, call->node, &call->in[0].shape, &call->in[1].shape, err))
    return err->code;
  conv_scatter(&conv, call->in[0].data, call->in[1].data, y);
  for (int64_t n = 0; n < conv.n && bias; n++)
    for (int64_t c = 0; c < conv.groups * conv.group_in; c++)
      for (int64_t i = 0; i < conv.windows.in_elems; i++)
        *y++ += bias[c];
  return ERR_OK;
}

/* Each input goes through a kernel of one filter. */
static double conv_transpose_multiply_adds(const struct graph *graph, const struct node *node) {
  return infer_input_elems(graph, node, 0) * infer_input_elems(graph, node, 1) /
         (double)node_input(graph, node, 1)->shape.dim[0];
}

static const struct op_case conv_transpose_cases[] = {
    {.inputs = "f32[2,3,4,3] f32[3,4,3,3] f32[4]"},
    {.inputs = "f32[2,3,4,3] f32[3,2,3,3] f32[2]", .attrs = "pads=1,1,1,1 strides=2,2 output_padding=1,1"},
    {.inputs = "f32[1,4,3,4] f32[4,3,3,2] f32[6]", .attrs = "group=2 pads=0,1,2,0 kernel_shape=3,2"},
    {.inputs = "f32[1,3,4,4] f32[3,1,3,3] f32[3]", .attrs = "group=3 pads=1,1,1,1 strides=2,2"},
    {.inputs = "f32[1,2,3,4] f32[2,3,3,3]", .attrs = "dilations=2,3 pads=2,1,0,3 strides=1,2"},
    {.inputs = "f32[1,2,3,4] f32[2,3,2,2]", .attrs = "dilations=4,5 strides=2,3 output_padding=3,4"},
    {.inputs = "f32[1,1,3,3] f32[1,2,3,3] f32[2]",
     .attrs = "strides=3,2 output_shape=10,8 output_padding=1,1"},
    {.inputs = "f32[1,1,3,3] f32[1,2,3,3] f32[2]", .attrs = "strides=3,2 output_shape=8,6"},
    {.inputs = "f32[1,1,3,3] f32[1,2,3,3] f32[2]",
     .attrs = "strides=2,2 output_shape=6,4 auto_pad=SAME_UPPER"},
    {.inputs = "f32[1,2,3,4] f32[2,3,3,4] f32[3]", .attrs = "auto_pad=SAME_UPPER strides=2,1"},
    {.inputs = "f32[1,2,3,4] f32[2,3,3,4]", .attrs = "auto_pad=SAME_LOWER strides=2,1"},
    {.inputs = "f32[1,2,3,4] f32[2,3,2,1]", .attrs = "auto_pad=SAME_UPPER strides=3,2"},
    {.inputs = "f32[1,2,3,4] f32[2,3,3,2]", .attrs = "auto_pad=VALID strides=2,1"},
    {.inputs = "f32[2,3,5] f32[3,4,3] f32[4]", .attrs = "pads=1,2 strides=2, dilations=2,"},
    {.inputs = "f32[1,2,2,3,2] f32[2,3,2,3,2] f32[3]", .attrs = "pads=0,1,1,1,1,0 strides=1,2,1"},
    {.inputs = "f32[2,16,4,4] f32[16,32,2,2] f32[32]", .attrs = "strides=2,2"},
    {.inputs = "f32[n,c*g,h,w] f32[c*g,m,k,l] f32[m*g]",
     .attrs = "group=g pads=p,0,q,0 strides=s,t output_padding=o,0 dilations=d,e",
     .draw =
         "n=1..2 c=1..3 g=1..3 m=1..3 h=2..4 w=1..4 k=1..3 l=1..3 p=0..1 q=0..1 s=1..3 t=1..3 o=0..1 d=1..2 "
         "e=1..2"},
    {0},
};

const struct op_def op_ConvTranspose = {
    .name = "ConvTranspose",
    .domain = "",
    .min_inputs = 2,
    .max_inputs = 3,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 1,
    .infer = conv_transpose_infer,
    .backward = conv_transpose_backward,
    .ref = conv_transpose_ref,
    .multiply_adds = conv_transpose_multiply_adds,
    .cases = conv_transpose_cases,
};
