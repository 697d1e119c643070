/* The nccl collective, within itself.

   The members meet in a shm collective of the same name. It forms the whole group or none of it and carries
   NCCL's id; its abort aborts the group. The communicator is non-blocking: after a call of NCCL, nothing more
   is put on the stream until the communicator is ready again. So an operation is issued in phases. Data in
   host memory passes through pinned buffers and buffers on the device.

   A kernel of NCCL spins on its device until the other members' kernels run. Other calls to that device
   (loading a kernel, pinning memory) may have to wait for the spinning kernel. So an operation is issued only
   when every member that takes part has reached it; the members tell each other through the meeting.

   Every CUDA and NCCL call of a handle is made by the thread that uses the handle. An abort from another
   thread only tells the other members, and that thread, through shared memory. */
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
  int n_landing; /* works under way that will write pageable memory when they are finished */
  uint32_t done_with[COLLECTIVE_SIZE_MAX]; /* works that are done, by member that took part, modulo 2^32 */
  struct err fault;                        /* the first error of CUDA or NCCL, which aborted the group */
  struct collective_work *first, *last;    /* not done, in their order */
  struct collective_work *finished;        /* done, not waited for */
  struct collective_work *free;            /* with their events */
  struct nccl_block *blocks;               /* nobody's */
};

/* nccl_open.c */
int nccl_open(const struct collective_options *options, struct collective **out, struct err *err);
void nccl_close(struct collective *collective);
bool nccl_is_aborted(const struct collective *collective);
/* True when NCCL's last call has finished. False also after an error, which is put in fault. */
bool nccl_is_ready(struct collective *collective);
/* Notes the error and aborts the group. Both return whether there was none. */
bool nccl_cuda_ok(struct collective *collective, cudaError_t status, const char *what);
bool nccl_ok(struct collective *collective, ncclResult_t status, const char *what);

/* nccl_gate.c: begin tells the other members that the work has begun here; is_open: it has begun at
   every member that takes part; end forgets it. */
void nccl_gate_begin(struct collective *collective, struct collective_work *work);
bool nccl_gate_is_open(const struct collective_work *work);
void nccl_gate_end(struct collective_work *work);

/* nccl_issue.c: puts the next phase on the stream, when the communicator is ready. */
void nccl_issue(struct collective *collective, struct collective_work *work);
/* Copies results to host memory that the device could not write itself, and gives the blocks back. */
void nccl_finish(struct collective *collective, struct collective_work *work);
void nccl_give_back(struct collective *collective, struct collective_work *work); /* its blocks */

#endif
