/* Of NCCL, operations: bytes that flow between members through pipes, as far as there is room, whenever the
   stream's turn comes. A send is done when it was received; a reduction adds in an order that changes from
   call to call, though it is the same at each member. Calls of one group flow side by side. */
#include "tests/simulation/cuda/nccl_comm.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/memory.h"

/* One flow of bytes between this member and another. */
struct flow {
  int peer;
  bool is_send;
  char *bytes;
  size_t size;
};

/* A call: its flows, and what is done when they have ended. */
struct call {
  struct flow flows[2 * SEGMENT_MEMBERS_MAX];
  int n_flows;
  bool reduces; /* out = the reduction of own and what came into `landing` from each other member */
  ncclRedOp_t reduction;
  const float *own; /* NULL: nothing is copied */
  float *out, *landing;
  size_t elems;
  struct call *next;
};

struct comm_op {
  struct sim_op op;
  struct ncclComm *comm;
  struct call *calls;
  uint64_t number;
};

struct flow_state {
  size_t n_moved;
  uint64_t end; /* of a send: what the reader must have read for it to be received */
};

/* Calls of the thread's open groups, by communicator and stream. */
struct group_part {
  struct ncclComm *comm;
  cudaStream_t stream;
  struct call *calls, **tail;
  struct group_part *next;
};

static __thread int group_depth;
static __thread struct group_part *group_parts;

/* Moves what can be moved. Returns whether it has ended. */
static bool flow_step(struct ncclComm *comm, const struct flow *flow, struct flow_state *state,
                      bool *has_moved) {
  size_t n = flow->size - state->n_moved;
  if (n > 0 && flow->is_send) {
    n = segment_write(comm->segment, comm->rank, flow->peer, flow->bytes + state->n_moved, n);
    state->n_moved += n;
    *has_moved |= n > 0;
    state->end = segment_bytes_written(comm->segment, comm->rank, flow->peer);
  } else if (n > 0) {
    n = segment_read(comm->segment, flow->peer, comm->rank, flow->bytes + state->n_moved, n);
    state->n_moved += n;
    *has_moved |= n > 0;
  }
  if (state->n_moved < flow->size)
    return false;
  return !flow->is_send || segment_bytes_read(comm->segment, comm->rank, flow->peer) >= state->end;
}

static float reduce(ncclRedOp_t reduction, float a, float b) {
  switch (reduction) {
  case ncclProd:
    return a * b;
  case ncclMax:
    return a > b ? a : b;
  case ncclMin:
    return a < b ? a : b;
  default:
    return a + b;
  }
}

/* In the order of the members, beginning at one that the number of the operation chooses: the same for all.
 */
static void call_reduce(const struct ncclComm *comm, const struct call *call, uint64_t number) {
  int first = (int)(number % (uint64_t)comm->size);
  for (size_t i = 0; i < call->elems; i++) {
    float sum = 0.0f;
    for (int m = 0; m < comm->size; m++) {
      int member = (first + m) % comm->size;
      float x = member == comm->rank ? call->own[i] : call->landing[(size_t)member * call->elems + i];
      sum = m == 0 ? x : reduce(call->reduction, sum, x);
    }
    call->out[i] = sum;
  }
}

static void op_finish(struct comm_op *op) {
  for (const struct call *call = op->calls; call && !op->comm->is_aborted; call = call->next) {
    if (call->reduces)
      call_reduce(op->comm, call, op->number);
    else if (call->own && call->own != call->out)
      memmove(call->out, call->own, call->elems * sizeof *call->out);
  }
  op->comm->n_finished++;
}

/* Flows of one pair and direction follow one another, in the order of the calls; others go on side by side.
 */
static bool is_held(const struct comm_op *op, const struct flow *flow, const bool *held) {
  return held[flow->peer + (flow->is_send ? op->comm->size : 0)];
}

static enum sim_progress comm_run(struct sim_op *base, void **memory, int device) {
  struct comm_op *op = (struct comm_op *)base;
  struct flow_state *states = *memory;
  bool held[2 * SEGMENT_MEMBERS_MAX] = {false}, all = true, has_moved = false;
  size_t n = 0;
  (void)device;
  if (op->comm->n_finished != op->number && !op->comm->is_aborted)
    return SIM_BLOCKED;
  for (const struct call *call = op->calls; call && !states; call = call->next)
    n += (size_t)call->n_flows;
  if (!states)
    *memory = states = mem_new((n + 1) * sizeof *states);
  n = 0;
  for (const struct call *call = op->calls; call && !op->comm->is_aborted; call = call->next)
    for (int f = 0; f < call->n_flows; f++, n++) {
      const struct flow *flow = &call->flows[f];
      if (is_held(op, flow, held) || !flow_step(op->comm, flow, &states[n], &has_moved)) {
        held[flow->peer + (flow->is_send ? op->comm->size : 0)] = true;
        all = false;
      }
    }
  if (!all && !op->comm->is_aborted)
    return has_moved ? SIM_PROGRESS : SIM_BLOCKED;
  op_finish(op);
  free(states);
  *memory = NULL;
  return SIM_DONE;
}

static void comm_drop(struct sim_op *base, void *memory) {
  free(memory);
  ((struct comm_op *)base)->comm->n_finished++;
}

static void calls_free(struct call *call) {
  while (call) {
    struct call *next = call->next;
    free(call->landing);
    free(call);
    call = next;
  }
}

static void comm_fini(struct sim_op *base) {
  struct comm_op *op = (struct comm_op *)base;
  calls_free(op->calls);
  comm_put(op->comm);
}

static ncclResult_t enqueue(struct ncclComm *comm, struct call *calls, cudaStream_t stream) {
  struct comm_op *op = sim_op_new(sizeof *op, "NCCL", comm_run);
  op->op.is_work = true;
  op->op.drop = comm_drop;
  op->op.fini = comm_fini;
  comm->refs++;
  op->comm = comm;
  op->calls = calls;
  op->number = comm->n_issued;
  stream = sim_stream_of(stream);
  if (stream->capture || stream->device != comm->device || comm->is_aborted) {
    sim_complain("NCCL: a stream that is captured or of another device, or a communicator that was aborted");
    sim_op_put(&op->op);
    return ncclInvalidUsage;
  }
  comm->n_issued++;
  if (sim_enqueue(stream, &op->op)) {
    comm->n_issued--;
    return ncclUnhandledCudaError;
  }
  if (comm->is_blocking)
    return ncclSuccess;
  comm->polls_left = (int)(sim_random() % 3);
  return comm->polls_left > 0 ? ncclInProgress : ncclSuccess;
}

ncclResult_t ncclGroupStart(void) {
  group_depth++;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void) {
  ncclResult_t result = ncclSuccess;
  if (group_depth == 0)
    return ncclInvalidUsage;
  if (--group_depth > 0)
    return ncclSuccess;
  while (group_parts) {
    struct group_part *part = group_parts;
    ncclResult_t own = enqueue(part->comm, part->calls, part->stream);
    if (own != ncclSuccess && (result == ncclSuccess || result == ncclInProgress))
      result = own;
    group_parts = part->next;
    free(part);
  }
  return result;
}

static ncclResult_t issue(struct ncclComm *comm, struct call *call, cudaStream_t stream) {
  struct group_part *part = group_parts;
  if (group_depth == 0)
    return enqueue(comm, call, stream);
  while (part && (part->comm != comm || part->stream != stream))
    part = part->next;
  if (!part) {
    part = mem_new(sizeof *part);
    *part = (struct group_part){.comm = comm, .stream = stream, .next = group_parts};
    part->tail = &part->calls;
    group_parts = part;
  }
  *part->tail = call;
  part->tail = &call->next;
  return ncclSuccess;
}

/* An end of a call. NULL where the member has none. */
struct end {
  const void *at;
  size_t elems;
};

static ncclResult_t call_check(struct ncclComm *comm, ncclDataType_t type, struct end in, struct end out) {
  if (!comm || type != ncclFloat32 || !segment_is_full(comm->segment) || comm->is_aborted)
    return ncclInvalidArgument;
  if ((in.elems && !sim_is_device(in.at, in.elems * sizeof(float))) ||
      (out.elems && !sim_is_device(out.at, out.elems * sizeof(float)))) {
    sim_complain("NCCL: a buffer is not device memory, or too short");
    return ncclInvalidArgument;
  }
  return ncclSuccess;
}

static void flow_add(struct call *call, int peer, bool is_send, const void *bytes, size_t elems) {
  if (elems > 0)
    call->flows[call->n_flows++] = (struct flow){peer, is_send, (char *)bytes, elems * sizeof(float)};
}

static void landing_new(struct call *call, const struct ncclComm *comm) {
  call->landing = mem_new(((size_t)comm->size * call->elems + 1) * sizeof *call->landing);
  for (int peer = 0; peer < comm->size; peer++)
    if (peer != comm->rank)
      flow_add(call, peer, false, call->landing + (size_t)peer * call->elems, call->elems);
}

static struct call *call_new(const void *own, void *out, size_t elems) {
  struct call *call = mem_new(sizeof *call);
  call->own = own;
  call->out = out;
  call->elems = elems;
  return call;
}

ncclResult_t ncclAllReduce(const void *in, void *out, size_t elems, ncclDataType_t type,
                           ncclRedOp_t reduction, ncclComm_t comm, cudaStream_t stream) {
  ncclResult_t result = call_check(comm, type, (struct end){in, elems}, (struct end){out, elems});
  struct call *call;
  if (result || reduction > ncclMin)
    return result ? result : ncclInvalidArgument;
  call = call_new(in, out, elems);
  call->reduces = true;
  call->reduction = reduction;
  for (int peer = 0; peer < comm->size; peer++)
    if (peer != comm->rank)
      flow_add(call, peer, true, in, elems);
  landing_new(call, comm);
  return issue(comm, call, stream);
}

ncclResult_t ncclReduce(const void *in, void *out, size_t elems, ncclDataType_t type, ncclRedOp_t reduction,
                        int root, ncclComm_t comm, cudaStream_t stream) {
  bool is_root = comm && comm->rank == root;
  ncclResult_t result =
      call_check(comm, type, (struct end){in, elems}, (struct end){out, is_root ? elems : 0});
  struct call *call;
  if (result || reduction > ncclMin || root < 0 || root >= comm->size)
    return result ? result : ncclInvalidArgument;
  call = call_new(is_root ? in : NULL, out, elems);
  call->reduces = is_root;
  call->reduction = reduction;
  if (is_root)
    landing_new(call, comm);
  else
    flow_add(call, root, true, in, elems);
  return issue(comm, call, stream);
}

ncclResult_t ncclBroadcast(const void *in, void *out, size_t elems, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  bool is_root = comm && comm->rank == root;
  ncclResult_t result =
      call_check(comm, type, (struct end){in, is_root ? elems : 0}, (struct end){out, elems});
  struct call *call;
  if (result || root < 0 || root >= comm->size)
    return result ? result : ncclInvalidArgument;
  call = call_new(is_root ? in : NULL, out, elems);
  for (int peer = 0; is_root && peer < comm->size; peer++)
    if (peer != root)
      flow_add(call, peer, true, in, elems);
  if (!is_root)
    flow_add(call, root, false, out, elems);
  return issue(comm, call, stream);
}

ncclResult_t ncclAllGather(const void *in, void *out, size_t elems, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  size_t total = comm ? elems * (size_t)comm->size : 0;
  ncclResult_t result = call_check(comm, type, (struct end){in, elems}, (struct end){out, total});
  struct call *call;
  if (result)
    return result;
  call = call_new(in, (float *)out + (size_t)comm->rank * elems, elems);
  for (int peer = 0; peer < comm->size; peer++)
    if (peer != comm->rank) {
      flow_add(call, peer, true, in, elems);
      flow_add(call, peer, false, (float *)out + (size_t)peer * elems, elems);
    }
  return issue(comm, call, stream);
}

ncclResult_t ncclReduceScatter(const void *in, void *out, size_t elems, ncclDataType_t type,
                               ncclRedOp_t reduction, ncclComm_t comm, cudaStream_t stream) {
  size_t total = comm ? elems * (size_t)comm->size : 0;
  ncclResult_t result = call_check(comm, type, (struct end){in, total}, (struct end){out, elems});
  struct call *call;
  if (result || reduction > ncclMin)
    return result ? result : ncclInvalidArgument;
  call = call_new((const float *)in + (size_t)comm->rank * elems, out, elems);
  call->reduces = true;
  call->reduction = reduction;
  for (int peer = 0; peer < comm->size; peer++)
    if (peer != comm->rank)
      flow_add(call, peer, true, (const float *)in + (size_t)peer * elems, elems);
  landing_new(call, comm);
  return issue(comm, call, stream);
}

ncclResult_t ncclSend(const void *in, size_t elems, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  ncclResult_t result = call_check(comm, type, (struct end){in, elems}, (struct end){NULL, 0});
  struct call *call;
  if (result || peer < 0 || peer >= comm->size)
    return result ? result : ncclInvalidArgument;
  call = call_new(NULL, NULL, 0);
  flow_add(call, peer, true, in, elems);
  return issue(comm, call, stream);
}

ncclResult_t ncclRecv(void *out, size_t elems, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  ncclResult_t result = call_check(comm, type, (struct end){NULL, 0}, (struct end){out, elems});
  struct call *call;
  if (result || peer < 0 || peer >= comm->size)
    return result ? result : ncclInvalidArgument;
  call = call_new(NULL, NULL, 0);
  flow_add(call, peer, false, out, elems);
  return issue(comm, call, stream);
}
