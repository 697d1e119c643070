/* Chains of elementwise operations as small programs that one kernel interprets: each thread takes
   POINTWISE_LANES neighbouring elements through all instructions, so that what only the chain itself reads is
   never in memory. Read by C and CUDA C. */
#ifndef WEIR_WORKER_BACKEND_CUDA_POINTWISE_POINTWISE_H
#define WEIR_WORKER_BACKEND_CUDA_POINTWISE_POINTWISE_H

#include <cuda_runtime_api.h>
#include <stdbool.h>

#include "worker/backend/cuda/engine/divide.h"
#include "worker/backend/cuda/engine/tensor.h"

enum {
  POINTWISE_LANES = 8,
  POINTWISE_INSTRUCTIONS_MAX = 24,
  POINTWISE_INPUTS_MAX = 8,
  POINTWISE_OUTPUTS_MAX = 4,
  POINTWISE_REGISTERS = 6,
};

/* In a real chain every register is an f32 (bools are 0 and 1), in one of integers an i64. */
enum pointwise_real {
#define REAL(name, reads, attrs, expression) REAL_##name,
#define INTEGER(name, reads, expression)
#include "worker/backend/cuda/pointwise/pointwise.def"
#undef REAL
#undef INTEGER
  POINTWISE_REALS,
  REAL_Draw = POINTWISE_REALS, /* 1 where the node's draw for the element is at least x, else 0 */
};

enum pointwise_integer {
#define REAL(name, reads, attrs, expression)
#define INTEGER(name, reads, expression) INTEGER_##name,
#include "worker/backend/cuda/pointwise/pointwise.def"
#undef REAL
#undef INTEGER
  POINTWISE_INTEGERS
};

/* of(instruction, operands): those that have a kernel of their own (straight.cu) for a chain that is nothing
   else. */
#define POINTWISE_STRAIGHT(of)                                                                               \
  of(Add, 2) of(Copy, 1) of(GeluExact, 1) of(GeluExactGrad, 2) of(GeluTanh, 1) of(GeluTanhGrad, 2)           \
      of(HardSwish, 1) of(HardSwishGrad, 2) of(KeepWhere, 2) of(Mul, 2) of(Relu, 1) of(ReluGrad, 2)          \
          of(Sigmoid, 1) of(SigmoidGrad, 2) of(Sub, 2) of(Swish, 1) of(SwishGrad, 2) of(Tanh, 1)             \
              of(TanhGrad, 2)

/* Where an operand comes from: input k, register k, what the instruction before gave, or the instruction. */
enum {
  OPERAND_INPUT = 0,
  OPERAND_REGISTER = OPERAND_INPUT + POINTWISE_INPUTS_MAX,
  OPERAND_LAST = OPERAND_REGISTER + POINTWISE_REGISTERS,
  OPERAND_IMMEDIATE,
  OPERAND_NONE,
};

struct pointwise_instruction {
  uint8_t op;
  uint8_t from[3]; /* OPERAND_... */
  uint8_t to;      /* a register of its own, or POINTWISE_REGISTERS: none */
  uint8_t output;  /* POINTWISE_OUTPUTS_MAX: none */
  uint8_t type;    /* enum cuda_type of an integer result, which wraps */
  int node;        /* for faults and draws */
  float alpha, beta;
  union {
    float real;
    int64_t integer;
  } immediate;
};

/* The place of element i of the chain in an input. */
enum pointwise_place {
  AT_SAME,    /* i */
  AT_ONE,     /* 0 */
  AT_ROW,     /* i % period, with a period of whole lanes: neighbours lie side by side */
  AT_BLOCK,   /* i / divide % period, with blocks of whole lanes: neighbours are one element */
  AT_CYCLE,   /* i / divide % period */
  AT_STRIDED, /* by the strides of all dimensions */
};

struct pointwise_input {
  const void *data;
  enum cuda_type type;
  enum pointwise_place place;
  struct cuda_divisor divide, period;
  int64_t stride[CUDA_RANK_MAX];
};

/* 2 KiB, passed by value: constant memory, which all threads read at once. */
struct pointwise {
  int64_t elems;
  bool is_integer, is_straight; /* cuda_straight_launch may launch it */
  int n_instructions, rank;
  struct cuda_divisor dim[CUDA_RANK_MAX]; /* of the chain's shape, collapsed; the innermost last */
  struct pointwise_input inputs[POINTWISE_INPUTS_MAX];
  struct {
    void *data;
    enum cuda_type type;
  } outputs[POINTWISE_OUTPUTS_MAX];
  struct pointwise_instruction instructions[POINTWISE_INSTRUCTIONS_MAX];
  /* Draws count elements in the order of the dense tensor. */
  const struct cuda_context *context;
  bool is_channels_last;
  struct cuda_divisor channels, plane;
  struct cuda_fault *fault;
};

#ifdef __cplusplus
extern "C" {
#endif
void cuda_pointwise_launch(const struct pointwise *chain, cudaStream_t stream);
/* A chain of one instruction of POINTWISE_STRAIGHT and one output, of less than 2^31 elements and only whole
   lanes, all of F32 or BF16, or U8 that are read; no input is AT_CYCLE or AT_STRIDED. */
void cuda_straight_launch(const struct pointwise *chain, cudaStream_t stream);
#ifdef __cplusplus
}
#endif

#endif
