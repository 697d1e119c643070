/* When chains of elementwise nodes begin and end. Nodes of one shape and kind that follow each other join the
   open chain while its plan has room; everything else closes it: other nodes of the program (cuda.h), and a
   node whose result the caller reads, so that it need not wait for more. A result is written only if somebody
   but the chain reads it. */
#include "worker/backend/cuda/pointwise/chain.h"

#include <string.h>

#include "worker/backend/cuda/engine/program.h"

struct chain_operand chain_emit(struct cuda_chain *chain, struct chain_op op) {
  int k = chain->n_ops;
  if (k == POINTWISE_INSTRUCTIONS_MAX) {
    chain->is_full = true;
    return (struct chain_operand){.from = FROM_RESULT, .index = k - 1};
  }
  op.node = chain->node;
  op.value = -1;
  chain->ops[chain->n_ops++] = op;
  return (struct chain_operand){.from = FROM_RESULT, .index = k};
}

/* A scalar that is known goes into the instruction. */
static bool read_scalar(const struct value *value, struct chain_operand *out) {
  int32_t i32 = 0;
  uint8_t u8 = 0;
  if (value->kind != VALUE_CONSTANT || shape_elems(&value->shape) != 1)
    return false;
  if (value->dtype == DTYPE_F32) {
    memcpy(&out->real, value->data, sizeof out->real);
    return true;
  }
  if (value->dtype == DTYPE_I64) {
    memcpy(&out->whole, value->data, sizeof out->whole);
  } else if (value->dtype == DTYPE_I32) {
    memcpy(&i32, value->data, sizeof i32);
    out->whole = i32;
  } else {
    memcpy(&u8, value->data, sizeof u8);
    out->whole = u8;
  }
  out->real = (float)out->whole;
  return true;
}

struct chain_operand chain_input(const struct cuda_chain *chain, int i) {
  int value = i < chain->node->n_inputs ? chain->node->inputs[i] : -1;
  struct chain_operand operand = {.from = FROM_IMMEDIATE, .index = value};
  if (value < 0)
    return (struct chain_operand){.from = FROM_NOWHERE};
  if (read_scalar(&chain->graph->values[value], &operand))
    return operand;
  for (int k = 0; k < chain->n_ops; k++)
    if (chain->ops[k].value == value)
      return (struct chain_operand){.from = FROM_RESULT, .index = k};
  return (struct chain_operand){.from = FROM_VALUE, .index = value};
}

/* Whether others than the chain read the value: nodes between its first and last are all in it. */
static bool is_needed(const void *user, int value) {
  const struct backend_program *program = user;
  const struct cuda_value *known = &program->values[value];
  return known->is_watched || known->last_node > program->chain->node->index;
}

static bool chain_fits(const struct backend_program *program, const struct cuda_chain *chain) {
  struct chain_plan plan;
  return !chain->is_full && chain_plan(chain, is_needed, program, &plan);
}

/* True if the node joined the chain, which else is as before. */
static bool chain_join(struct backend_program *program, struct cuda_chain *chain, const struct node *node) {
  const struct node *before = chain->node;
  int n_ops = chain->n_ops;
  chain->node = node;
  if (chain_compute(chain, node) && !chain->is_full && chain->n_ops > n_ops) {
    chain->ops[chain->n_ops - 1].value = node->outputs[0];
    if (chain_fits(program, chain))
      return true;
  }
  chain->node = before;
  chain->n_ops = n_ops;
  chain->is_full = false;
  return false;
}

static struct cuda_chain *chain_of(struct backend_program *program) {
  if (!program->chain) {
    program->chain = arena_new(&program->memory, sizeof *program->chain);
    program->chain->graph = program->graph;
  }
  return program->chain;
}

bool cuda_chain_add(struct backend_program *program, const struct node *node) {
  struct cuda_chain *chain = chain_of(program);
  const struct shape *shape = &node_output(program->graph, node, 0)->shape;
  bool is_integer, is_added;
  if (!chain_kind(program->graph, node, &is_integer))
    return false;
  if (chain->n_ops > 0 && (chain->is_integer != is_integer || !shape_is_same(&chain->shape, shape)))
    cuda_chain_flush(program);
  if (chain->n_ops == 0) {
    chain->shape = *shape;
    chain->is_integer = is_integer;
  }
  is_added = chain_join(program, chain, node);
  if (!is_added && chain->n_ops > 0) {
    cuda_chain_flush(program);
    is_added = chain_join(program, chain, node);
  }
  if (is_added && program->values[node->outputs[0]].is_watched)
    cuda_chain_flush(program);
  return is_added;
}

static int enqueue_chain(struct backend_program *program, const struct cuda_step *step, cudaStream_t stream,
                         struct err *err) {
  struct pointwise *chain = step->details;
  int n_inputs = 0;
  (void)program;
  while (n_inputs < POINTWISE_INPUTS_MAX && chain->inputs[n_inputs].type != CUDA_ANY_TYPE) {
    chain->inputs[n_inputs].data = step->args[n_inputs].tensor.data;
    n_inputs++;
  }
  for (int a = n_inputs; a < step->n_args; a++)
    chain->outputs[a - n_inputs].data = step->args[a].tensor.data;
  if (chain->is_straight)
    cuda_straight_launch(chain, stream);
  else
    cuda_pointwise_launch(chain, stream);
  return cuda_check(step->node, cudaGetLastError(), "start a chain of elementwise operations", err);
}

/* That of an operand of the chain's shape which is in channels-last, so that this one is not rearranged. */
static enum cuda_layout layout_of(const struct backend_program *program, const struct cuda_chain *chain,
                                  const struct chain_plan *plan) {
  for (int i = 0; i < plan->n_inputs; i++)
    if (shape_is_same(&program->graph->values[plan->inputs[i]].shape, &chain->shape) &&
        cuda_layout_of(program, plan->inputs[i]) == CUDA_CHANNELS_LAST)
      return CUDA_CHANNELS_LAST;
  return CUDA_DENSE;
}

/* It may take the bytes of an input that is read at the same places, and not after it is written. */
static void write_output(struct backend_program *program, struct cuda_step *step,
                         const struct chain_plan *plan, const struct pointwise *chain, int o) {
  enum cuda_type type = cuda_type_of(program, plan->outputs[o]);
  enum cuda_layout layout = chain->is_channels_last ? CUDA_CHANNELS_LAST : CUDA_DENSE;
  int to = cuda_write(program, step, plan->outputs[o], type, layout);
  for (int i = 0; i < plan->n_inputs; i++)
    if (chain->inputs[i].place == AT_SAME && chain->inputs[i].type == type &&
        step->args[i].tensor.layout == layout && plan->last_read[i] <= plan->written[o])
      cuda_allow_over(step, to, i);
}

void cuda_chain_flush(struct backend_program *program) {
  struct cuda_chain *chain = program->chain;
  struct chain_plan plan;
  if (!chain || chain->n_ops == 0)
    return;
  CHECK(chain_plan(chain, is_needed, program, &plan));
  struct pointwise *details = arena_new(&program->memory, sizeof *details);
  struct cuda_step *step = cuda_step_new(program, chain->node);
  enum cuda_layout layout = layout_of(program, chain, &plan);
  details->is_channels_last = layout == CUDA_CHANNELS_LAST;
  for (int i = 0; i < plan.n_inputs; i++) {
    bool is_whole = shape_is_same(&program->graph->values[plan.inputs[i]].shape, &chain->shape);
    cuda_read(program, step, plan.inputs[i], CUDA_ANY_TYPE, is_whole ? layout : CUDA_ANY_LAYOUT);
    details->inputs[i].type = step->args[i].tensor.type;
  }
  chain_places(chain, layout, step->args, plan.n_inputs, details);
  for (int o = 0; o < plan.n_outputs; o++) {
    write_output(program, step, &plan, details, o);
    details->outputs[o].type = step->args[plan.n_inputs + o].tensor.type;
  }
  details->is_integer = chain->is_integer;
  details->n_instructions = chain->n_ops;
  details->fault = program->view.fault;
  details->context = program->view.context;
  if (details->is_channels_last) {
    details->channels = cuda_divisor_of(chain->shape.dim[1]);
    details->plane = cuda_divisor_of(details->elems / chain->shape.dim[0] / chain->shape.dim[1]);
  }
  memcpy(details->instructions, plan.instructions, sizeof details->instructions);
  details->is_straight = chain_is_straight(details);
  for (int k = 0; k < chain->n_ops; k++)
    if (chain->ops[k].node != chain->node)
      cuda_pass_over(program, chain->node, chain->ops[k].node->index);
  step->details = details;
  step->enqueue = enqueue_chain;
  cuda_step_end(program, step);
  chain->n_ops = 0;
}
