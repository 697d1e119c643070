/* What elementwise nodes compute, as instructions of a chain. Most ops are one instruction of their own name;
   the others are listed here. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "worker/backend/cuda/pointwise/chain.h"

/* An attribute that is an instruction's alpha or beta. */
struct parameter {
  const char *name; /* NULL: none */
  float otherwise;
};

struct instruction {
  const char *name;
  int reads;
  struct parameter parameters[2];
};

#define NO_ATTRS                                                                                             \
  {                                                                                                          \
    {NULL, 0.0f}, {                                                                                          \
      NULL, 0.0f                                                                                             \
    }                                                                                                        \
  }
#define ATTR(name, otherwise)                                                                                \
  {                                                                                                          \
    {name, otherwise}, {                                                                                     \
      NULL, 0.0f                                                                                             \
    }                                                                                                        \
  }
#define ATTRS(name1, otherwise1, name2, otherwise2)                                                          \
  {                                                                                                          \
    {name1, otherwise1}, {                                                                                   \
      name2, otherwise2                                                                                      \
    }                                                                                                        \
  }
#define SELU_ATTRS ATTRS("alpha", 1.67326319217681884765625f, "gamma", 1.05070102214813232421875f)

#define REAL(name, reads, attrs, expression) {#name, reads, attrs},
#define INTEGER(name, reads, expression)
static const struct instruction reals[] = {
#include "worker/backend/cuda/pointwise/pointwise.def"
};
#undef REAL
#undef INTEGER

#define REAL(name, reads, attrs, expression)
#define INTEGER(name, reads, expression) {#name, reads, NO_ATTRS},
static const struct instruction integers[] = {
#include "worker/backend/cuda/pointwise/pointwise.def"
};
#undef REAL
#undef INTEGER

static struct chain_operand real_of(float x) {
  return (struct chain_operand){.from = FROM_IMMEDIATE, .index = -1, .real = x};
}

static enum cuda_type integer_type(const struct cuda_chain *chain) {
  enum dtype dtype = node_output(chain->graph, chain->node, 0)->dtype;
  return dtype == DTYPE_I64 ? CUDA_I64 : dtype == DTYPE_I32 ? CUDA_I32 : CUDA_U8;
}

static struct chain_operand chain_unary(struct cuda_chain *chain, int op, struct chain_operand x) {
  return chain_emit(chain, (struct chain_op){.op = op, .from = {x}, .type = integer_type(chain)});
}

static struct chain_operand chain_binary(struct cuda_chain *chain, int op, struct chain_operand x,
                                         struct chain_operand y) {
  return chain_emit(chain, (struct chain_op){.op = op, .from = {x, y}, .type = integer_type(chain)});
}

static struct chain_operand chain_ternary(struct cuda_chain *chain, int op, struct chain_operand x,
                                          struct chain_operand y, struct chain_operand z) {
  return chain_emit(chain, (struct chain_op){.op = op, .from = {x, y, z}, .type = integer_type(chain)});
}

static struct chain_operand chain_copy(struct cuda_chain *chain, struct chain_operand x) {
  return chain_unary(chain, chain->is_integer ? INTEGER_Copy : REAL_Copy, x);
}

/* All inputs from the first on, one after another. */
static bool chain_fold(struct cuda_chain *chain, int op) {
  struct chain_operand x = chain_input(chain, 0);
  if (chain->node->n_inputs == 1)
    chain_copy(chain, x);
  for (int i = 1; i < chain->node->n_inputs && !chain->is_full; i++)
    x = chain_binary(chain, op, x, chain_input(chain, i));
  return true;
}

static bool compute_sum(struct cuda_chain *chain) {
  return chain_fold(chain, REAL_Add);
}

static bool compute_mean(struct cuda_chain *chain) {
  chain_fold(chain, REAL_Add);
  struct chain_operand sum = {.from = FROM_RESULT, .index = chain->n_ops - 1};
  chain_binary(chain, REAL_Div, sum, real_of((float)chain->node->n_inputs));
  return true;
}

static bool compute_max(struct cuda_chain *chain) {
  return chain_fold(chain, chain->is_integer ? INTEGER_Raise : REAL_Maximum);
}

static bool compute_min(struct cuda_chain *chain) {
  return chain_fold(chain, chain->is_integer ? INTEGER_Lower : REAL_Minimum);
}

/* dy, y, x0, x1, ...: dy shared by the inputs that equal y. */
static bool compute_extremum_grad(struct cuda_chain *chain) {
  int of = 2 + (int)node_attr_int(chain->node, "input", 0);
  struct chain_operand y = chain_input(chain, 1), winners = {.from = FROM_NOWHERE};
  for (int i = 2; i < chain->node->n_inputs && !chain->is_full; i++) {
    struct chain_operand is_winner = chain_binary(chain, REAL_Equal, chain_input(chain, i), y);
    winners = i == 2 ? is_winner : chain_binary(chain, REAL_Add, winners, is_winner);
  }
  struct chain_operand share = chain_binary(chain, REAL_Div, chain_input(chain, 0), winners);
  struct chain_operand is_winner = chain_binary(chain, REAL_Equal, chain_input(chain, of), y);
  chain_emit(chain, (struct chain_op){.op = REAL_KeepWhere, .from = {share, is_winner}, .alpha = 1.0f});
  return true;
}

/* The bound that is input `input` or, of reals before opset 11, the attribute. */
static struct chain_operand bound_of(const struct cuda_chain *chain, int input, const char *attr) {
  struct chain_operand bound = chain_input(chain, input);
  if (bound.from == FROM_NOWHERE && !chain->is_integer && node_attr(chain->node, attr))
    return real_of(node_attr_float(chain->node, attr, 0.0f));
  return bound;
}

static bool compute_clip(struct cuda_chain *chain) {
  struct chain_operand x = chain_input(chain, 0), low = bound_of(chain, 1, "min");
  struct chain_operand high = bound_of(chain, 2, "max");
  if (low.from == FROM_NOWHERE && high.from == FROM_NOWHERE)
    chain_copy(chain, x);
  if (low.from != FROM_NOWHERE)
    x = chain_binary(chain, chain->is_integer ? INTEGER_Raise : REAL_Raise, x, low);
  if (high.from != FROM_NOWHERE)
    chain_binary(chain, chain->is_integer ? INTEGER_Lower : REAL_Lower, x, high);
  return true;
}

/* dy, y, low, high: none at the bounds; those of the type's own range count, too. */
static bool compute_clip_grad(struct cuda_chain *chain) {
  struct chain_operand y = chain_input(chain, 1), low = bound_of(chain, 2, "min");
  struct chain_operand high = bound_of(chain, 3, "max");
  struct chain_operand dx = chain_ternary(chain, REAL_KeepAbove, chain_input(chain, 0), y,
                                          low.from == FROM_NOWHERE ? real_of(-INFINITY) : low);
  chain_ternary(chain, REAL_KeepBelow, dx, y, high.from == FROM_NOWHERE ? real_of(INFINITY) : high);
  return true;
}

/* Squares, cubes and roots are much of what models have. */
static bool compute_pow(struct cuda_chain *chain) {
  struct chain_operand x = chain_input(chain, 0), e = chain_input(chain, 1);
  bool is_known = e.from == FROM_IMMEDIATE;
  if (chain->is_integer)
    chain_binary(chain, INTEGER_Power, x, e);
  else if (node_output(chain->graph, chain->node, 0)->dtype != DTYPE_F32)
    return false;
  else if (is_known && e.real == 1.0f)
    chain_copy(chain, x);
  else if (is_known && e.real == 2.0f)
    chain_binary(chain, REAL_Mul, x, x);
  else if (is_known && e.real == 3.0f)
    chain_unary(chain, REAL_Cube, x);
  else if (is_known && e.real == 0.5f)
    chain_unary(chain, REAL_Sqrt, x);
  else if (is_known && e.real == -0.5f)
    chain_unary(chain, REAL_ReciprocalRoot, x);
  else
    chain_binary(chain, REAL_Power, x, e);
  return true;
}

/* dy, x, e */
static bool compute_pow_grad(struct cuda_chain *chain) {
  struct chain_operand dy = chain_input(chain, 0), x = chain_input(chain, 1), e = chain_input(chain, 2);
  if (e.from == FROM_IMMEDIATE && (e.real == 2.0f || e.real == 3.0f)) {
    struct chain_operand dx = chain_binary(chain, REAL_Mul, chain_binary(chain, REAL_Mul, dy, e), x);
    if (e.real == 3.0f)
      chain_binary(chain, REAL_Mul, dx, x);
  } else {
    chain_ternary(chain, REAL_PowerGrad, dy, x, e);
  }
  return true;
}

/* dy, x, e, y: dy y log(x) */
static bool compute_pow_exponent_grad(struct cuda_chain *chain) {
  struct chain_operand log =
      chain_binary(chain, REAL_LogOfBase, chain_input(chain, 1), chain_input(chain, 2));
  struct chain_operand dy = chain_binary(chain, REAL_Mul, chain_input(chain, 0), chain_input(chain, 3));
  chain_binary(chain, REAL_Mul, dy, log);
  return true;
}

static bool compute_mod(struct cuda_chain *chain) {
  bool is_cut = node_attr_int(chain->node, "fmod", 0) != 0;
  int op = chain->is_integer ? (is_cut ? INTEGER_Fmod : INTEGER_FloorMod)
           : is_cut          ? REAL_Fmod
                             : REAL_FloorMod;
  chain_binary(chain, op, chain_input(chain, 0), chain_input(chain, 1));
  return true;
}

static bool is_tanh(const struct node *node) {
  return strcmp(node_attr_string(node, "approximate", "none"), "tanh") == 0;
}

static bool compute_gelu(struct cuda_chain *chain) {
  chain_unary(chain, is_tanh(chain->node) ? REAL_GeluTanh : REAL_GeluExact, chain_input(chain, 0));
  return true;
}

static bool compute_gelu_grad(struct cuda_chain *chain) {
  chain_binary(chain, is_tanh(chain->node) ? REAL_GeluTanhGrad : REAL_GeluExactGrad, chain_input(chain, 0),
               chain_input(chain, 1));
  return true;
}

static bool compute_is_inf(struct cuda_chain *chain) {
  chain_emit(chain, (struct chain_op){.op = REAL_IsInfinite,
                                      .from = {chain_input(chain, 0)},
                                      .alpha = node_attr_int(chain->node, "detect_positive", 1) != 0,
                                      .beta = node_attr_int(chain->node, "detect_negative", 1) != 0});
  return true;
}

static bool compute_bit_shift(struct cuda_chain *chain) {
  bool is_left = strcmp(node_attr_string(chain->node, "direction", ""), "LEFT") == 0;
  chain_binary(chain, is_left ? INTEGER_ShiftLeft : INTEGER_ShiftRight, chain_input(chain, 0),
               chain_input(chain, 1));
  return true;
}

/* What is read and written is of the value's type, so that most casts are copies. */
static bool compute_cast(struct cuda_chain *chain) {
  struct chain_operand x = chain_input(chain, 0);
  if (node_output(chain->graph, chain->node, 0)->dtype == DTYPE_BOOL)
    chain_unary(chain, chain->is_integer ? INTEGER_NotZero : REAL_NotZero, x);
  else
    chain_copy(chain, x);
  return true;
}

/* The input, broadcast to the result's shape. */
static bool compute_copy(struct cuda_chain *chain) {
  chain_copy(chain, chain_input(chain, 0));
  return true;
}

/* dy, mask */
static bool compute_dropout_grad(struct cuda_chain *chain) {
  double ratio = node_attr_float(chain->node, "ratio", 0.5f);
  chain_emit(chain, (struct chain_op){.op = REAL_KeepWhere,
                                      .from = {chain_input(chain, 0), chain_input(chain, 1)},
                                      .alpha = (float)(1.0 / (1.0 - ratio))});
  return true;
}

/* x, ratio, mode -> y, mask. One that drops nothing, or a part that is not known, is no chain's. */
static bool compute_dropout(struct cuda_chain *chain) {
  const struct value *mode = node_input(chain->graph, chain->node, 2);
  struct chain_operand ratio = chain_input(chain, 1);
  bool drops = chain->graph->is_training ||
               (mode && mode->kind == VALUE_CONSTANT && *(const uint8_t *)mode->data != 0);
  if (ratio.from == FROM_NOWHERE)
    ratio = real_of(chain->graph->opset < 12 ? node_attr_float(chain->node, "ratio", 0.5f) : 0.5f);
  if (!drops || ratio.from != FROM_IMMEDIATE)
    return false;
  struct chain_operand mask = chain_unary(chain, REAL_Draw, ratio);
  if (!chain->is_full && chain->node->n_outputs > 1)
    chain->ops[mask.index].value = chain->node->outputs[1];
  chain_emit(chain, (struct chain_op){.op = REAL_KeepWhere,
                                      .from = {chain_input(chain, 0), mask},
                                      .alpha = (float)(1.0 / (1.0 - (double)ratio.real))});
  return true;
}

static const struct {
  const char *op;
  bool (*compute)(struct cuda_chain *chain);
} composed[] = {
    {"BitShift", compute_bit_shift},
    {"BroadcastTo", compute_copy},
    {"Cast", compute_cast},
    {"CastLike", compute_cast},
    {"Clip", compute_clip},
    {"ClipGrad", compute_clip_grad},
    {"Dropout", compute_dropout},
    {"DropoutGrad", compute_dropout_grad},
    {"Expand", compute_copy},
    {"ExtremumGrad", compute_extremum_grad},
    {"Gelu", compute_gelu},
    {"GeluGrad", compute_gelu_grad},
    {"IsInf", compute_is_inf},
    {"Max", compute_max},
    {"Mean", compute_mean},
    {"Min", compute_min},
    {"Mod", compute_mod},
    {"Pow", compute_pow},
    {"PowExponentGrad", compute_pow_exponent_grad},
    {"PowGrad", compute_pow_grad},
    {"Sum", compute_sum},
};

static float parameter_of(const struct node *node, const struct parameter *parameter) {
  return parameter->name ? node_attr_float(node, parameter->name, parameter->otherwise) : 0.0f;
}

/* The instruction that has the op's name. */
static bool compute_named(struct cuda_chain *chain) {
  const struct instruction *table = chain->is_integer ? integers : reals;
  int n = chain->is_integer ? POINTWISE_INTEGERS : POINTWISE_REALS, op = 0;
  const struct node *node = chain->node;
  while (op < n && strcmp(table[op].name, node->op->name) != 0)
    op++;
  if (op == n || table[op].reads != node->n_inputs)
    return false;
  chain_emit(chain,
             (struct chain_op){.op = op,
                               .from = {chain_input(chain, 0), chain_input(chain, 1), chain_input(chain, 2)},
                               .alpha = parameter_of(node, &table[op].parameters[0]),
                               .beta = parameter_of(node, &table[op].parameters[1]),
                               .type = integer_type(chain)});
  return true;
}

bool chain_compute(struct cuda_chain *chain, const struct node *node) {
  for (size_t i = 0; i < sizeof composed / sizeof *composed; i++)
    if (strcmp(composed[i].op, node->op->name) == 0)
      return composed[i].compute(chain);
  return compute_named(chain);
}

bool chain_kind(const struct graph *graph, const struct node *node, bool *is_integer) {
  enum dtype dtype = node_output(graph, node, 0)->dtype;
  bool is_like = strcmp(node->op->name, "CastLike") == 0;
  *is_integer = dtype != DTYPE_F32;
  if (dtype == DTYPE_F64)
    return false;
  for (int i = 0; i < (is_like ? 1 : node->n_inputs); i++) {
    const struct value *in = node_input(graph, node, i);
    if (in && in->dtype == DTYPE_F64)
      return false;
    *is_integer &= !in || in->dtype != DTYPE_F32;
  }
  return true;
}
