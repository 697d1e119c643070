/* The cuda backend, within itself. A program is a list of steps (launches of our kernels, calls of cuBLASLt
   and cuDNN, reference kernels on the host) over buffers in one block of device memory; a value may have
   several buffers, one for each form (type and layout) in which somebody reads it.

   Building: nodes are walked in order. A kernel asks for its inputs in the forms that it wants (which appends
   conversions where needed), for its outputs, sets step->enqueue and ends its step. Nothing is allocated
   until all steps are known; then the lives of all buffers are planned into one block, and every argument's
   address is known for good. So the steps between two cuts (gradients leave, weights come, a step runs on the
   host) are captured once as a CUDA graph, and replayed.

   Running: one host thread per program. Three streams: `compute`; `up` copies inputs and weights to the
   device, `down` gradients from it. compute waits for up by events, down for compute.

   Errors while building are kept in the program (the first one counts) and looked at after every node, so
   that kernels need not pass them on. This is C; device code is in the .cu files, behind launchers. */
#ifndef WEIR_WORKER_BACKEND_CUDA_ENGINE_CUDA_H
#define WEIR_WORKER_BACKEND_CUDA_ENGINE_CUDA_H

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include "model/graph/op.h"
#include "worker/backend/backend.h"
#include "worker/backend/cuda/engine/tensor.h"

struct cuda_arg {
  int buffer;                /* -1: absent */
  bool is_written;           /* the step writes it, and it alone: scratch, too */
  uint64_t over;             /* of one that is written: bits of the arguments whose bytes it may take */
  struct cuda_tensor tensor; /* data is set when memory is planned */
};

/* What the files that build and run programs tell apart; kernels make DEVICE steps. */
enum cuda_step_kind {
  CUDA_STEP_DEVICE,
  CUDA_STEP_DELIVERY, /* argument 0 is a value that the caller reads */
  CUDA_STEP_HOST,     /* a reference kernel on the host */
  CUDA_STEP_RECEIVE,  /* of a stage: its arguments come from a neighbour; on the host, as is SEND */
  CUDA_STEP_SEND,     /* of a stage: they go to one */
};

struct cuda_step {
  /* Enqueues the step's work on the stream, without waiting for it; args[].tensor are set. Called while a
     graph is captured, and where none is: so it must not allocate, copy to or from the host, or synchronise.
   */
  int (*enqueue)(struct backend_program *program, const struct cuda_step *step, cudaStream_t stream,
                 struct err *err);
  const struct node *node; /* for whom; NULL for what belongs to none */
  enum cuda_step_kind kind;
  bool is_conversion;    /* of a value from one form to another, for all who read it */
  int watch;             /* of a DELIVERY: index in watched */
  bool is_placed;        /* of a DELIVERY: in this execution it went where the caller wanted it */
  struct cuda_arg *args; /* in the order in which they were added */
  int n_args, args_capacity;
  void *details; /* the kernel's own, in the program's arena */
  /* Called when the program is released, for what details holds outside the arena; NULL. */
  void (*release)(struct cuda_step *step);
};

/* A row of kernel.def: how nodes of one op become a step. */
struct cuda_kernel {
  const char *op;
  /* False, with nothing added to the program, when it does not take this node: it runs on the host by its
     reference kernel. All tensors of the node but `settings` have elements. */
  bool (*prepare)(struct backend_program *program, const struct node *node);
  /* prepare may leave the node in the program's open chain instead of ending a step. */
  bool is_chained;
  /* The inputs from this one on are read when the program is prepared: an empty one means something. 0: none
     are. */
  int settings;
};

/* Elementwise nodes that follow each other become one step, which is appended when the chain is flushed. Who
   builds the program does so before every node whose kernel is not chained (or that has none), and at the
   end: nobody else meets a value that is still in a chain. */
void cuda_chain_flush(struct backend_program *program);

/* What kernels may read of a program. The rest is program.h's, for the files that build and run it. */
struct cuda_program_view {
  const struct graph *graph;
  struct backend_options options;
  struct arena *memory; /* for details: lives as long as the program */
  cublasLtHandle_t blas;
  cudnnHandle_t dnn;            /* its stream is the one that enqueue gets */
  struct cuda_context *context; /* device memory */
  struct cuda_fault *fault;     /* device memory */
};

const struct cuda_program_view *cuda_view(const struct backend_program *program);

/* The type in which the program keeps a value that the graph calls f32: BF16 for activations and their
   gradients when train.precision is bf16; F32 for what the caller reads, vectors and scalars (biases, means,
   losses), weights and their gradients. Integers and bools as they are. */
enum cuda_type cuda_type_of(const struct backend_program *program, int value);
/* The layout in which the value was produced (inputs and initializers: DENSE). */
enum cuda_layout cuda_layout_of(const struct backend_program *program, int value);

/* A step that is not yet in the program: conversions of its inputs come before it. */
struct cuda_step *cuda_step_new(struct backend_program *program, const struct node *node);

/* Each adds one argument and returns its index in step->args. value -1: an absent argument. Conversions of
   weights and constants are kept, and redone when a new version comes. */
int cuda_read(struct backend_program *program, struct cuda_step *step, int value, enum cuda_type type,
              enum cuda_layout layout);
/* ANY type: cuda_type_of. */
int cuda_write(struct backend_program *program, struct cuda_step *step, int value, enum cuda_type type,
               enum cuda_layout layout);
/* Argument `to`, which the step writes, may take the bytes of argument `arg`, one of its first 64, which it
   reads at the same places: it does if nothing reads them after this step. */
void cuda_allow_over(struct cuda_step *step, int to, int arg);
/* As cuda_write, in the type and the layout of argument `arg`, whose bytes it may take. */
int cuda_write_over(struct backend_program *program, struct cuda_step *step, int value, int arg);
/* Bytes that only this step needs (a workspace). */
int cuda_scratch(struct backend_program *program, struct cuda_step *step, size_t size_bytes);
/* Bytes that this step leaves for a later one of another node, such as a mask; returns its buffer. */
int cuda_keep(struct backend_program *program, struct cuda_step *step, size_t size_bytes);
/* What a step of node `forward` kept (the first), as an argument; -1 with none added if it kept nothing. */
int cuda_read_kept(struct backend_program *program, struct cuda_step *step, int forward);

/* The step of node `by` also does the work of this node (an index). Building passes the node over if it was
   not prepared yet. */
void cuda_pass_over(struct backend_program *program, const struct node *by, int node);

/* Appends the step; enqueue is set. */
void cuda_step_end(struct backend_program *program, struct cuda_step *step);
/* Makes `value` another name of the bytes of `source`, which has as many elements (dense when shapes differ).
 */
void cuda_alias(struct backend_program *program, int value, int source);

/* While building: keeps the first error of the CUDA runtime. True on success. */
bool cuda_ok(struct backend_program *program, const struct node *node, cudaError_t status, const char *what);
/* In enqueue: set err and return its code, 0 on success. Out of device memory is NO_MEMORY, a device that is
   gone LOST_DEVICE (retryable nowhere: the worker leaves). */
int cuda_check(const struct node *node, cudaError_t status, const char *what, struct err *err);
int cuda_blas_check(const struct node *node, cublasStatus_t status, const char *what, struct err *err);
int cuda_dnn_check(const struct node *node, cudnnStatus_t status, const char *what, struct err *err);

#endif
