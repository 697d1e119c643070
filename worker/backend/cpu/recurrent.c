/* LSTM, GRU and RNN and their gradients: the walk over time of model/ops/shared/recurrent.h, with oneDNN's
   products and vector loops for the usual activation functions. */
#include "model/ops/shared/recurrent.h"

#include "worker/backend/cpu/cpu.h"
#include "worker/backend/cpu/exp.h"
#include "worker/backend/cpu/gemm.h"

VECTOR_VARIANTS static void sigmoid(float *x, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    x[i] = 1.0f / (1.0f + exp_vector(-x[i]));
}

/* Within 3 units in the last place: near 0 by the polynomial of Cephes, else 1 - 2 / (e^2|x| + 1). */
VECTOR_VARIANTS static void hyperbolic_tangent(float *x, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    float v = x[i], size = v < 0.0f ? -v : v, square = v * v, near = -5.70498872745e-3f;
    float far = 1.0f - 2.0f / (exp_vector(2.0f * size) + 1.0f);
    near = near * square + 2.06390887954e-2f;
    near = near * square - 5.37397155531e-2f;
    near = near * square + 1.33314422036e-1f;
    near = near * square - 3.33332819422e-1f;
    near = near * square * v + v;
    far = v < 0.0f ? -far : far;
    x[i] = size < 0.625f ? near : far;
  }
}

static void gate_activate(const struct activation *function, float *x, int64_t n) {
  if (function->kind == ACTIVATION_SIGMOID)
    sigmoid(x, n);
  else if (function->kind == ACTIVATION_TANH)
    hyperbolic_tangent(x, n);
  else
    activation_apply(function, x, n);
}

static const struct recurrent_math math = {gemm_multiply, gate_activate};

/* What a step needs besides its arguments: the node's tensors in order, then scratch. */
struct details {
  struct recurrent shape;
  struct op_call call;
  int scratch; /* index of the argument */
};

static void io_init(struct recurrent_io *io, struct details *details, const struct cpu_step *step) {
  struct op_call *call = &details->call;
  const struct cpu_arg *arg = step->args;
  for (int i = 0; i < call->node->n_inputs; i++)
    if (call->node->inputs[i] >= 0)
      call->in[i].data = (arg++)->data;
  for (int i = 0; i < call->node->n_outputs; i++)
    if (call->node->outputs[i] >= 0)
      call->out[i].data = (arg++)->data;
  recurrent_io_init(io, &details->shape, call);
  io->scratch = arg->data;
}

static int run_forward(struct backend_program *program, struct cpu_step *step, const struct backend_run *run,
                       struct err *err) {
  struct details *details = step->details;
  struct recurrent_io io;
  (void)program;
  (void)run;
  io_init(&io, details, step);
  return recurrent_forward(&details->shape, &math, &io, step->node, err);
}

static int run_backward(struct backend_program *program, struct cpu_step *step, const struct backend_run *run,
                        struct err *err) {
  struct details *details = step->details;
  struct recurrent_io io;
  (void)program;
  (void)run;
  (void)err;
  io_init(&io, details, step);
  recurrent_backward(&details->shape, &math, &io);
  return ERR_OK;
}

static bool prepare_recurrent(struct backend_program *program, const struct node *node, bool is_backward) {
  struct details *details = arena_new(&program->memory, sizeof *details);
  struct err err = ERR_NONE;
  if (recurrent_init(&details->shape, program->graph, node, &err))
    return false;
  int64_t scratch_elems = recurrent_scratch_elems(&details->shape, node);
  dnnl_memory_desc_t scratch = layout_dense(1, &scratch_elems);
  struct cpu_step *step = cpu_step_new(program, node);
  op_call_init(&details->call, &program->memory, program->graph, node);
  for (int i = 0; i < node->n_inputs; i++)
    if (node->inputs[i] >= 0)
      cpu_read(program, step, 0, node->inputs[i], NULL);
  for (int i = 0; i < node->n_outputs; i++)
    if (node->outputs[i] >= 0)
      cpu_write(program, step, 0, node->outputs[i], NULL);
  cpu_write(program, step, 0, -1, &scratch);
  step->details = details;
  step->run = is_backward ? run_backward : run_forward;
  cpu_step_end(program, step, NULL);
  return true;
}

static bool prepare_forward(struct backend_program *program, const struct node *node) {
  return prepare_recurrent(program, node, false);
}

static bool prepare_backward(struct backend_program *program, const struct node *node) {
  return prepare_recurrent(program, node, true);
}

const struct cpu_kernel cpu_lstm = {"LSTM", prepare_forward};
const struct cpu_kernel cpu_lstm_grad = {"LSTMGrad", prepare_backward};
const struct cpu_kernel cpu_gru = {"GRU", prepare_forward};
const struct cpu_kernel cpu_gru_grad = {"GRUGrad", prepare_backward};
const struct cpu_kernel cpu_rnn = {"RNN", prepare_forward};
const struct cpu_kernel cpu_rnn_grad = {"RNNGrad", prepare_backward};
