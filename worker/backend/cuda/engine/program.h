/* A program of the cuda backend, for the files that build and run it. */
#ifndef WEIR_WORKER_BACKEND_CUDA_ENGINE_PROGRAM_H
#define WEIR_WORKER_BACKEND_CUDA_ENGINE_PROGRAM_H

#include "worker/backend/cuda/engine/cuda.h"
#include "worker/backend/replay/split.h"

enum cuda_place {
  PLACE_PLANNED, /* lives from its first to its last step */
  PLACE_KEPT,    /* an initializer or constant, and its conversions: lives as long as the program */
};

/* Device memory: a value in one form, or bytes that no value names. */
struct cuda_buffer {
  enum cuda_place place;
  enum cuda_type type;
  enum cuda_layout layout;
  size_t size_bytes;
  int root;        /* the buffer whose bytes it uses: itself, unless it is another's alias */
  int next;        /* the next buffer of the same value; -1 */
  int value;       /* whose; -1 */
  int first, last; /* of a root: steps between which it lives; first -1: not used */
  bool is_used;    /* of a root: steps of the program use it, or what is made of it */
  bool is_saved;   /* of a root: each context has such bytes of its own */
  void *data;      /* of a root: known when memory is planned; if saved, in context 0 */

  /* Of a KEPT root. What was made from another one, its source; -1: copied from the host. */
  int source;
  int conversions;         /* of a source: the first of program->conversions; -1 */
  const void *filled_from; /* of a source: the host bytes that it has, and the version of them; NULL: none */
  uint64_t filled_version;
  uint64_t filled_in; /* the execution that has last filled it, or found it to be as it needs it */
};

/* Redone whenever its source is filled anew. */
struct cuda_conversion {
  struct cuda_step *step;
  int next; /* another of the same source; -1 */
};

/* What building knows of a node. */
struct cuda_node {
  int kept;    /* the first buffer that it left for its backward node; -1 */
  int done_by; /* the node whose step does its work, too; -1: its own */
  const struct cuda_norm_grad_fusion *grad_fusion; /* of a BatchNormGrad that does that of others; NULL */
};

struct cuda_value {
  int buffer; /* the first of its buffers: as it was produced; -1: none yet */
  int last_node;
  bool is_watched;
  bool is_exact; /* never less than F32 */
};

/* Steps that are enqueued without waiting for the host in between. A step that runs on the host, or calls
   out, has a segment of its own. */
struct cuda_segment {
  int begin, end; /* steps; of one part of an execution */
  bool is_host;
  int *weights; /* initializers and constants that it is the first to read: values */
  int n_weights;
  int n_deliveries;
  cudaEvent_t arrived;     /* on up: its weights */
  cudaEvent_t computed;    /* on compute: its steps */
  cudaEvent_t copied;      /* on down: its deliveries */
  cudaGraphExec_t *graphs; /* [n_contexts] */
  bool is_warm;            /* it has been executed */
  bool is_uncapturable;
  int in; /* the context whose bytes its steps have as their arguments */
};

/* What comes from a neighbour of a stage, or goes there: the arguments of a step. */
struct cuda_message {
  enum backend_part part;
  struct backend_message of;
  void *bytes;         /* of one that is sent: pinned, pieces[i] are in it */
  const void **pieces; /* [n] */
};

/* Pinned host memory that copies read and write while the host goes on. */
struct cuda_pinned {
  struct cuda_context context;
  struct cuda_fault faults[]; /* [n_segments + 1]: as each segment's deliveries found it; at the end */
};

/* Small things in device memory. */
struct cuda_words {
  struct cuda_context context;
  struct cuda_fault fault __attribute__((aligned(32)));
};

struct backend_program {
  struct cuda_program_view view;
  const struct graph *graph;
  struct arena memory; /* owns what building makes */
  struct err err;      /* the first error of building */
  struct cuda_value *values;
  struct cuda_node *nodes;
  struct cuda_buffer *buffers;
  int n_buffers, buffers_capacity;
  struct cuda_step **steps;
  int n_steps, steps_capacity;
  struct cuda_conversion *conversions;
  int n_conversions, conversions_capacity;
  struct cuda_segment *segments;
  int n_segments, segments_capacity;
  struct cuda_chain *chain;         /* open while nodes are prepared */
  struct attention_plan *attention; /* cuDNN's, of nodes that are done by it */
  const int *watched;
  int n_watched;
  int first_backward; /* index of the first node behind the forward pass */
  int n_forward;      /* the steps before the backward part */
  int n_forward_segments;
  struct cuda_segment resumed; /* weights alone: that the backward part reads, and the forward part first */
  struct cuda_message *received[BACKEND_BACKWARD + 1], *sent[BACKEND_BACKWARD + 1]; /* by part; NULL */

  uint64_t *in_flight; /* [n_contexts] the execution between its parts there; 0: none */
  int n_contexts;      /* at least 1 */
  uint64_t executions; /* so many have begun */
  uint64_t execution;  /* the one that runs */

  cudaStream_t compute, up, down;
  struct cuda_words *words; /* device memory */
  void *block;              /* device memory: all buffers; what is there once, then each context's arena */
  size_t block_bytes;
  struct split split; /* of the block */
  struct backend_replayed replayed;
  struct memory_span *spans; /* [n_spans] of the block */
  int *owners, n_spans;      /* [n_spans] whose bytes they are: a root; -1: all weights */
  struct cuda_pinned *pinned;
  int *not_finite;                /* [n_watched] pinned: what the device found of values that it placed */
  void **landings;                /* [n_watched] pinned: of values that are not placed; NULL: none yet */
  struct backend_piece *pieces;   /* [CUDA_PIECES_MAX] */
  void *staging;                  /* pinned: tensors of a host step */
  size_t staging_bytes;           /* the greatest need */
  struct cuda_timeline *timeline; /* NULL while nobody traces */
  bool has_told_capture;          /* a graph that was not captured is logged once */
};

enum {
  CUDA_ALIGN = 256,
  CUDA_PIECES_MAX = 16384,
  /* The bytes of a delivery may be overwritten this many segments later: its copy has been waited for by
     then. */
  CUDA_SEGMENTS_BEHIND = 2,
};

/* types.c */
enum cuda_type cuda_type_of_dtype(enum dtype dtype);
size_t cuda_type_size(enum cuda_type type);
/* The bytes of a tensor of that shape lie the same in both. */
bool cuda_layout_is_same(const struct shape *shape, enum cuda_layout a, enum cuda_layout b);
bool cuda_layout_suits(const struct shape *shape, enum cuda_layout layout);
/* Which values are never less than F32; before any node is prepared. */
void cuda_values_survey(struct backend_program *program);

/* cuda.c: whether chains compute nodes of its op. */
bool cuda_is_chained(const struct node *node);

/* build.c */
struct cuda_buffer *cuda_root(const struct backend_program *program, int buffer);
/* The KEPT source whose bytes the buffer has or is made from; -1: a buffer of another kind. */
int cuda_source_of(const struct backend_program *program, int buffer);
/* Another root like this one, that no value names. Returns it. */
int cuda_buffer_again(struct backend_program *program, int root);
/* Adds the bytes of a buffer as an argument. */
void cuda_use(struct backend_program *program, struct cuda_step *step, int buffer, bool is_written);
/* What a step holds; the arena has the step itself. */
void cuda_step_release(struct cuda_step *step);
/* A delivery of the value, for the caller's watch. */
void cuda_deliver(struct backend_program *program, int value, int watch);

/* convert.c: from argument 0 to argument 1 of the step. */
int cuda_convert_enqueue(struct backend_program *program, const struct cuda_step *step, cudaStream_t stream,
                         struct err *err);

/* host.c: a node by its op's reference kernel. */
void cuda_reference(struct backend_program *program, const struct node *node);
int cuda_host_run(struct backend_program *program, const struct cuda_step *step,
                  const struct backend_run *run, struct err *err);

/* segments.c: cuts the steps, anew if they are cut, and finds what is resumed; memory is not yet planned. */
void cuda_segments_cut(struct backend_program *program);
/* The events. */
int cuda_segments_open(struct backend_program *program, struct err *err);
void cuda_segments_close(struct backend_program *program);

/* lives.c: which roots the steps use. */
void cuda_uses_find(struct backend_program *program);
/* The lives of all buffers by the steps and the segments, and which results take the bytes of what their step
   reads. */
void cuda_lives_settle(struct backend_program *program);

/* The last step while which the copy of a delivery may still be under way. All copies of a part's deliveries
   are done before the next part's steps run. */
int cuda_delivery_until(const struct backend_program *program, int step);

/* outline.c: the program as planners see it. Uses are the arguments that are there. The steps are as they
   were then, until cuda_outline_fini. */
struct cuda_outline {
  struct replay_program plain;
  struct replay_step *steps;
  struct replay_use *uses; /* of all steps */
  struct replay_root *roots;
  int *owners; /* [n_owners] the root's buffer; -1, of the first: all weights, side by side */
  int n_owners, owners_capacity;
};
void cuda_outline_init(struct cuda_outline *outline, const struct backend_program *program);
void cuda_outline_fini(struct cuda_outline *outline);
/* Another root of the size and kind of this one: a new buffer. */
void cuda_outline_add_root(struct cuda_outline *outline, struct backend_program *program, int origin);
/* Replaces the roots of the arguments that are there, in order. */
void cuda_step_set_roots(struct backend_program *program, const struct cuda_outline *outline,
                         struct cuda_step *step, const int *roots);

/* stage.c: once the steps of the whole graph are known. is_valid[n_nodes + 1] as find_places. */
void cuda_find_places(const struct backend_program *program, bool *is_valid);
/* Makes the program the stage that the options say; nothing with no cuts. Errors: INVALID for a cut that is
   not valid. */
int cuda_carve(struct backend_program *program, const struct backend_options *options, struct err *err);

/* message.c: a step that receives or sends. */
int cuda_message_run(struct backend_program *program, const struct cuda_step *step,
                     const struct backend_run *run, struct err *err);
/* The pinned memory of what is sent. */
int cuda_messages_open(struct backend_program *program, struct err *err);
void cuda_messages_close(struct backend_program *program);

/* replay.c: which steps run again, and when all bytes are in use: sets spans and the block's size, adds steps
   and buffers, and cuts anew. Errors: NO_MEMORY where nothing fits into what the program may take. */
int cuda_replay_settle(struct backend_program *program, struct err *err);

/* memory.c: allocates all memory by the spans, and gives every argument its address. */
int cuda_memory_open(struct backend_program *program, struct err *err);
void cuda_memory_close(struct backend_program *program);
/* Where the root's bytes are in a context. */
void *cuda_root_data(const struct backend_program *program, const struct cuda_buffer *root, int in);
/* Points the step's arguments at the bytes of a context. */
void cuda_step_bind(const struct backend_program *program, struct cuda_step *step, int in);
/* struct backend_bytes. */
void cuda_memory_bytes(const struct backend_program *program, struct backend_bytes *out);
size_t cuda_allocated_bytes(size_t size_bytes); /* of that many in the block */
/* Whether a buffer is copied from outside and kept, not made from another. */
bool cuda_is_weight(const struct backend_program *program, int buffer);
/* Weights lie side by side in the graph's order: parameters, which lie so where they come from, go up in one
   copy where alignment leaves no gap. Returns their bytes. at: where they go; NULL: that is not known yet. */
size_t cuda_weights_lay_out(const struct backend_program *program, void *at);
/* What the device has free for a program. */
int cuda_memory_available(size_t *out, struct err *err);
/* One block of device memory. Errors: NO_MEMORY with what is needed and what is free. */
int cuda_memory_new(size_t size_bytes, const char *what, void **out, struct err *err);
/* The same, but for what the device keeps for kernels and graphs. */
int cuda_memory_new_leaving_room(size_t size_bytes, const char *what, void **out, struct err *err);

/* upload.c: copies to the device, on `up`. What a part begins with, before its segment `first`. */
int cuda_upload_begin(struct backend_program *program, int first, const struct backend_run *run,
                      struct err *err);
/* Copies the weights that the backward part reads and its forward part had, as far as other executions have
   had others since. */
int cuda_upload_resumed(struct backend_program *program, const struct backend_run *run, struct err *err);
/* Copies the weights that the segment is the first to read, as far as they changed: waits for them on the
   host, and makes compute wait for the copies. Errors: CANCELLED. */
int cuda_upload_weights(struct backend_program *program, struct cuda_segment *segment, bool is_first,
                        const struct backend_run *run, struct err *err);

/* delivery.c: copies from the device, on `down`. */
int cuda_delivery_start(struct backend_program *program, struct cuda_segment *segment,
                        const struct backend_run *run, struct err *err);
/* How the copies of the segment's values stand: cudaErrorNotReady while they are under way, which it waits
   for if is_waiting. */
cudaError_t cuda_delivery_status(const struct cuda_segment *segment, const struct backend_run *run,
                                 bool is_waiting);
/* Hands over the segment's values, whose copies are done. */
int cuda_delivery_finish(struct backend_program *program, struct cuda_segment *segment,
                         const struct backend_run *run, struct err *err);

/* fault.c: what a kernel found wrong with its data, as the reference kernel would say it. */
int cuda_fault_error(const struct backend_program *program, const struct cuda_fault *fault, struct err *err);

/* capture.c: the steps of a segment that does not run on the host, in its context. */
int cuda_segment_enqueue(struct backend_program *program, struct cuda_segment *segment, struct err *err);

/* timeline.c: nothing where nobody traces. Each mark is followed by its end. */
enum cuda_mark { CUDA_MARK_UP, CUDA_MARK_COMPUTE = 2, CUDA_MARK_DOWN = 4, CUDA_MARKS = 6 };
void cuda_timeline_open(struct backend_program *program);
void cuda_timeline_close(struct backend_program *program);
void cuda_timeline_begin(struct backend_program *program);
void cuda_timeline_mark(struct backend_program *program, const struct cuda_segment *segment,
                        enum cuda_mark mark);
void cuda_timeline_end(struct backend_program *program, const struct backend_run *run);

/* run.c: waits until compute is done. Errors: what a kernel found. */
int cuda_compute_finish(struct backend_program *program, struct err *err);
int cuda_run(struct backend_program *program, const struct backend_run *run, struct err *err);

/* device.c: which devices there are. */
int cuda_device_use(int device, struct err *err);
/* For calls that need some device, no matter which. A thread that uses none gets one that the process uses
   already: CUDA's own choice, the first device, might be another process's, and would lose memory to us.
   False: the process uses none yet. */
bool cuda_device_use_any(void);
/* Lets `device`, the thread's, read the memory of the device that bytes are on, where the machine can: copies
   between the two then do not pass through the host. Once for each pair; a failure costs speed only. */
void cuda_device_reach(int device, const void *bytes);
const char *cuda_fingerprint(void);

#endif
