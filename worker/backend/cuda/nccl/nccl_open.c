/* Members of an nccl group: how they meet and part. */
#include "worker/backend/cuda/nccl/nccl.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/base/clock.h"
#include "common/base/memory.h"
#include "worker/collective/shm_meeting.h"

enum { POLL_US = 200, FLUSH_MS = 2000, ID_ELEMS = sizeof(ncclUniqueId) / sizeof(float) };

static void open_fail(struct collective *c, enum err_code code, const char *library, const char *what,
                      const char *why) {
  if (!c->fault.code)
    err_set(&c->fault, code, "device %d: %s cannot %s: %s", c->device, library, what, why);
  collective_shm.abort(c->meeting);
}

bool nccl_cuda_ok(struct collective *c, cudaError_t status, const char *what) {
  if (status != cudaSuccess)
    open_fail(c, status == cudaErrorMemoryAllocation ? ERR_NO_MEMORY : ERR_LOST_DEVICE, "CUDA", what,
              cudaGetErrorString(status));
  return status == cudaSuccess;
}

bool nccl_ok(struct collective *c, ncclResult_t status, const char *what) {
  if (status == ncclInProgress)
    c->is_comm_busy = true;
  else if (status != ncclSuccess)
    open_fail(c, status == ncclRemoteError ? ERR_UNAVAILABLE : ERR_LOST_DEVICE, "NCCL", what,
              ncclGetErrorString(status));
  return status == ncclSuccess || status == ncclInProgress;
}

bool nccl_is_aborted(const struct collective *c) {
  return collective_shm.is_aborted(c->meeting);
}

bool nccl_is_ready(struct collective *c) {
  ncclResult_t state = ncclInProgress;
  if (!nccl_ok(c, ncclCommGetAsyncError(c->comm, &state), "tell the communicator's state") ||
      !nccl_ok(c, state, "go on with what the group does"))
    return false;
  c->is_comm_busy = state == ncclInProgress;
  return !c->is_comm_busy;
}

static void pause_a_little(void) {
  struct timespec pause = {0, POLL_US * 1000L};
  nanosleep(&pause, NULL);
}

static bool is_cancelled(const struct collective_options *options) {
  return options->is_cancelled && options->is_cancelled(options->user);
}

/* The work of the meeting's, until the deadline: another member may be slow to start NCCL, or die of it. */
static int finish_meeting(struct collective *c, const struct collective_options *options,
                          struct collective_work *work, uint64_t deadline_ns, struct err *err) {
  while (!collective_shm.is_done(work) && clock_now_ns() < deadline_ns && !is_cancelled(options))
    pause_a_little();
  if (!collective_shm.is_done(work))
    collective_shm.abort(c->meeting);
  return collective_shm.wait(work, err);
}

static int share_id(struct collective *c, const struct collective_options *options, ncclUniqueId *id,
                    uint64_t deadline_ns, struct err *err) {
  float bits[ID_ELEMS];
  struct collective_call call = {.kind = COLLECTIVE_BROADCAST, .in = bits, .out = bits, .elems = ID_ELEMS};
  struct collective_work *work;
  if (c->rank == 0 && !nccl_ok(c, ncclGetUniqueId(id), "make a group's id"))
    return c->fault.code;
  memcpy(bits, id, sizeof bits);
  if (collective_shm.start(c->meeting, &call, &work, err) ||
      finish_meeting(c, options, work, deadline_ns, err))
    return err->code;
  memcpy(id, bits, sizeof bits);
  return 0;
}

static int group_connect(struct collective *c, const struct collective_options *options, uint64_t deadline_ns,
                         struct err *err) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclUniqueId id = {{0}};
  config.blocking = 0;
  if (!nccl_cuda_ok(c, cudaSetDevice(c->device), "choose the device") ||
      !nccl_cuda_ok(c, cudaStreamCreateWithFlags(&c->stream, cudaStreamNonBlocking), "make a stream"))
    return c->fault.code;
  if (share_id(c, options, &id, deadline_ns, err))
    return err->code;
  if (!nccl_ok(c, ncclCommInitRankConfig(&c->comm, c->size, id, c->rank, &config), "make the group"))
    return c->fault.code;
  c->is_comm_busy = true;
  while (!nccl_is_ready(c)) {
    if (c->fault.code || nccl_is_aborted(c))
      return err_set(err, ERR_UNAVAILABLE, "another member has given up");
    if (is_cancelled(options))
      return err_set(err, ERR_CANCELLED, "opening it was cancelled");
    if (clock_now_ns() >= deadline_ns)
      return err_set(err, ERR_UNAVAILABLE, "NCCL has not connected all members after %d ms",
                     options->timeout_ms);
    pause_a_little();
  }
  return 0;
}

/* Nobody has it before everybody has. Who has it may abort it at once, which is not giving up. */
static int await_all(struct collective *c, const struct collective_options *options, uint64_t deadline_ns,
                     struct err *err) {
  enum shm_agreement agreement;
  shm_say_ready(c->meeting);
  for (;;) {
    bool is_called_off = is_cancelled(options);
    bool gives_up = is_called_off || nccl_is_aborted(c) || clock_now_ns() >= deadline_ns;
    agreement = shm_agreement(c->meeting, gives_up);
    if (agreement == SHM_ALL_READY)
      return 0;
    if (agreement == SHM_NOT_ALL)
      return is_called_off ? err_set(err, ERR_CANCELLED, "opening it was cancelled")
                           : err_set(err, ERR_UNAVAILABLE, "another member has given up, or is late");
    pause_a_little();
  }
}

int nccl_open(const struct collective_options *options, struct collective **out, struct err *err) {
  uint64_t deadline_ns =
      clock_now_ns() + (uint64_t)(options->timeout_ms > 0 ? options->timeout_ms : 0) * 1000000;
  struct collective *c = mem_new(sizeof *c);
  c->rank = options->rank;
  c->size = options->size;
  c->device = options->device;
  c->is_fast = options->is_fast;
  if (collective_shm.open(options, &c->meeting, err)) {
    free(c);
    return err->code;
  }
  if (group_connect(c, options, deadline_ns, err) || await_all(c, options, deadline_ns, err)) {
    collective_shm.abort(c->meeting);
    if (c->fault.code)
      *err = c->fault;
    else if (err->code == ERR_CANCELLED && !is_cancelled(options))
      err_set(err, ERR_UNAVAILABLE, "another member has given up");
    err_prefix(err, "collective group %s, member %d of %d", options->name, c->rank, c->size);
    nccl_close(c);
    return err->code;
  }
  *out = c;
  return 0;
}

static void free_works(struct collective_work *list) {
  while (list) {
    struct collective_work *next = list->next;
    cudaEventDestroy(list->event);
    free(list);
    list = next;
  }
}

static void free_blocks(struct nccl_block *list) {
  while (list) {
    struct nccl_block *next = list->next;
    if (list->is_pinned)
      cudaFreeHost(list->bytes);
    else
      cudaFree(list->bytes);
    free(list);
    list = next;
  }
}

/* Others may still be receiving what this member has sent: NCCL flushes that first, unless they are gone. */
static void group_leave(struct collective *c) {
  uint64_t deadline_ns = clock_now_ns() + (uint64_t)FLUSH_MS * 1000000;
  bool is_flushed = false;
  if (!nccl_is_aborted(c) && nccl_ok(c, ncclCommFinalize(c->comm), "leave the group")) {
    c->is_comm_busy = true;
    while (!(is_flushed = nccl_is_ready(c)) && !nccl_is_aborted(c) && clock_now_ns() < deadline_ns)
      pause_a_little();
  }
  if (is_flushed)
    ncclCommDestroy(c->comm);
  else
    ncclCommAbort(c->comm);
}

void nccl_close(struct collective *c) {
  if (!c)
    return;
  if (c->first)
    collective_shm.abort(c->meeting);
  cudaSetDevice(c->device);
  if (c->comm)
    group_leave(c);
  if (c->stream) {
    cudaStreamSynchronize(c->stream);
    cudaStreamDestroy(c->stream);
  }
  for (struct collective_work *lists[] = {c->first, c->finished}, **list = lists; list < lists + 2; list++)
    for (struct collective_work *work = *list; work; work = work->next)
      nccl_give_back(c, work);
  free_works(c->first);
  free_works(c->finished);
  free_works(c->free);
  free_blocks(c->blocks);
  if (c->meeting)
    shm_say_done(c->meeting, c->done_with);
  collective_shm.close(c->meeting);
  free(c);
}
