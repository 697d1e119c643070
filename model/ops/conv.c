/* Conv (ONNX 1..11; 1 to 3 spatial dimensions, groups, dilations) and its two gradients. */
#include <stdlib.h>
#include <string.h>

#include "model/ops/shared/backward.h"
#include "model/ops/conv.h"
#include "model/ops/shared/infer.h"

int conv_init(struct conv *conv, const struct node *node, const struct shape *x, const struct shape *w,
              struct err *err) {
  char left[128], right[128];
  conv->groups = node_attr_int(node, "group", 1);
  if (x->rank < 3 || w->rank != x->rank || conv->groups < 1 || x->dim[1] % conv->groups ||
      w->dim[0] % conv->groups || w->dim[1] != x->dim[1] / conv->groups)
    return node_error(
        node, err, ERR_INVALID, "an input of shape %s and weights of shape %s do not fit (group %lld)",
        shape_text(x, left, sizeof left), shape_text(w, right, sizeof right), (long long)conv->groups);
  conv->n = x->dim[0];
  conv->group_in = w->dim[1];
  conv->group_out = w->dim[0] / conv->groups;
  return windows_init(&conv->windows, node, x, w->dim + 2, err);
}

static int conv_infer(struct graph *graph, const struct node *node, struct err *err) {
  struct conv conv;
  struct shape x, w, y;
  if (infer_check_f32(graph, node, err))
    return err->code;
  x = node_input(graph, node, 0)->shape;
  w = node_input(graph, node, 1)->shape;
  if (conv_init(&conv, node, &x, &w, err))
    return err->code;
  if (node_input(graph, node, 2) && infer_check_vector(graph, node, 2, w.dim[0], err))
    return err->code;
  y = windows_out_shape(&conv.windows, conv.n, w.dim[0]);
  return infer_f32(graph, node, 0, &y, err);
}

static int conv_backward(struct autodiff *ad, struct graph *graph, const struct node *node, struct err *err) {
  struct shape x = node_input(graph, node, 0)->shape, w = node_input(graph, node, 1)->shape;
  struct attr attrs[WINDOWS_ATTRS + 2];
  struct windows_lists lists;
  struct conv conv;
  int dy = autodiff_grad(ad, node, 0), n;
  bool wants_bias = autodiff_wants(ad, node, 2);
  if (conv_init(&conv, node, &x, &w, err))
    return err->code;
  n = windows_attrs(&conv.windows, &lists, attrs);
  attrs[n++] = attr_of_int("group", conv.groups);
  if (autodiff_wants(ad, node, 1) || wants_bias) {
    int inputs[] = {dy, node->inputs[0]};
    const struct node *grad = graph_add_node(graph, "ConvGradWeight", (struct value_list){inputs, 2},
                                             1 + wants_bias, (struct attr_list){attrs, n});
    autodiff_add(ad, node, 1, grad->outputs[0]);
    if (wants_bias)
      autodiff_add(ad, node, 2, grad->outputs[1]);
  }
  attrs[n++] = attr_of_shape(&x);
  if (autodiff_wants(ad, node, 0))
    autodiff_add(
        ad, node, 0,
        backward_node(graph, "ConvGradInput", VALUES(dy, node->inputs[1]), (struct attr_list){attrs, n}));
  return ERR_OK;
}

static int conv_ref(const struct op_call *call, struct err *err) {
  const float *x = call->in[0].data, *w = call->in[1].data, *bias = call->in[2].data;
  float *y = call->out[0].data;
  struct windows_tap tap;
  struct conv c;
  if (conv_init(&c, call->node, &call->in[0].shape, &call->in[1].shape, err))
    return err->code;
  for (int64_t n = 0; n < c.n; n++)
    for (int64_t m = 0; m < c.groups * c.group_out; m++) {
      const float *own_x = x + (n * c.groups + m / c.group_out) * c.group_in * c.windows.in_elems;
      const float *own_w = w + m * c.group_in * c.windows.taps;
      for (int64_t o = 0; o < c.windows.out_elems; o++) {
        double sum = bias ? bias[m] : 0.0;
        windows_at(&tap, &c.windows, o);
        while (windows_next(&tap))
          for (int64_t i = 0; i < c.group_in; i++)
            sum += (double)own_x[i * c.windows.in_elems + tap.in] * own_w[i * c.windows.taps + tap.index];
        *y++ = (float)sum;
      }
    }
  return ERR_OK;
}

/* Each output takes a kernel of one filter. */
static double conv_multiply_adds(const struct graph *graph, const struct node *node) {
  return infer_output_elems(graph, node, 0) * infer_input_elems(graph, node, 1) /
         (double)node_input(graph, node, 1)->shape.dim[0];
}

static const struct op_case conv_cases[] = {
    {.inputs = "f32[2,3,7,6] f32[4,3,3,3] f32[4]"},
    {.inputs = "f32[2,3,7,6] f32[4,3,3,3]", .attrs = "pads=1,1,1,1 strides=2,2"},
    {.inputs = "f32[2,4,7,6] f32[6,2,3,2] f32[6]", .attrs = "group=2 pads=0,1,2,1 kernel_shape=3,2"},
    {.inputs = "f32[1,3,5,5] f32[3,1,3,3] f32[3]", .attrs = "group=3 pads=1,1,1,1"},
    {.inputs = "f32[1,2,9,8] f32[3,2,3,3]", .attrs = "dilations=2,3 pads=2,1,0,3 strides=1,2"},
    {.inputs = "f32[1,2,5,6] f32[3,2,3,2] f32[3]", .attrs = "auto_pad=SAME_UPPER strides=2,2"},
    {.inputs = "f32[1,2,5,6] f32[3,2,4,3]", .attrs = "auto_pad=SAME_LOWER"},
    {.inputs = "f32[1,2,5,6] f32[3,2,3,2]", .attrs = "auto_pad=VALID strides=2,1"},
    {.inputs = "f32[2,3,9] f32[4,3,3] f32[4]", .attrs = "pads=1,2 strides=2, dilations=2,"},
    {.inputs = "f32[1,2,4,5,4] f32[3,2,2,3,2] f32[3]", .attrs = "pads=0,1,1,1,1,0 strides=1,2,1"},
    {.inputs = "f32[2,16,6,6] f32[32,16,1,1] f32[32]"},
    {.inputs = "f32[n,g*c,h+k,w+l] f32[g*m,c,k,l] b",
     .attrs = "group=g strides=s,t pads=p,q,q,p",
     .draw =
         "n=1..2 g=1..2 c=1..2 m=1..2 h=0..3 w=0..3 k=1..3 l=1..2 s=1..2 t=1..2 p=0..2 q=0..1 b=-|f32[g*m]"},
    {.inputs = "f32[n,c,h+d*k] f32[m,c,k] f32[m]",
     .attrs = "dilations=d, strides=s,",
     .draw = "n=1..2 c=1..3 m=1..3 h=0..4 k=1..3 d=1..3 s=1..2"},
    {.inputs = "f32[n,c,h+d*k] f32[c*m,1,k] f32[c*m]",
     .attrs = "group=c pads=p,q strides=s, dilations=d,",
     .draw = "n=1..2 c=2..5 m=1|1|2 h=3..6 k=1..3 p=0..1 q=0..2 s=1..2 d=1..2"},
    {.inputs = "f32[1,g*c,h+1,h+2,h] f32[g*m,c,k,2,k]",
     .attrs = "group=g auto_pad=a strides=s,1,s",
     .draw = "g=1..2 c=1..2 m=1..2 h=2..3 k=1..2 s=1..2 a=SAME_UPPER|SAME_LOWER|VALID"},
    {.inputs = "f32[n,c,h,w] f32[c,1,k,k]",
     .attrs = "group=c auto_pad=a strides=s,s",
     .draw = "n=1..2 c=1..3 h=3..5 w=3..6 k=1..3 s=1..2 a=SAME_UPPER|SAME_LOWER|VALID"},
    /* a filter for each channel: in vectors of channels and in tiles of those, or not */
    {.inputs = "f32[2,68,3,5] f32[68,1,3,3] f32[68]", .attrs = "group=68 pads=1,1,1,1"},
    {.inputs = "f32[3,32,2,2] f32[32,1,3,3]", .attrs = "group=32 pads=1,1,1,1"},
    {.inputs = "f32[2,16,4,5] f32[16,1,3,2]", .attrs = "group=16 pads=2,0,1,1 strides=2,1 dilations=1,2"},
    {.inputs = "f32[2,8,9,10] f32[8,1,3,3]", .attrs = "group=8 pads=1,1,0,1 strides=2,2"},
    {.inputs = "f32[2,4,8,9] f32[4,1,5,5] f32[4]", .attrs = "group=4 pads=2,1,2,2 strides=2,2"},
    {.inputs = "f32[n,c,h+k,w+k] f32[c,1,k,k] b",
     .attrs = "group=c strides=s,s pads=p,q,r,t",
     .draw = "n=1..2 c=4|8|12 h=0..4 w=0..7 k=3|5 s=1..2 p=0..2 q=0..2 r=0..2 t=0..2 b=-|f32[c]"},
    {.inputs = "f32[n,c,h+d*2,w+e*2] f32[c,1,k,l] b",
     .attrs = "group=c strides=s,t pads=p,q,q,p dilations=d,e",
     .draw = "n=1..2 c=4|8|3 h=1..4 w=1..6 k=1..3 l=1..3 d=1..2 e=1..3 s=1..3 t=1..2 p=0..2 q=0..1 "
             "b=-|f32[c]"},
    {.inputs = "f32[1,c,h,5,6] f32[c*m,1,k,3,3] f32[c*m]",
     .attrs = "group=c strides=1,s,s pads=0,1,1,0,1,1",
     .draw = "c=4|3 m=1|1|2 h=1..3 k=1|1|1|2 s=1..2"},
    {0},
};

static const struct op_def conv_grad_input;
static const struct op_def conv_grad_weight;
static const struct op_def *const conv_gradients[] = {&conv_grad_input, &conv_grad_weight, NULL};

const struct op_def op_Conv = {
    .name = "Conv",
    .domain = "",
    .min_inputs = 2,
    .max_inputs = 3,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 1,
    .infer = conv_infer,
    .backward = conv_backward,
    .ref = conv_ref,
    .multiply_adds = conv_multiply_adds,
    .cases = conv_cases,
    .gradients = conv_gradients,
};

/* dy must be of the shape that the forward node's windows give. */
static int check_dy(const struct conv *conv, const struct node *node, const struct shape *dy,
                    struct err *err) {
  struct shape y = windows_out_shape(&conv->windows, conv->n, conv->groups * conv->group_out);
  char text[128];
  if (shape_is_same(&y, dy))
    return ERR_OK;
  return node_error(node, err, ERR_INVALID, "a gradient of shape %s does not belong to this convolution",
                    shape_text(dy, text, sizeof text));
}

static int grad_input_infer(struct graph *graph, const struct node *node, struct err *err) {
  struct shape x;
  struct conv conv;
  if (infer_check_f32(graph, node, err) || infer_shape_attr(node, &x, err) ||
      conv_init(&conv, node, &x, &node_input(graph, node, 1)->shape, err) ||
      check_dy(&conv, node, &node_input(graph, node, 0)->shape, err))
    return err->code;
  return infer_f32(graph, node, 0, &x, err);
}

void conv_scatter(const struct conv *c, const float *dy, const float *w, float *dx) {
  struct windows_tap tap;
  memset(dx, 0, (size_t)(c->n * c->groups * c->group_in * c->windows.in_elems) * sizeof *dx);
  for (int64_t n = 0; n < c->n; n++)
    for (int64_t m = 0; m < c->groups * c->group_out; m++) {
      float *own_dx = dx + (n * c->groups + m / c->group_out) * c->group_in * c->windows.in_elems;
      const float *own_w = w + m * c->group_in * c->windows.taps;
      for (int64_t o = 0; o < c->windows.out_elems; o++, dy++) {
        windows_at(&tap, &c->windows, o);
        while (windows_next(&tap))
          for (int64_t i = 0; i < c->group_in; i++)
            own_dx[i * c->windows.in_elems + tap.in] += *dy * own_w[i * c->windows.taps + tap.index];
      }
    }
}

static int grad_input_ref(const struct op_call *call, struct err *err) {
  struct conv conv;
  if (conv_init(&conv, call->node, &call->out[0].shape, &call->in[1].shape, err))
    return err->code;
  conv_scatter(&conv, call->in[0].data, call->in[1].data, call->out[0].data);
  return ERR_OK;
}

/* dy, w -> dx; the attributes of Conv, resolved, and "shape": x's */
static const struct op_def conv_grad_input = {
    .name = "ConvGradInput",
    .domain = "ai.weir",
    .min_inputs = 2,
    .max_inputs = 2,
    .min_outputs = 1,
    .max_outputs = 1,
    .infer = grad_input_infer,
    .ref = grad_input_ref,
};

static int grad_weight_infer(struct graph *graph, const struct node *node, struct err *err) {
  const struct attr *kernel = node_attr(node, "kernel_shape");
  int64_t groups = node_attr_int(node, "group", 1);
  struct shape dy, x, w, bias;
  struct conv conv;
  if (infer_check_f32(graph, node, err))
    return err->code;
  dy = node_input(graph, node, 0)->shape;
  x = node_input(graph, node, 1)->shape;
  if (!kernel || kernel->type != ATTR_INTS || groups < 1 || dy.rank != x.rank || x.rank < 3 ||
      x.rank > 2 + WINDOWS_DIMS || kernel->n != x.rank - 2)
    return node_error(node, err, ERR_INVALID, "its kernel or group does not fit its inputs");
  w = (struct shape){.rank = x.rank, .dim = {dy.dim[1], x.dim[1] / groups}};
  for (int i = 0; i < kernel->n; i++)
    w.dim[2 + i] = kernel->ints[i];
  bias = (struct shape){.rank = 1, .dim = {dy.dim[1]}};
  if (conv_init(&conv, node, &x, &w, err) || check_dy(&conv, node, &dy, err) ||
      infer_f32(graph, node, 0, &w, err))
    return err->code;
  return infer_f32(graph, node, 1, &bias, err);
}

/* Adds to sums [group_in, taps] the weight gradient of output channel m. */
static void sum_channel(const struct conv *c, const struct op_call *call, int64_t m, double *sums) {
  const float *dy = call->in[0].data, *x = call->in[1].data;
  struct windows_tap tap;
  for (int64_t n = 0; n < c->n; n++) {
    const float *own_x = x + (n * c->groups + m / c->group_out) * c->group_in * c->windows.in_elems;
    const float *own_dy = dy + (n * c->groups * c->group_out + m) * c->windows.out_elems;
    for (int64_t o = 0; o < c->windows.out_elems; o++) {
      windows_at(&tap, &c->windows, o);
      while (windows_next(&tap))
        for (int64_t i = 0; i < c->group_in; i++)
          sums[i * c->windows.taps + tap.index] +=
              (double)own_dy[o] * own_x[i * c->windows.in_elems + tap.in];
    }
  }
}

static float sum_bias(const struct conv *c, const float *dy, int64_t m) {
  double sum = 0.0;
  for (int64_t n = 0; n < c->n; n++)
    for (int64_t o = 0; o < c->windows.out_elems; o++)
      sum += dy[(n * c->groups * c->group_out + m) * c->windows.out_elems + o];
  return (float)sum;
}

static int grad_weight_ref(const struct op_call *call, struct err *err) {
  float *dw = call->out[0].data, *db = call->out[1].data;
  int64_t channel_elems;
  double *sums;
  struct conv c;
  if (conv_init(&c, call->node, &call->in[1].shape, &call->out[0].shape, err))
    return err->code;
  channel_elems = c.group_in * c.windows.taps;
  sums = calloc((size_t)channel_elems + 1, sizeof *sums);
  if (!sums)
    return node_error(call->node, err, ERR_NO_MEMORY, "no memory for %lld sums", (long long)channel_elems);
  for (int64_t m = 0; m < c.groups * c.group_out; m++) {
    for (int64_t i = 0; i < channel_elems; i++)
      sums[i] = 0.0;
    sum_channel(&c, call, m, sums);
    for (int64_t i = 0; i < channel_elems; i++)
      *dw++ = (float)sums[i];
    if (db)
      db[m] = sum_bias(&c, call->in[0].data, m);
  }
  free(sums);
  return ERR_OK;
}

/* dy, x -> dw, and where wanted db f32[m]; the attributes of Conv, resolved */
static const struct op_def conv_grad_weight = {
    .name = "ConvGradWeight",
    .domain = "ai.weir",
    .min_inputs = 2,
    .max_inputs = 2,
    .min_outputs = 1,
    .max_outputs = 2,
    .infer = grad_weight_infer,
    .ref = grad_weight_ref,
};
