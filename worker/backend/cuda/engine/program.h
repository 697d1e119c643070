/* A program of the cuda backend, for the files that build and run it. */
#ifndef WEIR_WORKER_BACKEND_CUDA_ENGINE_PROGRAM_H
#define WEIR_WORKER_BACKEND_CUDA_ENGINE_PROGRAM_H

#include "model/graph/memory_plan.h"
#include "worker/backend/cuda/engine/cuda.h"

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
  void *data;      /* of a root: known when memory is planned */

  /* Of a KEPT root. What was made from another one, its source; -1: copied from the host. */
  int source;
  int conversions;         /* of a source: the first of program->conversions; -1 */
  const void *filled_from; /* of a source: the host bytes that it has, and the version of them; NULL: none */
  uint64_t filled_version;
};

/* Redone whenever its source is filled anew. */
struct cuda_conversion {
  struct cuda_step *step;
  int next; /* another of the same source; -1 */
};

/* What building knows of a node. */
struct cuda_node {
  int kept;            /* the first buffer that it left for its backward node; -1 */
  bool is_passed_over; /* the step of another node does its work */
  const struct cuda_norm_grad_fusion *grad_fusion; /* of a BatchNormGrad that does that of others; NULL */
};

struct cuda_value {
  int buffer; /* the first of its buffers: as it was produced; -1: none yet */
  int last_node;
  bool is_watched;
  bool is_exact; /* never less than F32 */
};

/* Steps that are enqueued without waiting for the host in between. A host step has a segment of its own. */
struct cuda_segment {
  int begin, end; /* steps */
  bool is_host;
  int *weights; /* initializers and constants that it is the first to read: values */
  int n_weights;
  int n_deliveries;
  cudaEvent_t arrived;  /* on up: its weights */
  cudaEvent_t computed; /* on compute: its steps */
  cudaEvent_t copied;   /* on down: its deliveries */
  cudaGraphExec_t graph;
  bool is_warm; /* it has been executed */
  bool is_uncapturable;
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

  cudaStream_t compute, up, down;
  struct cuda_words *words; /* device memory */
  void *block;              /* device memory: all buffers */
  size_t block_bytes;
  struct backend_replayed replayed;
  struct memory_span *spans; /* [n_spans] of the block */
  int *owners, n_spans;      /* [n_spans] whose bytes they are: a root; -1: all weights */
  struct cuda_pinned *pinned;
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
/* A delivery of the value, for the caller's watch. */
void cuda_deliver(struct backend_program *program, int value, int watch);

/* convert.c: from argument 0 to argument 1 of the step. */
int cuda_convert_enqueue(struct backend_program *program, const struct cuda_step *step, cudaStream_t stream,
                         struct err *err);

/* host.c: a node by its op's reference kernel. */
void cuda_reference(struct backend_program *program, const struct node *node);
int cuda_host_run(struct backend_program *program, const struct cuda_step *step,
                  const struct backend_run *run, struct err *err);

/* segments.c: cuts the steps, anew if they are cut; memory is not yet planned. */
void cuda_segments_cut(struct backend_program *program);
/* The events. */
int cuda_segments_open(struct backend_program *program, struct err *err);
void cuda_segments_close(struct backend_program *program);

/* lives.c: the lives of all buffers by the steps and the segments, and which results take the bytes of what
   their step reads. */
void cuda_lives_settle(struct backend_program *program);

/* The last step while which the copy of a delivery may still be under way. */
int cuda_delivery_until(const struct backend_program *program, int step);

/* replay.c: which steps run again, and when all bytes are in use: sets spans, adds steps and buffers, and
   cuts anew. Errors: NO_MEMORY where nothing fits into what the program may take. */
int cuda_replay_settle(struct backend_program *program, struct err *err);

/* memory.c: allocates all memory by the spans, and gives every argument its address. */
int cuda_memory_open(struct backend_program *program, struct err *err);
void cuda_memory_close(struct backend_program *program);
size_t cuda_allocated_bytes(size_t size_bytes); /* of that many in the block */
/* Whether a buffer is copied from outside and kept, not made from another. */
bool cuda_is_weight(const struct backend_program *program, int buffer);
/* Weights lie side by side in the graph's order: parameters, which lie so where they come from, go up in one
   copy where alignment leaves no gap. Returns their bytes. at: where they go; NULL: that is not known yet. */
size_t cuda_weights_lay_out(struct backend_program *program, void *at);
/* What the device has free for a program. */
int cuda_memory_available(size_t *out, struct err *err);
/* One block of device memory. Errors: NO_MEMORY with what is needed and what is free. */
int cuda_memory_new(size_t size_bytes, const char *what, void **out, struct err *err);
/* The same, but for what the device keeps for kernels and graphs. */
int cuda_memory_new_leaving_room(size_t size_bytes, const char *what, void **out, struct err *err);

/* upload.c: copies to the device, on `up`. */
int cuda_upload_begin(struct backend_program *program, const struct backend_run *run, struct err *err);
/* Copies the weights that the segment is the first to read, as far as they changed: waits for them on the
   host, and makes compute wait for the copies. Errors: CANCELLED. */
int cuda_upload_weights(struct backend_program *program, struct cuda_segment *segment,
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

/* capture.c: the steps of a segment that does not run on the host. */
int cuda_segment_enqueue(struct backend_program *program, struct cuda_segment *segment, struct err *err);

/* timeline.c: nothing where nobody traces. Each mark is followed by its end. */
enum cuda_mark { CUDA_MARK_UP, CUDA_MARK_COMPUTE = 2, CUDA_MARK_DOWN = 4, CUDA_MARKS = 6 };
void cuda_timeline_open(struct backend_program *program);
void cuda_timeline_close(struct backend_program *program);
void cuda_timeline_begin(struct backend_program *program);
void cuda_timeline_mark(struct backend_program *program, const struct cuda_segment *segment,
                        enum cuda_mark mark);
void cuda_timeline_end(struct backend_program *program, const struct backend_run *run);

/* run.c */
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
