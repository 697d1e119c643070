/* The cpu backend, within itself. A program is a list of steps (oneDNN primitives, loops of our own,
   reference kernels) over buffers; a value may have several buffers, one for each layout in which somebody
   reads it.

   Building: nodes are walked in order. A kernel describes its primitive, asks for its inputs in the layouts
   that the primitive wants (which appends reorders where needed) and ends its step. Nothing is allocated
   until all steps are known. Then a stage of a pipeline keeps what is its own of them, some are set to run
   again, and the lives of all buffers are planned into one block of memory, in which what lives from the
   forward part to the backward part is there once for each context.

   Errors while building are kept in the program (the first one counts) and looked at after every node, so
   that kernels need not pass them on. One thread at a time builds or runs a program. */
#ifndef WEIR_WORKER_BACKEND_CPU_CPU_H
#define WEIR_WORKER_BACKEND_CPU_CPU_H

#include <oneapi/dnnl/dnnl.h>

#include "worker/backend/backend.h"
#include "worker/backend/fused_activation.h"

enum cpu_place {
  PLACE_PLANNED, /* lives from its first to its last step */
  PLACE_KEPT,    /* a reordered initializer or constant: lives as long as the program */
  PLACE_HOST,    /* an input, initializer or constant where the caller has it: only read */
};

/* Bytes: a value in one layout, or a workspace. */
struct cpu_buffer {
  enum cpu_place place;
  dnnl_memory_desc_t layout; /* ndims 0: dense bytes that oneDNN does not know (integers, empty tensors) */
  size_t size_bytes;
  int root;                /* the buffer whose bytes it uses: itself, unless it is another's alias */
  int next;                /* the next buffer of the same value; -1 */
  int value;               /* of a HOST root: whose bytes these are */
  int first, last;         /* of a root: steps between which it lives; first -1: not used yet */
  int last_node;           /* of a root: the last node that reads a value in it */
  bool is_saved;           /* of a root: each context has such bytes of its own */
  void *data;              /* of a root: known when a run reaches its first step; if saved, in context 0 */
  const void *filled_from; /* of a KEPT buffer: what it was made from, and the version of that */
  uint64_t filled_version;
  uint64_t filled_in; /* the execution that has last made it or found it to be as it needs it */
};

struct cpu_arg {
  int id;                    /* DNNL_ARG_...; 0: not handed to the primitive */
  int buffer;                /* -1: absent */
  bool is_written;           /* else it is only read */
  dnnl_memory_desc_t layout; /* how the step sees the bytes */
  dnnl_memory_t memory;
  void *data; /* set when the step runs */
};

struct cpu_step {
  /* Does the step's work; args[].data and memories are set. */
  int (*run)(struct backend_program *program, struct cpu_step *step, const struct backend_run *run,
             struct err *err);
  const struct node *node;    /* for whom; NULL for what belongs to none */
  int owner;                  /* the node whose stage runs it; -1: every stage that reads what it writes */
  dnnl_primitive_t primitive; /* or NULL */
  struct cpu_arg *args;       /* in the order in which they were added */
  int n_args, args_capacity;
  dnnl_exec_arg_t *exec; /* those with an id */
  int n_exec;
  bool reads_host;
  bool uses_saved; /* some of its bytes are a context's */
  bool is_resumed; /* of the forward part: the backward part begins with it, too */
  int in;          /* the context whose bytes its arguments are, if it uses some */
  bool is_replay;  /* another step again, whose primitive and details it shares */
  int subject;     /* of a fetch: the value; of a delivery: the index in watched */
  void *details;   /* the kernel's own, in the program's arena */
};

/* An activation that a batch norm takes, or whose gradient the norm's gradient takes. */
struct cpu_norm_fusion {
  struct fused_activation activation;
  int value; /* what is written, or in place of dy read */
};

/* What building knows of a node. */
struct cpu_node {
  dnnl_primitive_desc_t forward; /* for the backward node's hint; NULL */
  int workspace;                 /* buffer that the forward step leaves for the backward one; -1 */
  bool has_gradient;             /* backward nodes belong to it */
  bool is_passed_over;           /* another node does its work, too */
  struct cpu_norm_fusion fusion; /* of kind NONE: none */
};

struct cpu_value {
  int buffer;    /* the first of its buffers: as it was produced; -1: none yet */
  int last_node; /* that reads it; -1 */
  int n_reads;   /* inputs of nodes that it is */
  bool is_watched;
  bool is_exact; /* makes a watched value: never kept in bf16 */
};

/* What comes from a neighbour of a stage, or goes there. */
struct cpu_message {
  enum backend_part part;
  struct backend_message of;
  const void **bytes; /* [n_contexts * n] where the pieces are: each context has received its own */
};

/* An execution that may be between its two parts. */
struct cpu_context {
  uint64_t execution; /* its number; 0: nothing is in flight */
};

struct backend_program {
  const struct graph *graph;
  struct arena memory;  /* owns what building makes */
  struct err err;       /* the first error of building */
  dnnl_engine_t engine; /* the process's */
  dnnl_stream_t stream;
  dnnl_primitive_attr_t attr; /* scratchpads are ours */
  bool is_bf16;               /* products have bf16 factors, and activations are bf16 */
  bool is_fast;               /* precision fp32-fast */
  struct cpu_value *values;
  struct cpu_node *nodes;
  int first_backward; /* index of the first node behind the forward pass */
  struct cpu_buffer *buffers;
  int n_buffers, buffers_capacity;
  struct cpu_step **steps;
  int n_steps, steps_capacity;
  int n_forward;                /* the steps before the backward part */
  dnnl_primitive_desc_t *descs; /* released when building ends */
  int n_descs, descs_capacity;
  struct cpu_product *products; /* of steps that loop over some; NULL */
  const struct cpu_message *received[BACKEND_BACKWARD + 1], *sent[BACKEND_BACKWARD + 1]; /* by part; NULL */
  struct cpu_context *contexts;
  int n_contexts;      /* at least 1 */
  uint64_t executions; /* so many have begun */
  uint64_t execution;  /* the one that runs */
  void *block;         /* all PLANNED and KEPT bytes: what is there once, then what each context has */
  size_t block_bytes;
  size_t saved_bytes; /* of each context, where there are several */
  struct backend_replayed replayed;
};

/* A row of kernel.def: how nodes of one op become a step. */
struct cpu_kernel {
  const char *op;
  /* False, with nothing added to the program, when it does not take this node: the reference kernel runs. All
     tensors of the node have elements. */
  bool (*prepare)(struct backend_program *program, const struct node *node);
};

/* Whether kernels may be asked to take the node: oneDNN is given f32 tensors that are not empty. */
bool cpu_suits_kernels(const struct graph *graph, const struct node *node);

/* layout.c: layouts. Two layouts are the same when every element, counted in row-major order, lies at the
   same offset, whatever the dimensions are called; a layout is dense when it is the same as row-major. */
bool layout_is_same(const dnnl_memory_desc_t *a, const dnnl_memory_desc_t *b);
bool layout_is_dense(const dnnl_memory_desc_t *layout);
dnnl_memory_desc_t layout_typed(dnnl_memory_desc_t layout, dnnl_data_type_t type); /* of other elements */
dnnl_memory_desc_t layout_dense(int ndims, const int64_t *dims);                   /* f32, row-major */
dnnl_memory_desc_t layout_any(int ndims, const int64_t *dims); /* f32, for the primitive to choose */
dnnl_memory_desc_t layout_of_shape(const struct shape *shape); /* dense; a scalar becomes [1] */
/* dims[4] are samples, channels and an image; channels are in blocks of 16. */
dnnl_memory_desc_t layout_blocked(const dnnl_dims_t dims, dnnl_data_type_t type);
/* The layout of other dimensions with channels in the same blocks. False if `like` has no such blocks or the
   channels do not fill them. */
bool layout_blocked_like(const dnnl_memory_desc_t *like, int ndims, const int64_t *dims,
                         dnnl_memory_desc_t *layout);

/* types.c: in bf16, activations are kept in bf16; weights, their gradients and all else that is watched, and
   what has fewer than two dimensions, are f32. A kernel that knows f32 alone reads and writes f32: reorders
   convert. */

/* Errors: UNSUPPORTED with what this CPU has, where programs compute in f32 instead. */
int cpu_check_precision(enum precision precision, struct err *err);
/* Once it is known what is watched: which values are exact. */
void cpu_types_survey(struct backend_program *program);
/* What a kernel that can should write a result in: f32 or bf16. */
dnnl_data_type_t cpu_type(const struct backend_program *program, int value);

/* norm_fusion.c: which activations batch norms compute along with their results, and which gradients of
   activations along with their own. Alone, each would be a pass over memory. Decides for all nodes before any
   is prepared, once the types of values are known; nodes that get a fusion are such that their kernels take.
 */
void cpu_norms_survey(struct backend_program *program);

/* build.c: for kernels. `value` is a value's index. */

/* The layout in which a value was produced, with elements in f32, whatever they are in; its dimensions need
   not be the value's shape. */
dnnl_memory_desc_t cpu_layout(struct backend_program *program, int value);
/* What a real value was produced in: f32 or bf16. */
dnnl_data_type_t cpu_produced_type(struct backend_program *program, int value);
/* That layout, if it has these dimensions; else a dense one with them. In f32. */
dnnl_memory_desc_t cpu_layout_as(struct backend_program *program, int value, int ndims, const int64_t *dims);

/* A descriptor that lives until building ends. attr NULL: the program's. NULL when oneDNN has no such
   primitive, or on an error, which the program keeps. */
dnnl_primitive_desc_t cpu_describe(struct backend_program *program, const void *op_desc,
                                   const_dnnl_primitive_attr_t attr, const_dnnl_primitive_desc_t hint);
/* What oneDNN has found for a descriptor. Its reference loops are many times slower than ours. NULL ranks
   with them. */
enum cpu_rank { CPU_RANK_REFERENCE, CPU_RANK_GEMM, CPU_RANK_DIRECT };
enum cpu_rank cpu_rank(const_dnnl_primitive_desc_t desc);
/* NULL also where oneDNN has nothing but its reference loops. */
dnnl_primitive_desc_t cpu_describe_fast(struct backend_program *program, const void *op_desc,
                                        const_dnnl_primitive_desc_t hint);
const dnnl_memory_desc_t *cpu_query(dnnl_primitive_desc_t desc, dnnl_query_t what, int index);

/* The buffer that has the value in that layout (NULL: dense, in f32), behind a reorder if need be. */
int cpu_buffer_in(struct backend_program *program, const struct node *node, int value,
                  const dnnl_memory_desc_t *layout);
int cpu_buffer_dense(struct backend_program *program, const struct node *node, int value,
                     dnnl_data_type_t type); /* f32 or bf16 */

/* A step that is not yet in the program: inputs asked for meanwhile come before it. */
struct cpu_step *cpu_step_new(struct backend_program *program, const struct node *node);
/* Adds an existing buffer as an argument that is only read. layout: how the step sees its bytes; NULL: as
 * they were written. */
void cpu_use(struct backend_program *program, struct cpu_step *step, int id, int buffer,
             const dnnl_memory_desc_t *layout);
/* Each adds one argument and returns its buffer. layout NULL: dense, in f32, as the value's shape. */
int cpu_read(struct backend_program *program, struct cpu_step *step, int id, int value,
             const dnnl_memory_desc_t *layout);
/* Dense, as the value's shape, in that type. */
int cpu_read_dense(struct backend_program *program, struct cpu_step *step, int value, dnnl_data_type_t type);
int cpu_write_dense(struct backend_program *program, struct cpu_step *step, int value, dnnl_data_type_t type);
/* f32[elems] or bf16[elems] that only this step needs. */
int cpu_scratch(struct backend_program *program, struct cpu_step *step, int64_t elems, dnnl_data_type_t type);
/* value -1: bytes that only this step needs. */
int cpu_write(struct backend_program *program, struct cpu_step *step, int id, int value,
              const dnnl_memory_desc_t *layout);
/* As cpu_write of the node's first output: into the bytes of `buffer`, an input of the step of the same size,
   if nothing reads them after this node and its elements are of the same type; else into bytes of its own. */
int cpu_write_over(struct backend_program *program, struct cpu_step *step, int id,
                   const dnnl_memory_desc_t *layout, int buffer);
/* The same, dense. */
int cpu_write_over_dense(struct backend_program *program, struct cpu_step *step, dnnl_data_type_t type,
                         int buffer);
/* Appends the step. desc NULL: it has no primitive, and the caller has set step->run. */
void cpu_step_end(struct backend_program *program, struct cpu_step *step, dnnl_primitive_desc_t desc);
/* Makes `value` another name of the bytes of `source` (its produced layout, or dense when shapes differ). */
void cpu_alias(struct backend_program *program, int value, int source);

/* Appends a step that has all its arguments, and notes when their bytes are in use. */
void cpu_step_append(struct backend_program *program, struct cpu_step *step);
void cpu_step_release(struct cpu_step *step); /* what it holds; the arena has the step itself */
/* Replaces the roots of the arguments that are there, in order. */
void cpu_step_set_roots(struct backend_program *program, struct cpu_step *step, const int *roots);
/* A root of the size and kind of another one. Returns its buffer. */
int cpu_root_add(struct backend_program *program, int origin);

/* Executes the step's primitive: what step->run is unless a kernel sets its own. */
int cpu_execute(struct backend_program *program, struct cpu_step *step, const struct backend_run *run,
                struct err *err);
const char *cpu_isa_name(void); /* the instruction set that oneDNN uses */
/* Keeps the error of a oneDNN call. */
void cpu_fail(struct backend_program *program, const struct node *node, dnnl_status_t status,
              const char *what);

/* outline.c: the program as planners see it. Roots have the numbers of buffers, uses are the arguments that
   are there. Released by cpu_outline_fini. */
struct cpu_outline {
  struct replay_program plain;
  struct replay_step *steps;
  struct replay_root *roots;
};
void cpu_outline_init(struct cpu_outline *outline, const struct backend_program *program);
void cpu_outline_fini(struct cpu_outline *outline);

/* stage.c: once the steps of the whole graph are known. is_valid[n_nodes + 1] as find_places. */
void cpu_find_places(const struct backend_program *program, bool *is_valid);
/* Makes the program the stage that the options say; nothing with no cuts. Errors: INVALID for a cut that is
   not valid. */
int cpu_carve(struct backend_program *program, const struct backend_options *options, struct err *err);

/* replays.c: once all steps are known, before memory is planned: has forward steps run again as the options
   say. Errors: NO_MEMORY. */
int cpu_replay(struct backend_program *program, const struct backend_options *options, struct err *err);

/* memory.c: the bytes that all steps need. */
size_t cpu_memory_measure(const struct backend_program *program);
/* Allocates what all steps need, and shows them where it is. From here on the program runs. Errors:
   NO_MEMORY with the bytes needed. */
int cpu_memory_open(struct backend_program *program, struct err *err);
/* Shows a step its bytes that are elsewhere than when it last ran: the caller's, and those of context `in`.
 */
int cpu_memory_locate(struct backend_program *program, struct cpu_step *step, int in, struct err *err);
/* struct backend_bytes. */
void cpu_memory_bytes(const struct backend_program *program, struct backend_bytes *out);

/* reference.c: the node by a kernel of plain tensors, which are dense, or all in the one layout that suits a
   pointwise op (OP_POINTWISE); and by its op's reference kernel. */
void cpu_call(struct backend_program *program, const struct node *node,
              int (*kernel)(const struct op_call *call, struct err *err));
void cpu_reference(struct backend_program *program, const struct node *node);

#endif
