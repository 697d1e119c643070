/* A chain of elementwise nodes as the interpreter gets it: registers for results that are read later, numbers
   for inputs and outputs, and the walk over operands that are broadcast. */
#include <string.h>

#include "worker/backend/cuda/pointwise/chain.h"

struct allocation {
  int last_use[POINTWISE_INSTRUCTIONS_MAX]; /* of each result; -1: none */
  int place[POINTWISE_INSTRUCTIONS_MAX];    /* its register; -1 */
  bool is_taken[POINTWISE_REGISTERS];
};

static void find_uses(const struct cuda_chain *chain, struct allocation *registers) {
  for (int k = 0; k < chain->n_ops; k++) {
    registers->last_use[k] = registers->place[k] = -1;
    for (int o = 0; o < 3; o++)
      if (chain->ops[k].from[o].from == FROM_RESULT)
        registers->last_use[chain->ops[k].from[o].index] = k;
  }
}

/* Gives free what op k was the last to read, and its result a register if others than the next op read it. */
static bool register_allocate(const struct cuda_chain *chain, struct allocation *registers, int k) {
  for (int o = 0; o < 3; o++) {
    const struct chain_operand *from = &chain->ops[k].from[o];
    if (from->from == FROM_RESULT && registers->last_use[from->index] == k &&
        registers->place[from->index] >= 0)
      registers->is_taken[registers->place[from->index]] = false;
  }
  if (registers->last_use[k] <= k + 1)
    return true;
  for (int r = 0; r < POINTWISE_REGISTERS; r++)
    if (!registers->is_taken[r]) {
      registers->is_taken[r] = true;
      registers->place[k] = r;
      return true;
    }
  return false;
}

/* The number of the value among the plan's inputs; -1 without room for it. */
static int input_of(struct chain_plan *plan, int value, int reader) {
  int i = 0;
  while (i < plan->n_inputs && plan->inputs[i] != value)
    i++;
  if (i == POINTWISE_INPUTS_MAX)
    return -1;
  if (i == plan->n_inputs)
    plan->inputs[plan->n_inputs++] = value;
  plan->last_read[i] = reader;
  return i;
}

/* An instruction has one immediate; another one is read from memory. */
static bool plan_operand(struct chain_plan *plan, const struct cuda_chain *chain,
                         const struct allocation *registers, int k, int o) {
  const struct chain_operand *from = &chain->ops[k].from[o];
  struct pointwise_instruction *instruction = &plan->instructions[k];
  int place = OPERAND_NONE;
  bool is_taken = false;
  for (int before = 0; before < o; before++)
    is_taken |= instruction->from[before] == OPERAND_IMMEDIATE;
  if (from->from == FROM_IMMEDIATE && !is_taken) {
    place = OPERAND_IMMEDIATE;
    if (chain->is_integer)
      instruction->immediate.integer = from->whole;
    else
      instruction->immediate.real = from->real;
  } else if (from->from == FROM_IMMEDIATE || from->from == FROM_VALUE) {
    place = from->index < 0 ? -1 : input_of(plan, from->index, k);
  } else if (from->from == FROM_RESULT) {
    place = from->index == k - 1 ? OPERAND_LAST : OPERAND_REGISTER + registers->place[from->index];
  }
  instruction->from[o] = (uint8_t)place;
  return place >= 0;
}

bool chain_plan(const struct cuda_chain *chain, bool (*is_needed)(const void *user, int value),
                const void *user, struct chain_plan *plan) {
  struct allocation registers = {{0}, {0}, {false}};
  memset(plan, 0, sizeof *plan);
  find_uses(chain, &registers);
  for (int k = 0; k < chain->n_ops; k++) {
    const struct chain_op *op = &chain->ops[k];
    struct pointwise_instruction *instruction = &plan->instructions[k];
    *instruction = (struct pointwise_instruction){.op = (uint8_t)op->op,
                                                  .to = POINTWISE_REGISTERS,
                                                  .output = POINTWISE_OUTPUTS_MAX,
                                                  .type = (uint8_t)op->type,
                                                  .node = op->node->index,
                                                  .alpha = op->alpha,
                                                  .beta = op->beta};
    for (int o = 0; o < 3; o++)
      if (!plan_operand(plan, chain, &registers, k, o))
        return false;
    if (!register_allocate(chain, &registers, k))
      return false;
    if (registers.place[k] >= 0)
      instruction->to = (uint8_t)registers.place[k];
    if (op->value < 0 || !is_needed(user, op->value))
      continue;
    if (plan->n_outputs == POINTWISE_OUTPUTS_MAX)
      return false;
    plan->written[plan->n_outputs] = k;
    plan->outputs[plan->n_outputs] = op->value;
    instruction->output = (uint8_t)plan->n_outputs++;
  }
  return true;
}

/* The dimension of the shape that comes at `position` in a layout. */
static int dim_at(enum cuda_layout layout, int rank, int position) {
  if (layout != CUDA_CHANNELS_LAST || position == 0)
    return position;
  return position == rank - 1 ? 1 : position + 1;
}

/* What a step along dimension `dim` of the chain's shape adds in the tensor. */
static int64_t stride_along(const struct cuda_tensor *tensor, int rank, int dim) {
  int own = dim - (rank - tensor->rank);
  int64_t stride = 1;
  if (own < 0 || tensor->dim[own] == 1)
    return 0;
  for (int p = tensor->rank - 1; dim_at(tensor->layout, tensor->rank, p) != own; p--)
    stride *= tensor->dim[dim_at(tensor->layout, tensor->rank, p)];
  return stride;
}

/* The dimensions of the walk, outermost first, and each input's strides. */
struct walk {
  int rank;
  int64_t dim[CUDA_RANK_MAX];
  int64_t stride[POINTWISE_INPUTS_MAX][CUDA_RANK_MAX];
};

/* Whether a dimension within the last one is but more of the same for every input. */
static bool can_join(const struct walk *walk, const int64_t strides[POINTWISE_INPUTS_MAX], int64_t dim,
                     int n_inputs) {
  for (int i = 0; i < n_inputs; i++)
    if (walk->stride[i][walk->rank - 1] != strides[i] * dim)
      return false;
  return walk->rank > 0;
}

static void walk_dim(struct walk *walk, const int64_t strides[POINTWISE_INPUTS_MAX], int64_t dim,
                     int n_inputs) {
  if (dim == 1)
    return;
  if (walk->rank > 0 && can_join(walk, strides, dim, n_inputs))
    walk->dim[walk->rank - 1] *= dim;
  else
    walk->dim[walk->rank++] = dim;
  for (int i = 0; i < n_inputs; i++)
    walk->stride[i][walk->rank - 1] = strides[i];
}

/* Inputs that only repeat, as [1,c,1] does, are walked by one division and one remainder. */
static void choose_place(const struct walk *walk, int i, struct pointwise_input *in) {
  const int64_t *stride = walk->stride[i];
  int64_t divide = 1, period = 1;
  int d = walk->rank - 1;
  for (; d >= 0 && stride[d] == 0; d--)
    divide *= walk->dim[d];
  for (; d >= 0 && stride[d] == period; d--)
    period *= walk->dim[d];
  bool is_outermost = d < 0;
  while (d >= 0 && stride[d] == 0)
    d--;
  memcpy(in->stride, stride, sizeof in->stride);
  in->divide = cuda_divisor_of(divide);
  in->period = cuda_divisor_of(period);
  if (d >= 0)
    in->place = AT_STRIDED;
  else if (period == 1)
    in->place = AT_ONE;
  else if (divide == 1 && is_outermost)
    in->place = AT_SAME;
  else if (divide == 1 && period % POINTWISE_LANES == 0)
    in->place = AT_ROW;
  else
    in->place = divide % POINTWISE_LANES == 0 ? AT_BLOCK : AT_CYCLE;
}

void chain_places(const struct cuda_chain *chain, enum cuda_layout layout, const struct cuda_arg *tensors,
                  int n_inputs, struct pointwise *out) {
  int rank = chain->shape.rank;
  struct walk walk = {0};
  for (int p = 0; p < rank; p++) {
    int64_t strides[POINTWISE_INPUTS_MAX];
    int d = dim_at(layout, rank, p);
    for (int i = 0; i < n_inputs; i++)
      strides[i] = stride_along(&tensors[i].tensor, rank, d);
    walk_dim(&walk, strides, chain->shape.dim[d], n_inputs);
  }
  out->elems = shape_elems(&chain->shape);
  out->rank = walk.rank;
  for (int d = 0; d < walk.rank; d++)
    out->dim[d] = cuda_divisor_of(walk.dim[d]);
  for (int i = 0; i < n_inputs; i++)
    choose_place(&walk, i, &out->inputs[i]);
}

static bool is_straight_op(int op) {
  switch (op) {
#define STRAIGHT(name, operands) case REAL_##name:
    POINTWISE_STRAIGHT(STRAIGHT)
#undef STRAIGHT
    return true;
  default:
    return false;
  }
}

bool chain_is_straight(const struct pointwise *chain) {
  const struct pointwise_instruction *instruction = &chain->instructions[0];
  enum cuda_type type = chain->outputs[0].type;
  if (chain->is_integer || chain->n_instructions != 1 || !is_straight_op(instruction->op) ||
      (type != CUDA_F32 && type != CUDA_BF16) || chain->elems % POINTWISE_LANES != 0 ||
      chain->elems > INT32_MAX)
    return false;
  for (int o = 0; o < 2; o++) {
    if (instruction->from[o] >= OPERAND_REGISTER)
      continue;
    const struct pointwise_input *in = &chain->inputs[instruction->from[o]];
    if (in->place == AT_CYCLE || in->place == AT_STRIDED ||
        (in->type != CUDA_F32 && in->type != CUDA_BF16 && in->type != CUDA_U8))
      return false;
  }
  return true;
}
