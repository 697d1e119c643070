/* The open chain of a program under construction: elementwise nodes that will be one launch of the
   interpreter. pointwise_ops.c says what a node computes, chain.c when chains begin and end, chain_plan.c
   what the kernel gets. */
#ifndef WEIR_WORKER_BACKEND_CUDA_POINTWISE_CHAIN_H
#define WEIR_WORKER_BACKEND_CUDA_POINTWISE_CHAIN_H

#include "worker/backend/cuda/engine/cuda.h"
#include "worker/backend/cuda/pointwise/pointwise.h"

enum chain_from { FROM_NOWHERE, FROM_VALUE, FROM_RESULT, FROM_IMMEDIATE };

struct chain_operand {
  enum chain_from from;
  int index;     /* VALUE: which; RESULT: of which op of the chain; IMMEDIATE: the value that it is, or -1 */
  float real;    /* IMMEDIATE, of a real chain */
  int64_t whole; /* IMMEDIATE, of a chain of integers */
};

struct chain_op {
  int op; /* enum pointwise_real or pointwise_integer */
  struct chain_operand from[3];
  float alpha, beta;
  const struct node *node;
  enum cuda_type type; /* of an integer result */
  int value;           /* the graph's, that it gives; -1: a step on the way to one */
};

struct cuda_chain {
  const struct graph *graph;
  const struct node *node; /* that is being added; afterwards the last */
  struct shape shape;      /* of all results */
  bool is_integer;
  int n_ops; /* 0: no chain is open */
  bool is_full;
  struct chain_op ops[POINTWISE_INSTRUCTIONS_MAX];
};

/* pointwise_ops.c. Appends what the node computes; sets is_full where there is no room. False for a node that
   chains cannot compute. */
bool chain_compute(struct cuda_chain *chain, const struct node *node);
/* *is_integer: whether the node is computed in integers. False for types that chains do not have. */
bool chain_kind(const struct graph *graph, const struct node *node, bool *is_integer);

/* chain.c. Input i of the node that is being added. */
struct chain_operand chain_input(const struct cuda_chain *chain, int i);
/* Appends an instruction and returns its result; sets is_full if there is no room. */
struct chain_operand chain_emit(struct cuda_chain *chain, struct chain_op op);

/* chain_plan.c: the chain as instructions, with operands and outputs numbered. */
struct chain_plan {
  int n_inputs, inputs[POINTWISE_INPUTS_MAX]; /* values */
  int last_read[POINTWISE_INPUTS_MAX];        /* the last instruction that reads it */
  int n_outputs, outputs[POINTWISE_OUTPUTS_MAX], written[POINTWISE_OUTPUTS_MAX]; /* values; by which */
  struct pointwise_instruction instructions[POINTWISE_INSTRUCTIONS_MAX];
};
/* is_needed: whether a value is read by others than the chain. False if it does not fit. */
bool chain_plan(const struct cuda_chain *chain, bool (*is_needed)(const void *user, int value),
                const void *user, struct chain_plan *plan);
/* Sets elems, dims and how each input is walked; tensors: of the inputs. */
void chain_places(const struct cuda_chain *chain, enum cuda_layout layout, const struct cuda_arg *tensors,
                  int n_inputs, struct pointwise *out);

/* Whether cuda_straight_launch computes the chain. */
bool chain_is_straight(const struct pointwise *chain);

/* cuda_kernel.prepare of every op that chains can compute. */
bool cuda_chain_add(struct backend_program *program, const struct node *node);

#endif
