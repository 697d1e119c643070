/* Collectives among the GPUs of one node, by NCCL. */
#include "worker/backend/cuda/nccl/nccl.h"

#include <sched.h>
#include <stdlib.h>
#include <time.h>

#include "common/base/memory.h"
#include "worker/collective/shm_meeting.h"

/* Looks at a work before the waiting thread sleeps between them: about what a small operation takes. */
enum { LOOKS = 200, POLL_US = 50 };

static int open_group(const struct collective_options *options, struct collective **out, struct err *err) {
  if (collective_check_options(options, err))
    return err->code;
  return nccl_open(options, out, err);
}

static void work_push(struct collective_work **list, struct collective_work *work) {
  work->previous = NULL;
  work->next = *list;
  if (*list)
    (*list)->previous = work;
  *list = work;
}

static void unlink_finished(struct collective *c, struct collective_work *work) {
  if (work->previous)
    work->previous->next = work->next;
  else
    c->finished = work->next;
  if (work->next)
    work->next->previous = work->previous;
}

static bool takes_part(const struct collective_work *work, int member) {
  bool is_pair = work->call.kind == COLLECTIVE_SEND || work->call.kind == COLLECTIVE_RECEIVE;
  return !is_pair || member == work->call.root;
}

/* The first of those that are not done is done. */
static void finish_first(struct collective *c, bool is_cancelled) {
  struct collective_work *work = c->first;
  nccl_gate_end(work);
  c->first = work->next;
  if (!c->first)
    c->last = NULL;
  for (int m = 0; m < c->size && !is_cancelled; m++)
    c->done_with[m] += takes_part(work, m);
  work->is_cancelled = is_cancelled;
  work->is_done = true;
  work_push(&c->finished, work);
}

/* After that nothing of ours is on the stream: no memory of the callers' is touched any more. */
static void cancel_all(struct collective *c) {
  if (c->comm)
    ncclCommAbort(c->comm);
  c->comm = NULL;
  cudaStreamSynchronize(c->stream);
  while (c->first) {
    nccl_give_back(c, c->first);
    finish_first(c, true);
  }
}

/* A member that has closed takes part in nothing more. What it did before is done here soon: members count
   alike what they do with each other. */
static void check_left(struct collective *c) {
  uint32_t done;
  for (int m = 0; m < c->size && c->first; m++)
    if (takes_part(c->first, m) && shm_has_left(c->meeting, m, &done) &&
        (int32_t)(c->done_with[m] - done) >= 0)
      collective_shm.abort(c->meeting);
}

/* Issues what can be, and finishes what is done. */
static void works_progress(struct collective *c) {
  cudaSetDevice(c->device);
  for (struct collective_work *work = c->first; work && !nccl_is_aborted(c); work = work->next) {
    nccl_issue(c, work);
    if (work->phase < NCCL_PHASES)
      break;
  }
  if (c->comm && !nccl_is_aborted(c))
    nccl_is_ready(c); /* an error of what runs shows here alone */
  while (c->first && c->first->phase == NCCL_PHASES && !nccl_is_aborted(c) && !c->is_comm_busy) {
    cudaError_t status = c->first->call.elems ? cudaEventQuery(c->first->event) : cudaSuccess;
    if (status == cudaErrorNotReady)
      cudaGetLastError(); /* no error, but noted as one */
    if (status == cudaErrorNotReady || !nccl_cuda_ok(c, status, "execute a group's operation"))
      break;
    nccl_finish(c, c->first);
    finish_first(c, false);
  }
  check_left(c);
  if (c->first && nccl_is_aborted(c))
    cancel_all(c);
}

static struct collective_work *work_new(struct collective *c) {
  struct collective_work *work = c->free;
  cudaEvent_t event = NULL;
  if (work) {
    c->free = work->next;
    event = work->event;
  } else {
    if (!nccl_cuda_ok(c, cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "make an event"))
      return NULL;
    work = mem_new(sizeof *work);
  }
  *work = (struct collective_work){.collective = c, .event = event};
  return work;
}

static int group_cancelled(const struct collective *c, struct err *err) {
  if (c->fault.code) {
    *err = c->fault;
    return err->code;
  }
  return err_set(err, ERR_CANCELLED, "the collective group was aborted");
}

static int nccl_start(struct collective *c, const struct collective_call *call, struct collective_work **out,
                      struct err *err) {
  struct collective_work *work;
  if (collective_check_call(call, c->rank, c->size, err))
    return err->code;
  cudaSetDevice(c->device);
  if (nccl_is_aborted(c) || !(work = work_new(c)))
    return group_cancelled(c, err);
  work->call = *call;
  if (call->elems == 0)
    work->phase = NCCL_PHASES; /* nothing to issue, and done in its turn */
  else
    nccl_gate_begin(c, work);
  if (c->last)
    c->last->next = work;
  else
    c->first = work;
  c->last = work;
  works_progress(c);
  *out = work;
  return 0;
}

static bool is_done(struct collective_work *work) {
  if (!work->is_done)
    works_progress(work->collective);
  return work->is_done;
}

static int nccl_wait(struct collective_work *work, struct err *err) {
  struct collective *c = work->collective;
  struct timespec pause = {0, POLL_US * 1000L};
  bool is_cancelled;
  for (int looks = 0; !is_done(work); looks++)
    if (looks < LOOKS)
      sched_yield();
    else
      nanosleep(&pause, NULL);
  is_cancelled = work->is_cancelled;
  unlink_finished(c, work);
  work_push(&c->free, work);
  return is_cancelled ? group_cancelled(c, err) : 0;
}

static void abort_group(struct collective *c) {
  collective_shm.abort(c->meeting);
}

const struct collective_def collective_nccl = {
    .name = "nccl",
    .is_exact = true,
    .is_on_device = true,
    .open = open_group,
    .close = nccl_close,
    .start = nccl_start,
    .is_done = is_done,
    .wait = nccl_wait,
    .abort = abort_group,
    .is_aborted = nccl_is_aborted,
};
