/* The nccl collective, within itself.

   The members meet by the shm collective of the same name: it makes the group all or none, carries NCCL's id,
   and its abort is the group's. The communicator is not blocking: after a call of NCCL's the next thing is
   put on the stream only when the communicator is ready again, so an operation is issued in phases. What is
   in host memory goes through pinned buffers and buffers on the device.

   A kernel of NCCL's spins on the device until the others' run, and what else a member's device is told
   meanwhile may have to wait for it (a kernel that is loaded, memory that is pinned): so nothing is issued
   before all whom it takes have come to it, who tell each other by the meeting.

   Every CUDA and NCCL call of a handle is made by the thread that uses the handle; an abort by another thread
   only tells the others, and this thread, by shared memory. */
#ifndef WEIR_WORKER_BACKEND_CUDA_NCCL_NCCL_H
#define WEIR_WORKER_BACKEND_CUDA_NCCL_NCCL_H

#include <cuda_runtime_api.h>
#include <nccl.h>

#include "worker/collective/collective.h"

/* Memory that operations borrow. */
struct nccl_block {
  void *bytes;
  size_t size_bytes;
  bool is_pinned; /* else on the device */
  struct nccl_block *next;
};

enum { NCCL_PHASES = 3, NCCL_BLOCKS_MAX = 5 };

struct collective_work {
  struct collective *collective;
  struct collective_call call;
  struct collective_work *next, *previous;
  struct collective_work *gates[2]; /* of the meeting's: done when the others have come, too; NULL */
  float told[COLLECTIVE_SIZE_MAX];  /* by them: nothing */
  int phase;                        /* how many were issued */
  bool is_done, is_cancelled;
  cudaEvent_t event; /* recorded after the last phase */
  /* Where it works on the device: call.in and call.out, or copies. */
  const float *in;
  float *out;
  float *parts;                  /* exact reductions: what the others sent, one share each; NULL */
  float *pinned_in, *pinned_out; /* of pageable memory; NULL: none */
  struct nccl_block *blocks[NCCL_BLOCKS_MAX];
  int n_blocks;
};

struct collective {
  struct collective *meeting; /* of collective_shm */
  int rank, size, device;
  bool is_fast;
  ncclComm_t comm; /* NULL: aborted, or not there yet */
  bool is_comm_busy;
  cudaStream_t stream;
  int n_landing;    /* works under way that will write pageable memory when they are finished */
  uint64_t left_ns; /* when the first work was seen undone after a member has left; 0: it was not */
  struct err fault; /* the first error of CUDA or NCCL, which aborted the group */
  struct collective_work *first, *last; /* not done, in their order */
  struct collective_work *finished;     /* done, not waited for */
  struct collective_work *free;         /* with their events */
  struct nccl_block *blocks;            /* nobody's */
};

/* nccl_open.c */
int nccl_open(const struct collective_options *options, struct collective **out, struct err *err);
void nccl_close(struct collective *collective);
bool nccl_is_aborted(const struct collective *collective);
/* True when NCCL has done what it was told last; false also after an error, which is put in fault. */
bool nccl_is_ready(struct collective *collective);
/* Notes the error and aborts the group. Both return whether there was none. */
bool nccl_cuda_ok(struct collective *collective, cudaError_t status, const char *what);
bool nccl_ok(struct collective *collective, ncclResult_t status, const char *what);

/* nccl_gate.c: tells the others that the work has begun here; whether it has begun there; and forgets it. */
void nccl_gate_begin(struct collective *collective, struct collective_work *work);
bool nccl_gate_is_open(const struct collective_work *work);
void nccl_gate_end(struct collective_work *work);

/* nccl_issue.c: puts the next phase on the stream, when the communicator is ready. */
void nccl_issue(struct collective *collective, struct collective_work *work);
/* Host memory that the device could not write itself. */
void nccl_finish(struct collective *collective, struct collective_work *work);
void nccl_give_back(struct collective *collective, struct collective_work *work); /* its blocks */

#endif
