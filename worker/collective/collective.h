/* Collective operations among the processes of one host. A backend is a row of collective.def and a file of
   its own: shm (shared memory, everywhere), nccl (GPUs, in weir-cuda.so).

   A group has members 0 .. size-1, each with its own handle. Every member starts the same operations in the
   same order, with the same elems. The operations of one handle are done in the order in which they were
   started. Send and receive concern two members, and are matched in the order of the pair. A send of many
   elements ends only when its receive runs: of two members that exchange, one receives first. Only one thread
   at a time uses a handle; abort is the exception. */
#ifndef WEIR_WORKER_COLLECTIVE_COLLECTIVE_H
#define WEIR_WORKER_COLLECTIVE_COLLECTIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"

enum { COLLECTIVE_SIZE_MAX = 64, COLLECTIVE_NAME_MAX = 100 };

enum collective_kind {
  COLLECTIVE_ALL_REDUCE,     /* out[n] = reduction of all in[n] */
  COLLECTIVE_REDUCE,         /* the same, at root alone */
  COLLECTIVE_BROADCAST,      /* out[n] = root's in[n]; at root itself if it has an out */
  COLLECTIVE_GATHER,         /* root's out[size * n] = the members' in[n], in their order */
  COLLECTIVE_ALL_GATHER,     /* the same, at each */
  COLLECTIVE_SCATTER,        /* out[n] = the member's part of root's in[size * n] */
  COLLECTIVE_REDUCE_SCATTER, /* out[n] = the member's part of the reduction of all in[size * n] */
  COLLECTIVE_SEND,           /* in[n] to member root */
  COLLECTIVE_RECEIVE,        /* out[n] from member root */
  COLLECTIVE_KINDS
};

/* Of f32 in a fixed order, so that all members have the same bits, each time: that of the reduction tree
   (common/agree/tree.h) over the members, where the backend says that it is exact. SUM is that of
   common/agree/sum.h. MAX and MIN of a NaN and anything are NaN. */
enum collective_reduction {
  COLLECTIVE_SUM,
  COLLECTIVE_PRODUCT,
  COLLECTIVE_MAX,
  COLLECTIVE_MIN,
  COLLECTIVE_REDUCTIONS
};

struct collective_call {
  enum collective_kind kind;
  enum collective_reduction reduction;
  int root;        /* member: of rooted operations; the peer of send and receive */
  const float *in; /* f32, whose bits only reductions look at; NULL where this member gives nothing */
  float *out;      /* NULL where this member gets nothing. May be in; else they do not overlap, except that in
                      may be the member's own part of out, or out that of in */
  size_t elems;    /* n above; 0 is no operation */
};

struct collective_options {
  /* Unique among all groups that are being opened, the same at each member: [A-Za-z0-9_.-]{1,100}. */
  const char *name;
  int rank, size;
  int device;     /* for backends of GPUs */
  bool is_fast;   /* reductions may give other bits each time */
  int timeout_ms; /* for all members to open the group */
  /* Asked some times a second while open waits for the others; true ends it with CANCELLED. May be NULL. */
  bool (*is_cancelled)(void *user);
  void *user;
};

struct collective;
struct collective_work;

struct collective_def {
  const char *name;
  bool is_exact;     /* reductions add in the order of the tree, with is_fast false */
  bool is_on_device; /* in and out are best in its device's memory: what is elsewhere is copied there and back
                      */
  /* Waits until every member has opened it. Errors: INVALID for options that cannot be, or that differ from
     the other members'; UNAVAILABLE when it takes longer than timeout_ms or a member has given up meanwhile:
     then no member has it open; NO_MEMORY; IO. */
  int (*open)(const struct collective_options *options, struct collective **out, struct err *err);
  /* Aborts what is under way, frees what was not waited for. A member that has closed takes part in nothing
     any more: what the others start after that is aborted. NULL is ignored. */
  void (*close)(struct collective *collective);
  /* Begins an operation; in and out stay the callee's until it is done. Never blocks. The work is freed by
     wait. Errors: INVALID for arguments that no member could mean; CANCELLED after an abort. */
  int (*start)(struct collective *collective, const struct collective_call *call,
               struct collective_work **work, struct err *err);
  /* Makes progress with all that was started, which is made here, in start and in wait alone; never blocks.
     True also after an abort. */
  bool (*is_done)(struct collective_work *work);
  /* Blocks until it is done. Errors: CANCELLED when the group was aborted before that, by any member;
     LOST_DEVICE, NO_MEMORY and others where the cause is this member's own device. */
  int (*wait)(struct collective_work *work, struct err *err);
  /* Ends every operation of every member with CANCELLED, now and later. Any thread; again is harmless. What a
     member that has died left undone ends so, too: the member that learns of it aborts. */
  void (*abort)(struct collective *collective);
  bool (*is_aborted)(const struct collective *collective); /* by any member. Any thread */
};

/* Starts it and waits. */
int collective_run(const struct collective_def *def, struct collective *collective,
                   const struct collective_call *call, struct err *err);

/* A row of collective.def; NULL for another name. Collectives of devices are weir-cuda.so's
   (worker/backend/plugin.h). */
const struct collective_def *collective_find(const char *name);
const struct collective_def *collective_at(int index); /* rows of collective.def; NULL past the last */

/* What every backend refuses with INVALID. */
int collective_check_options(const struct collective_options *options, struct err *err);
int collective_check_call(const struct collective_call *call, int rank, int size, struct err *err);

/* How many elements of in and out this member must have: 0, n or size * n. */
size_t collective_in_elems(const struct collective_call *call, int rank, int size);
size_t collective_out_elems(const struct collective_call *call, int rank, int size);

#endif
