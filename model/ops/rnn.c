/* RNN (ONNX 7..14), the plain recurrent layer h = f(x W' + h R' + bias), and its gradient. */
#include <string.h>

#include "model/ops/shared/recurrent.h"

static void rnn_step(const struct recurrent_pass *pass, int64_t t) {
  int64_t n = pass->shape->hidden;
  recurrent_add_states(pass, t);
  for (int64_t b = 0; b < pass->shape->batch; b++) {
    float *gate = pass->gates + recurrent_row(pass->shape, t, b) * n;
    if (!recurrent_is_live(pass, t, b))
      continue;
    recurrent_activate(pass, 0, gate, n);
    memcpy(pass->h + b * n, gate, (size_t)n * sizeof *gate);
  }
}

static void rnn_step_back(const struct recurrent_pass *pass, int64_t t) {
  int64_t n = pass->shape->hidden;
  for (int64_t b = 0; b < pass->shape->batch; b++) {
    int64_t row = recurrent_row(pass->shape, t, b);
    float *d_gate = pass->d_gates + row * n, *dh = pass->h + b * n;
    if (recurrent_is_live(pass, t, b)) {
      memcpy(d_gate, dh, (size_t)n * sizeof *dh);
      memset(dh, 0, (size_t)n * sizeof *dh);
      recurrent_derive(pass, 0, pass->gates + row * n, d_gate, n);
    } else {
      memset(d_gate, 0, (size_t)n * sizeof *dh);
    }
  }
  recurrent_add_state_grads(pass, t);
}

const struct recurrent_cell recurrent_rnn = {
    .name = "RNN",
    .grad = "RNNGrad",
    .gates = 1,
    .n_functions = 1,
    .defaults = {"Tanh"},
    .step = rnn_step,
    .step_back = rnn_step_back,
    .sum_r = recurrent_sum_r,
};

static const struct op_case rnn_cases[] = {
    {.inputs = "f32[3,2,4] f32[1,3,4] f32[1,3,3]", .outputs = 2},
    {.inputs = "f32[3,2,2] f32[2,3,2] f32[2,3,3] f32[2,6] i32[2]=3,1 f32[2,2,3]",
     .attrs = "direction=bidirectional activations=Sigmoid;Softsign",
     .outputs = 2},
    {.inputs = "f32[3,2,2] f32[2,3,2] f32[2,3,3] f32[2,6] i32[2]=3,1 f32[2,2,3]",
     .attrs =
         "direction=bidirectional activations=Softplus;Affine activation_alpha=0.5f, activation_beta=-0.25f,",
     .outputs = 2},
    {.inputs = "f32[2,3,2] f32[1,3,2] f32[1,3,3] f32[1,6] i32[2]=3,1 f32[2,1,3]",
     .attrs = "direction=reverse layout=1 activations=ScaledTanh; activation_alpha=0.5f, activation_beta=2f,",
     .outputs = 2},
    {.inputs = "f32[2,2,2] f32[2,3,2] f32[2,3,3] f32[2,6]",
     .attrs = "direction=bidirectional activations=Relu;LeakyRelu activation_alpha=0.3f,",
     .outputs = 2,
     .is_not_smooth = true},
    {.inputs = "f32[2,2,2] f32[2,3,2] f32[2,3,3] f32[2,6]",
     .attrs = "direction=bidirectional activations=HardSigmoid;ThresholdedRelu activation_alpha=0.6f,0.2f",
     .outputs = 2,
     .is_not_smooth = true},
    {.inputs = "f32[2,2,2] f32[2,3,2] f32[2,3,3] f32[2,6]",
     .attrs = "direction=bidirectional activations=Elu;elu clip=0.5f",
     .outputs = 2,
     .is_not_smooth = true},
    {.inputs = "f32[t,b,i] f32[1,h,i] f32[1,h,h] f32[1,h*2] - f32[1,b,h]",
     .attrs = "activations=f; direction=r",
     .draw =
         "t=1..4 b=1..3 i=1..3 h=1..4 f=Sigmoid|Tanh|Softsign|Softplus|Affine|ScaledTanh r=forward|reverse",
     .outputs = 2},
    {0},
};

RECURRENT_GRADIENT(rnn, "RNNGrad")

const struct op_def op_RNN = {
    .name = "RNN",
    .domain = "",
    .min_inputs = 3,
    .max_inputs = 6,
    .min_outputs = 0,
    .max_outputs = 2,
    .min_opset = 7,
    .infer = recurrent_infer,
    .backward = recurrent_add_grad,
    .ref = recurrent_ref,
    .multiply_adds = recurrent_multiply_adds,
    .cases = rnn_cases,
    .gradients = rnn_gradients,
};
