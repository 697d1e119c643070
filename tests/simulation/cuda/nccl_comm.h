/* A communicator of the simulated NCCL. */
#ifndef WEIR_TESTS_SIMULATION_CUDA_NCCL_COMM_H
#define WEIR_TESTS_SIMULATION_CUDA_NCCL_COMM_H

#include <nccl.h>

#include "tests/simulation/cuda/nccl_segment.h"
#include "tests/simulation/cuda/simulation.h"

struct ncclComm {
  struct segment *segment;
  int rank, size, device;
  bool is_blocking, is_finalized;
  atomic_bool is_aborted;
  atomic_int polls_left; /* until an asynchronous call of one that does not block is over */
  uint64_t n_issued;     /* the order of its operations, whatever their streams */
  atomic_uint_least64_t n_finished;
  atomic_int refs;
};

void comm_put(struct ncclComm *comm);

/* NCCL's header declares them as C did before prototypes. */
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);

#endif
