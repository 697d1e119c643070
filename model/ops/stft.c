/* STFT (ONNX 17): Fourier transforms of the windows of a signal. signal f32[b,t,1 or 2], frame_step, window
   f32[n] (optional), frame_length (optional) -> f32[b,frames,bins,2]. */
#include <string.h>

#include "model/ops/shared/backward.h"
#include "model/ops/shared/fourier.h"
#include "model/ops/shared/infer.h"

struct stft {
  int64_t batch, samples, step, frames;
  int parts;
  struct fourier fourier; /* of one frame */
};

/* How long a frame is, and how far it is from one to the next. */
struct framing {
  int64_t step, length;
};

static int stft_init(struct stft *s, const struct node *node, const struct shape *signal,
                     struct framing framing, struct err *err) {
  int64_t step = framing.step, length = framing.length;
  bool is_half = node_attr_int(node, "onesided", 1) != 0;
  int64_t bins = is_half ? length / 2 + 1 : length;
  int parts = signal->rank == 3 ? (int)signal->dim[2] : 0;
  char text[128];
  if (parts != 1 && parts != 2)
    return node_error(node, err, ERR_INVALID, "a signal of shape %s is not [batch,length,1 or 2]",
                      shape_text(signal, text, sizeof text));
  if (is_half && parts == 2)
    return node_error(node, err, ERR_INVALID, "onesided does not go with a complex signal");
  if (step < 1 || length < 1 || length > signal->dim[1])
    return node_error(node, err, ERR_INVALID,
                      "frames of %lld samples every %lld samples do not fit a signal of %lld",
                      (long long)length, (long long)step, (long long)signal->dim[1]);
  *s = (struct stft){.batch = signal->dim[0],
                     .samples = signal->dim[1],
                     .step = step,
                     .frames = (signal->dim[1] - length) / step + 1,
                     .parts = parts,
                     .fourier = {.length = length,
                                 .direction = -1,
                                 .scale = 1.0,
                                 .in = {.count = length, .used = length, .parts = parts},
                                 .out = {.count = bins, .used = bins, .parts = 2}}};
  return ERR_OK;
}

static int read_scalar(const struct graph *graph, const struct node *node, int input, int64_t *value,
                       struct err *err) {
  int n = 1;
  if (node_input(graph, node, input) &&
      infer_few_ints(graph, node, (struct ints_source){input, NULL}, (struct ints_room){value, 1, &n}, err))
    return err->code;
  return n == 1 ? ERR_OK : node_error(node, err, ERR_INVALID, "input %d must be one number", input);
}

/* The same of the forward node. The window, else the signal, is as long as a frame when nothing is said. */
static int stft_read(struct stft *s, const struct graph *graph, const struct node *node, struct err *err) {
  const struct value *signal = node_input(graph, node, 0), *window = node_input(graph, node, 2);
  struct framing framing = {0};
  if (infer_check_rank(graph, node, 0, 3, err))
    return err->code;
  framing.length = window ? shape_elems(&window->shape) : signal->shape.dim[1];
  if (signal->dtype != DTYPE_F32 || (window && window->dtype != DTYPE_F32))
    return node_error(node, err, ERR_UNSUPPORTED, "only f32 is supported here");
  if (read_scalar(graph, node, 1, &framing.step, err) || read_scalar(graph, node, 3, &framing.length, err) ||
      (window && infer_check_vector(graph, node, 2, framing.length, err)))
    return err->code;
  return stft_init(s, node, &signal->shape, framing, err);
}

static int stft_infer(struct graph *graph, const struct node *node, struct err *err) {
  struct stft s;
  if (stft_read(&s, graph, node, err))
    return err->code;
  return infer_f32(
      graph, node, 0,
      &(struct shape){.rank = 4, .dim = {s.batch, s.frames, s.fourier.out.count, s.fourier.out.parts}}, err);
}

static int stft_backward(struct autodiff *ad, struct graph *graph, const struct node *node, struct err *err) {
  int window = node_input(graph, node, 2) ? node->inputs[2] : -1;
  int inputs[] = {autodiff_grad(ad, node, 0), node->inputs[0], window};
  struct stft s;
  struct attr attrs[3];
  if (stft_read(&s, graph, node, err))
    return err->code;
  attrs[0] = attr_of_int("step", s.step);
  attrs[1] = attr_of_int("length", s.fourier.length);
  attrs[2] = attr_of_int("onesided", node_attr_int(node, "onesided", 1));
  if (autodiff_wants(ad, node, 0))
    autodiff_add(
        ad, node, 0,
        backward_node(graph, "STFTGradSignal", (struct value_list){inputs, 3}, (struct attr_list){attrs, 3}));
  if (window >= 0 && autodiff_wants(ad, node, 2))
    autodiff_add(
        ad, node, 2,
        backward_node(graph, "STFTGradWindow", (struct value_list){inputs, 3}, (struct attr_list){attrs, 3}));
  return ERR_OK;
}

static int stft_ref(const struct op_call *call, struct err *err) {
  const float *signal = call->in[0].data, *window = call->in[2].data;
  float *y = call->out[0].data;
  struct fourier_plan plan;
  struct stft s;
  if (stft_read(&s, call->graph, call->node, err) || fourier_plan_init(&plan, &s.fourier, call->node, err))
    return err->code;
  for (int64_t b = 0; b < s.batch; b++, signal += s.samples * s.parts)
    for (int64_t f = 0; f < s.frames; f++) {
      const float *frame = signal + f * s.step * s.parts;
      for (int64_t j = 0; j < s.fourier.length; j++)
        for (int part = 0; part < s.parts; part++)
          plan.in[j][part] = (double)frame[j * s.parts + part] * (window ? window[j] : 1.0f);
      fourier_transform(&plan);
      for (int64_t k = 0; k < s.fourier.out.count; k++, y += 2) {
        y[0] = (float)plan.out[k][0];
        y[1] = (float)plan.out[k][1];
      }
    }
  fourier_plan_fini(&plan);
  return ERR_OK;
}

static const struct op_case stft_cases[] = {
    {.inputs = "f32[b,t,1] i64[]==s w", .draw = "b=1..2 t=8..12 s=1..4 n=2..8 w=f32[n]|f32[8]"},
    {.inputs = "f32[b,t,2] i64[]==s w i64[]==n",
     .attrs = "onesided=0",
     .draw = "b=1..2 t=8..12 s=1..4 n=2..8 w=-|f32[n]"},
    {.inputs = "f32[b,t,1] i64[]==s - i64[]==n", .draw = "b=1..2 t=8..12 s=1..4 n=2..8"},
    {.inputs = "f32[2,7,1] i64[]==1"},
    {0},
};

static const struct op_def grad_signal, grad_window;
static const struct op_def *const stft_gradients[] = {&grad_signal, &grad_window, NULL};

const struct op_def op_STFT = {
    .name = "STFT",
    .domain = "",
    .min_inputs = 2,
    .max_inputs = 4,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 17,
    .infer = stft_infer,
    .backward = stft_backward,
    .ref = stft_ref,
    .cases = stft_cases,
    .gradients = stft_gradients,
};

static int grad_signal_infer(struct graph *graph, const struct node *node, struct err *err) {
  return infer_f32(graph, node, 0, &node_input(graph, node, 1)->shape, err);
}

static int grad_window_infer(struct graph *graph, const struct node *node, struct err *err) {
  return infer_f32(graph, node, 0, &node_input(graph, node, 2)->shape, err);
}

/* What the gradient of one frame's windowed samples, [length,parts], contributes to out[0] of both ops below.
 */
typedef void frame_fn(const struct stft *s, double (*gradient)[2], const float *frame, const float *window,
                      float *out);

static void add_to_signal(const struct stft *s, double (*gradient)[2], const float *unused,
                          const float *window, float *out) {
  (void)unused;
  for (int64_t j = 0; j < s->fourier.length; j++)
    for (int part = 0; part < s->parts; part++)
      out[j * s->parts + part] += (float)(gradient[j][part] * (window ? window[j] : 1.0f));
}

static void add_to_window(const struct stft *s, double (*gradient)[2], const float *frame,
                          const float *unused, float *out) {
  (void)unused;
  for (int64_t j = 0; j < s->fourier.length; j++)
    for (int part = 0; part < s->parts; part++)
      out[j] += (float)(gradient[j][part] * frame[j * s->parts + part]);
}

/* dy f32[b,frames,bins,2], signal, window -> out[0], of the signal or of the window. */
static int each_frame(const struct op_call *call, frame_fn *add, bool is_signal, struct err *err) {
  const float *dy = call->in[0].data, *signal = call->in[1].data, *window = call->in[2].data;
  float *out = call->out[0].data;
  struct fourier adjoint;
  struct fourier_plan plan;
  struct stft s;
  if (stft_init(
          &s, call->node, &call->in[1].shape,
          (struct framing){node_attr_int(call->node, "step", 0), node_attr_int(call->node, "length", 0)},
          err))
    return err->code;
  adjoint = fourier_adjoint(&s.fourier);
  if (fourier_plan_init(&plan, &adjoint, call->node, err))
    return err->code;
  memset(out, 0, (size_t)shape_elems(&call->out[0].shape) * sizeof *out);
  for (int64_t b = 0; b < s.batch; b++)
    for (int64_t f = 0; f < s.frames; f++) {
      int64_t at = (b * s.samples + f * s.step) * s.parts;
      for (int64_t k = 0; k < adjoint.in.used; k++, dy += 2) {
        plan.in[k][0] = dy[0];
        plan.in[k][1] = dy[1];
      }
      fourier_transform(&plan);
      add(&s, plan.out, signal + at, window, is_signal ? out + at : out);
    }
  fourier_plan_fini(&plan);
  return ERR_OK;
}

static int grad_signal_ref(const struct op_call *call, struct err *err) {
  return each_frame(call, add_to_signal, true, err);
}

static int grad_window_ref(const struct op_call *call, struct err *err) {
  return each_frame(call, add_to_window, false, err);
}

static const struct op_def grad_signal = {
    .name = "STFTGradSignal",
    .domain = "ai.weir",
    .min_inputs = 2,
    .max_inputs = 3,
    .min_outputs = 1,
    .max_outputs = 1,
    .infer = grad_signal_infer,
    .ref = grad_signal_ref,
};

static const struct op_def grad_window = {
    .name = "STFTGradWindow",
    .domain = "ai.weir",
    .min_inputs = 3,
    .max_inputs = 3,
    .min_outputs = 1,
    .max_outputs = 1,
    .infer = grad_window_infer,
    .ref = grad_window_ref,
};
