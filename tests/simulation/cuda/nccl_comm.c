/* Of NCCL, communicators among threads and processes of this machine. A peer that has died or aborted is
   waited for until one aborts oneself, as with the real one. Communicators that do not block answer "in
   progress" for a drawn while. It does not show topologies, transports or their failures. */
#include "tests/simulation/cuda/nccl_comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "common/base/memory.h"

void comm_put(struct ncclComm *comm) {
  if (--comm->refs > 0)
    return;
  segment_leave(comm->segment);
  free(comm);
}

ncclResult_t ncclGetVersion(int *version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result) {
  static const char *const texts[] = {"no error",
                                      "unhandled cuda error",
                                      "unhandled system error",
                                      "internal error",
                                      "invalid argument",
                                      "invalid usage",
                                      "remote process exited or there was a network error",
                                      "NCCL operation in progress"};
  return (unsigned)result < sizeof texts / sizeof *texts ? texts[result] : "unknown result code";
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
  unsigned char random[16];
  int n;
  memset(id, 0, sizeof *id);
  if (getrandom(random, sizeof random, 0) != sizeof random)
    return ncclSystemError;
  n = snprintf(id->internal, sizeof id->internal, "/weir-simulated-nccl-");
  for (size_t i = 0; i < sizeof random; i++)
    n += snprintf(id->internal + n, sizeof id->internal - (size_t)n, "%02x", random[i]);
  return ncclSuccess;
}

static void nap(void) {
  nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t *config) {
  struct ncclComm *comm;
  *out = NULL;
  if (sim_capture_forbids() || sim_device_error(sim_device()))
    return ncclUnhandledCudaError;
  if (size < 1 || size > SEGMENT_MEMBERS_MAX || rank < 0 || rank >= size || id.internal[0] != '/' ||
      !memchr(id.internal, '\0', sizeof id.internal))
    return ncclInvalidArgument;
  comm = mem_new(sizeof *comm);
  comm->rank = rank;
  comm->size = size;
  comm->device = sim_device();
  comm->is_blocking = !config || config->blocking != 0; /* also when it is not defined */
  comm->refs = 1;
  comm->segment = segment_join(id.internal, rank, size);
  if (!comm->segment) {
    free(comm);
    return ncclSystemError;
  }
  *out = comm;
  if (!comm->is_blocking)
    return ncclInProgress;
  while (!segment_is_full(comm->segment))
    nap();
  return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t *out, int size, ncclUniqueId id, int rank) {
  return ncclCommInitRankConfig(out, size, id, rank, NULL);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *result) {
  if (!comm)
    return ncclInvalidArgument;
  *result = !segment_is_full(comm->segment) ? ncclInProgress : ncclSuccess;
  if (comm->polls_left > 0) {
    comm->polls_left--;
    *result = ncclInProgress;
  }
  if (comm->is_finalized && comm->n_finished < comm->n_issued) {
    sim_run_some();
    *result = ncclInProgress;
  }
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  if (!comm)
    return ncclInvalidArgument;
  comm->is_aborted = true;
  comm_put(comm); /* its operations end, and let go of it */
  return ncclSuccess;
}

/* It is in progress until its operations have ended. */
ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  if (!comm || comm->is_finalized)
    return ncclInvalidArgument;
  comm->is_finalized = true;
  return comm->is_blocking ? ncclSuccess : ncclInProgress;
}

/* Waits for its operations, and so for its peers. */
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (!comm)
    return ncclInvalidArgument;
  while (comm->n_finished < comm->n_issued && !sim_device_error(comm->device)) {
    sim_run_some();
    nap();
  }
  comm_put(comm);
  return ncclSuccess;
}
