/* Element-wise functions of one tensor that oneDNN has, and their gradients, in whatever layout the tensor
   has. */
#include <string.h>

#include "worker/backend/cpu/cpu.h"

/* How nodes of an op become an eltwise primitive. */
struct eltwise {
  const char *op;
  dnnl_alg_kind_t kind;
  const char *alpha; /* the attribute that is the primitive's alpha; NULL: 0 */
  float otherwise;   /* alpha where the attribute is absent */
  bool reads_output; /* of gradients: computed from dY and Y, not from dY and X */
};

static const struct eltwise eltwises[] = {
    {.op = "Elu", .kind = dnnl_eltwise_elu, .alpha = "alpha", .otherwise = 1.0f},
    {.op = "EluGrad", .kind = dnnl_eltwise_elu, .alpha = "alpha", .otherwise = 1.0f},
    {.op = "ExpGrad", .kind = dnnl_eltwise_exp_use_dst_for_bwd, .reads_output = true},
    {.op = "HardSwish", .kind = dnnl_eltwise_hardswish},
    {.op = "HardSwishGrad", .kind = dnnl_eltwise_hardswish},
    {.op = "LeakyRelu", .kind = dnnl_eltwise_relu, .alpha = "alpha", .otherwise = 0.01f},
    {.op = "LeakyReluGrad", .kind = dnnl_eltwise_relu, .alpha = "alpha", .otherwise = 0.01f},
    {.op = "Mish", .kind = dnnl_eltwise_mish},
    {.op = "MishGrad", .kind = dnnl_eltwise_mish},
    {.op = "Relu", .kind = dnnl_eltwise_relu},
    {.op = "ReluGrad", .kind = dnnl_eltwise_relu_use_dst_for_bwd, .reads_output = true},
    {.op = "Sigmoid", .kind = dnnl_eltwise_logistic},
    {.op = "SigmoidGrad", .kind = dnnl_eltwise_logistic_use_dst_for_bwd, .reads_output = true},
    {.op = "Softplus", .kind = dnnl_eltwise_soft_relu},
    {.op = "SoftplusGrad", .kind = dnnl_eltwise_soft_relu},
    {.op = "Sqrt", .kind = dnnl_eltwise_sqrt},
    {.op = "Swish", .kind = dnnl_eltwise_swish, .alpha = "alpha", .otherwise = 1.0f},
    {.op = "SwishGrad", .kind = dnnl_eltwise_swish, .alpha = "alpha", .otherwise = 1.0f},
    {.op = "Tanh", .kind = dnnl_eltwise_tanh},
    {.op = "TanhGrad", .kind = dnnl_eltwise_tanh_use_dst_for_bwd, .reads_output = true},
};

/* Gelu's kind is a matter of its attribute. */
static struct eltwise eltwise_of(const struct node *node) {
  struct eltwise gelu = {.op = node->op->name, .kind = dnnl_eltwise_gelu_erf};
  for (size_t i = 0; i < sizeof eltwises / sizeof eltwises[0]; i++)
    if (strcmp(eltwises[i].op, node->op->name) == 0)
      return eltwises[i];
  if (strcmp(node_attr_string(node, "approximate", "none"), "tanh") == 0)
    gelu.kind = dnnl_eltwise_gelu_tanh;
  return gelu;
}

static float alpha_of(const struct eltwise *eltwise, const struct node *node) {
  return eltwise->alpha ? node_attr_float(node, eltwise->alpha, eltwise->otherwise) : 0.0f;
}

static bool forward_init(dnnl_eltwise_desc_t *desc, const struct node *node, const struct eltwise *eltwise,
                         const dnnl_memory_desc_t *layout) {
  return dnnl_eltwise_forward_desc_init(desc, dnnl_forward_training, eltwise->kind, layout,
                                        alpha_of(eltwise, node), 0.0f) == dnnl_success;
}

/* X -> Y */
static bool prepare_forward(struct backend_program *program, const struct node *node) {
  dnnl_memory_desc_t layout =
      layout_typed(cpu_layout(program, node->inputs[0]), cpu_type(program, node->outputs[0]));
  struct eltwise eltwise = eltwise_of(node);
  dnnl_eltwise_desc_t forward;
  dnnl_primitive_desc_t desc =
      forward_init(&forward, node, &eltwise, &layout) ? cpu_describe_fast(program, &forward, NULL) : NULL;
  if (!desc)
    return false;
  struct cpu_step *step = cpu_step_new(program, node);
  int x = cpu_read(program, step, DNNL_ARG_SRC, node->inputs[0], &layout);
  cpu_write_over(program, step, DNNL_ARG_DST, &layout, x);
  cpu_step_end(program, step, desc);
  return true;
}

/* dY, X or Y -> dX */
static bool prepare_backward(struct backend_program *program, const struct node *node) {
  dnnl_memory_desc_t layout =
      layout_typed(cpu_layout(program, node->inputs[1]), cpu_type(program, node->outputs[0]));
  struct eltwise eltwise = eltwise_of(node);
  dnnl_eltwise_desc_t forward, backward;
  dnnl_primitive_desc_t hint, desc;
  if (!forward_init(&forward, node, &eltwise, &layout) ||
      dnnl_eltwise_backward_desc_init(&backward, eltwise.kind, &layout, &layout, alpha_of(&eltwise, node),
                                      0.0f))
    return false;
  hint = cpu_describe(program, &forward, NULL, NULL);
  desc = hint ? cpu_describe_fast(program, &backward, hint) : NULL;
  if (!desc)
    return false;
  struct cpu_step *step = cpu_step_new(program, node);
  int dy = cpu_read(program, step, DNNL_ARG_DIFF_DST, node->inputs[0], &layout);
  cpu_read(program, step, eltwise.reads_output ? DNNL_ARG_DST : DNNL_ARG_SRC, node->inputs[1], &layout);
  cpu_write_over(program, step, DNNL_ARG_DIFF_SRC, &layout, dy);
  cpu_step_end(program, step, desc);
  return true;
}

const struct cpu_kernel cpu_elu = {"Elu", prepare_forward};
const struct cpu_kernel cpu_elu_grad = {"EluGrad", prepare_backward};
const struct cpu_kernel cpu_exp_grad = {"ExpGrad", prepare_backward};
const struct cpu_kernel cpu_gelu = {"Gelu", prepare_forward};
const struct cpu_kernel cpu_gelu_grad = {"GeluGrad", prepare_backward};
const struct cpu_kernel cpu_hard_swish = {"HardSwish", prepare_forward};
const struct cpu_kernel cpu_hard_swish_grad = {"HardSwishGrad", prepare_backward};
const struct cpu_kernel cpu_leaky_relu = {"LeakyRelu", prepare_forward};
const struct cpu_kernel cpu_leaky_relu_grad = {"LeakyReluGrad", prepare_backward};
const struct cpu_kernel cpu_mish = {"Mish", prepare_forward};
const struct cpu_kernel cpu_mish_grad = {"MishGrad", prepare_backward};
const struct cpu_kernel cpu_relu = {"Relu", prepare_forward};
const struct cpu_kernel cpu_relu_grad = {"ReluGrad", prepare_backward};
const struct cpu_kernel cpu_sigmoid = {"Sigmoid", prepare_forward};
const struct cpu_kernel cpu_sigmoid_grad = {"SigmoidGrad", prepare_backward};
const struct cpu_kernel cpu_softplus = {"Softplus", prepare_forward};
const struct cpu_kernel cpu_softplus_grad = {"SoftplusGrad", prepare_backward};
const struct cpu_kernel cpu_sqrt = {"Sqrt", prepare_forward};
const struct cpu_kernel cpu_swish = {"Swish", prepare_forward};
const struct cpu_kernel cpu_swish_grad = {"SwishGrad", prepare_backward};
const struct cpu_kernel cpu_tanh = {"Tanh", prepare_forward};
const struct cpu_kernel cpu_tanh_grad = {"TanhGrad", prepare_backward};
