/* Backends: what executes a graph. A backend is a row of backend.def and a file (or folder) of its own. */
#ifndef WEIR_WORKER_BACKEND_BACKEND_H
#define WEIR_WORKER_BACKEND_BACKEND_H

#include "model/graph/op.h"
#include "model/model.h"
#include "worker/backend/device_memory.h"
#include "worker/backend/replay/replay.h"

/* One graph prepared for execution by one thread: kernels chosen, memory planned and allocated. */
struct backend_program;

/* How products are computed: of f32 factors; of factors rounded to TF32; of factors and activations in bf16.
   Sums, losses, gradients of weights and the weights themselves are f32 in all. Only a gradient that a
   library writes in the type of its factors, as cuDNN does for convolutions, is rounded once to that type.
   F32_FAST is F32 but for convolutions, which algorithms may compute that multiply less and round more;
   where a backend has none, it computes what it does in F32. */
enum precision { PRECISION_F32, PRECISION_TF32, PRECISION_BF16, PRECISION_F32_FAST };

/* By a name of train.precision: fp32, fp32-fast, tf32 or bf16. False for any other name. */
bool precision_find(const char *name, enum precision *out);

/* Zeros: f32, the same bits each time, the first device, nothing computed twice, one context. */
struct backend_options {
  enum precision precision;
  bool is_fast; /* the bits may differ from one execution to the next */
  int device;   /* which one, where a backend has several */
  /* Whether activations are computed again for the backward part instead of kept for it: the bits are the
     same. Backends without `replayed` keep them. */
  enum replay_mode replay;
  size_t most_bytes; /* of REPLAY_AUTO: that the program's memory may take; 0: what its device has left */
  size_t
      spare_bytes; /* of a device's memory, with most_bytes 0: what of that comes later, and is for others */
  /* How many executions may be between their forward and their backward part at a time; 0: one. Backends
     without `bytes` take no more than one. */
  int n_contexts;
  /* The program is stage number `stage` of a pipeline: of the graph cut before its nodes cuts[n_cuts],
     ascending, each of which find_places allows. It has the layouts, fusions and random draws of the whole
     graph. n_cuts 0: it is the whole graph. */
  const int *cuts;
  int n_cuts, stage;
};

/* What crosses from one stage of a pipeline to the next in one part of an execution: so many pieces, in the
   order in which the program makes them, each in the layout and type that its maker chose. */
struct backend_message {
  const size_t *sizes_bytes; /* [n], the program's */
  const int *real_bytes; /* [n] of each number: 4 of f32, 2 of bf16; 0: they are no reals; the program's */
  int n;
};

/* A program's memory by how long it is needed. With one context the three share one arena, so that
   memory_bytes is at most their sum; with n it is kept + scratch + n * saved. */
struct backend_bytes {
  size_t kept;    /* initializers in layouts of the program's own: as long as the program lives */
  size_t scratch; /* within one part of an execution */
  size_t saved;   /* of one context: from the forward part to the backward part */
};

/* What a program computes again. */
struct backend_replayed {
  size_t unreplayed_bytes; /* memory_bytes if it did not */
  int n_steps, n_replays;  /* of one execution; n_steps counts the replays, too */
};

/* What a program is to compute. */
struct backend_request {
  const struct graph *graph; /* its shapes are inferred; it outlives the program */
  const int *watched;        /* values whose bytes the caller will read: they stay live until read */
  int n_watched;
  struct backend_options options;
};

/* Where `elems` elements of a delivered value are wanted, beginning at element `begin`: in host memory, or on
   a device. */
struct backend_piece {
  float *to;
  size_t begin, elems;
};

/* What of an execution a run does. */
enum backend_part {
  BACKEND_WHOLE,
  BACKEND_FORWARD,  /* the nodes before the first one that belongs to a gradient */
  BACKEND_BACKWARD, /* the others */
};

/* One execution, or a part of one. An execution in two parts has the bits of a whole one, and calls the same
   functions in the same order; on a device values come in order and weights are asked for in order, and how
   the two interleave is left open. Its backward part is given the inputs, weights, weights_version and
   op_context that its forward part had; other contexts may run in between. */
struct backend_run {
  enum backend_part part;
  /* Which context it runs in, below n_contexts. A whole execution or a forward part ends what was in flight
     there; a backward part follows a forward part there that was successful. */
  int in;
  const void *const *inputs;   /* of graph->inputs in order: dense host bytes; NULL those that a stage does
                                  not read */
  const float *const *weights; /* of each initializer: weights[value], f32, instead of the graph's own data;
                                  NULL entries (or weights == NULL): the graph's own data. In host memory, or
                                  in that of any device of the backend's */
  uint64_t weights_version;    /* the same number: the same bytes as in the execution before; 0: unknown */
  struct op_context context;
  /* Called as soon as value `watched[i]` is computed, in node order; data is dense f32, good until it
     returns. May be NULL. */
  void (*on_value)(void *user, int watch, const float *data);
  /* For backends whose values are not in host memory: says where value `watched[i]` is wanted. Fills pieces
     that cover the value in order, and returns how many; `placed` follows in place of on_value, when their
     bytes are there. 0: the backend takes memory of its own, which on_value gets. May be NULL. */
  int (*place)(void *user, int watch, struct backend_piece *pieces, int max);
  /* Set where place is. is_finite: no element of the value is Inf or NaN, as the device has found. */
  void (*placed)(void *user, int watch, bool is_finite);
  /* With place: called when values were handed over and no further one is there. May be NULL. */
  void (*after_values)(void *user);
  /* Called before the first node that reads initializer `value` (in weights[]); may block until its bytes are
     there. Once an execution, not once a part. May be NULL. */
  void (*before_weight)(void *user, int value);
  /* Of a stage: called at the beginning of a part, if a neighbour is before it: of the forward part the stage
     below, of the backward part the one above. Says where each piece of the message is; may block until it is
     there. The bytes are only read; those of the forward part until the execution has ended, those of the
     backward part until that part has. False ends the execution with CANCELLED. */
  bool (*receive)(void *user, enum backend_part part, const void **pieces);
  /* Of a stage: called at the end of a part, if a neighbour is behind it. The pieces are good until it
     returns. */
  void (*send)(void *user, enum backend_part part, const void *const *pieces);
  /* Asked before each node, after before_weight; true ends the execution with CANCELLED. May be NULL. */
  bool (*is_cancelled)(void *user);
  void *user;
};

struct backend_def {
  const char *name; /* "ref", "cpu" */
  /* Of tf32 and bf16. Where it cannot be had, prepare makes programs that compute in f32. NULL:
     it knows all of them. Errors: UNSUPPORTED with what this machine has. */
  int (*check_precision)(enum precision precision, struct err *err);
  /* Prepares a graph for execution. The request is not kept. Errors: NO_MEMORY with the bytes needed;
     UNSUPPORTED; INVALID for a cut where none can be. */
  int (*prepare)(const struct backend_request *request, struct backend_program **out, struct err *err);
  /* The memory_bytes that the program would have, of which none is allocated. NULL: not known before a
     program is prepared. Errors: as prepare. */
  int (*measure)(const struct backend_request *request, size_t *bytes, struct err *err);
  /* How much of a device's memory is free for programs, once what kernels and graphs are loaded into is kept.
     NULL: programs are in host memory. Errors: LOST_DEVICE. */
  int (*room)(int device, size_t *bytes, struct err *err);
  /* is_valid[n_nodes + 1]: before which nodes the request's graph may be cut into stages. Any of these may be
     cut together. Allocates no memory for activations. NULL: the backend has no stages, and prepare refuses
     cuts as UNSUPPORTED. Errors: as prepare. */
  int (*find_places)(const struct backend_request *request, bool *is_valid, struct err *err);
  /* One thread at a time per program; single-threaded inside; same bits every time. Errors: those of kernels.
   */
  int (*run)(struct backend_program *program, const struct backend_run *run, struct err *err);
  size_t (*memory_bytes)(const struct backend_program *program); /* all contexts included */
  /* NULL: programs have one context and run whole; they refuse anything else as UNSUPPORTED. */
  void (*bytes)(const struct backend_program *program, struct backend_bytes *out);
  /* What a stage receives for a part, or sends after it: with find_places. False: it has no such neighbour.
   */
  bool (*message)(const struct backend_program *program, enum backend_part part, bool is_sent,
                  struct backend_message *out);
  /* Whether the program, or stage, reads the graph's input or initializer: with find_places. An execution
     calls before_weight for these initializers only. */
  bool (*reads)(const struct backend_program *program, int value);
  void (*replayed)(const struct backend_program *program, struct backend_replayed *out); /* NULL: nothing */
  /* The index-th of the nodes that run on the host because the device has no kernel for them; NULL past the
     last. NULL where there is no device. */
  const struct node *(*host_node)(const struct backend_program *program, int index);
  void (*release)(struct backend_program *program); /* NULL is ignored */
  /* Libraries and instruction set, for the fingerprint: "oneDNN 2.6.3 avx512". Devices are told apart by
   * name. */
  const char *(*fingerprint)(void);
  /* Makes host memory known to the device, so that copies from and to it need no staging. NULL where there is
     nothing to gain. A failure costs speed only. */
  void (*pin)(void *bytes, size_t size_bytes);
  void (*unpin)(void *bytes);
  const struct device_memory *memory; /* NULL: values are in host memory */
};

/* Whether programs compute in that precision here. Errors: those of check_precision. */
int backend_check_precision(const struct backend_def *backend, enum precision precision, struct err *err);

const struct backend_def *backend_find(const char *name); /* NULL if unknown; plugins are not found here */
const struct backend_def *backend_at(int index);          /* NULL past the last */

/* Of the calling thread, before each program is made and run: one OpenMP thread. Errors: UNAVAILABLE where
   the floating-point setting does not hold (common/agree/float_setting.h): a library has changed it. */
int backend_thread_init(struct err *err);

#endif
