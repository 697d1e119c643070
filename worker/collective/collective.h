/* Collective operations among the processes of one node. A backend is a row of collective.def and a file of
   its own: shm (shared memory, everywhere), nccl (GPUs, in weir-cuda.so).

   A group has members 0 .. size-1, each with its own handle. Every member starts the same operations in the
   same order; operations of one handle are done in the order in which they were started. Send and receive are
   matched by pair, in order. A handle is used by one thread at a time, but for collective_abort. */
#ifndef WEIR_WORKER_COLLECTIVE_COLLECTIVE_H
#define WEIR_WORKER_COLLECTIVE_COLLECTIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

enum { COLLECTIVE_SIZE_MAX = 64 };

enum collective_kind {
  COLLECTIVE_ALL_REDUCE,     /* out[n] = reduction of all in[n] */
  COLLECTIVE_REDUCE,         /* the same, at root alone */
  COLLECTIVE_BROADCAST,      /* out[n] = root's in[n] */
  COLLECTIVE_GATHER,         /* root's out[size * n] = the members' in[n], in their order */
  COLLECTIVE_ALL_GATHER,     /* the same, at each */
  COLLECTIVE_SCATTER,        /* out[n] = the member's part of root's in[size * n] */
  COLLECTIVE_REDUCE_SCATTER, /* out[n] = the member's part of the reduction of all in[size * n] */
  COLLECTIVE_SEND,           /* in[n] to member root */
  COLLECTIVE_RECEIVE,        /* out[n] from member root */
};

/* Of f32 in a fixed order, so that all members have the same bits, each time: that of the reduction tree
   (common/tree.h) over the members, where the backend says that it is exact. */
enum collective_reduction { COLLECTIVE_SUM, COLLECTIVE_PRODUCT, COLLECTIVE_MAX, COLLECTIVE_MIN };

struct collective_call {
  enum collective_kind kind;
  enum collective_reduction reduction;
  int root;        /* member: of rooted operations; the peer of send and receive */
  const float *in; /* f32; NULL where this member gives nothing. May be out */
  float *out;      /* NULL where this member gets nothing */
  size_t elems;    /* n above */
};

struct collective_options {
  /* Unique among all groups, the same at each member: [A-Za-z0-9_.-]{1,100}. */
  const char *name;
  int rank, size;
  int device;     /* for backends of GPUs */
  bool is_fast;   /* reductions may give other bits each time */
  int timeout_ms; /* for all members to open the group */
};

struct collective;
struct collective_work;

struct collective_def {
  const char *name;
  bool is_exact; /* reductions add in the order of the tree, with is_fast false */
  /* Waits until every member has opened it. Errors: UNAVAILABLE when that takes longer than timeout_ms or a
     member has aborted meanwhile: then no member has it open. */
  int (*open)(const struct collective_options *options, struct collective **out, struct err *err);
  void (*close)(struct collective *collective); /* aborts what is under way; NULL is ignored */
  /* Begins an operation; in and out stay the callee's until it is done. Never blocks. The work is freed by
     wait. Errors: INVALID for arguments that no member could mean; CANCELLED after an abort. */
  int (*start)(struct collective *collective, const struct collective_call *call,
               struct collective_work **work, struct err *err);
  bool (*is_done)(struct collective_work *work); /* makes progress; never blocks. True also after an abort */
  /* Blocks until it is done. Errors: CANCELLED when the group was aborted, by any member. */
  int (*wait)(struct collective_work *work, struct err *err);
  /* Ends every operation of every member with CANCELLED, now and later. Any thread; again is harmless. What a
     member that has died left undone ends so, too: whoever learns of it aborts. */
  void (*abort)(struct collective *collective);
};

/* Starts it and waits. */
int collective_run(const struct collective_def *def, struct collective *collective,
                   const struct collective_call *call, struct err *err);

/* Rows of collective.def, and nccl where weir-cuda.so can be loaded. NULL if unknown. */
const struct collective_def *collective_find(const char *name);

#endif
