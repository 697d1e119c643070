/* Operations of an nccl group, phase by phase. With is_fast they are NCCL's. Else NCCL only carries: each
   member gets its share of every other's array, reduces the shares along the tree, and the results are
   gathered; so the bits are those of the shm collective. */
#include "worker/backend/cuda/nccl/nccl.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/memory.h"
#include "worker/backend/cuda/nccl/reduction.h"

enum { BLOCK_BYTES_LEAST = 1 << 16, SHARE_ELEMS = 32 };

struct range {
  size_t begin, elems;
};

static bool is_reduction(enum collective_kind kind) {
  return kind == COLLECTIVE_ALL_REDUCE || kind == COLLECTIVE_REDUCE || kind == COLLECTIVE_REDUCE_SCATTER;
}

/* What the member reduces, as a range of in: of a reduce-scatter its part. */
static struct range share_of(const struct collective *c, const struct collective_call *call, int member) {
  size_t n = call->elems, size = (size_t)c->size, at = (size_t)member;
  size_t share = ((n + size - 1) / size + SHARE_ELEMS - 1) / SHARE_ELEMS * SHARE_ELEMS;
  size_t begin = at * share < n ? at * share : n;
  if (call->kind == COLLECTIVE_REDUCE_SCATTER)
    return (struct range){at * n, n};
  return (struct range){begin, n - begin < share ? n - begin : share};
}

/* The smallest block that is large enough, or a new one. */
static void *buffer_borrow(struct collective *c, struct collective_work *work, size_t elems, bool is_pinned) {
  size_t size_bytes = elems * sizeof(float);
  struct nccl_block **best = NULL, *block;
  cudaError_t status;
  for (struct nccl_block **at = &c->blocks; *at; at = &(*at)->next)
    if ((*at)->is_pinned == is_pinned && (*at)->size_bytes >= size_bytes &&
        (!best || (*at)->size_bytes < (*best)->size_bytes))
      best = at;
  if (best) {
    block = *best;
    *best = block->next;
  } else {
    block = mem_new(sizeof *block);
    block->is_pinned = is_pinned;
    block->size_bytes = size_bytes > BLOCK_BYTES_LEAST ? size_bytes : BLOCK_BYTES_LEAST;
    status = is_pinned ? cudaHostAlloc(&block->bytes, block->size_bytes, cudaHostAllocDefault)
                       : cudaMalloc(&block->bytes, block->size_bytes);
    if (!nccl_cuda_ok(c, status, "allocate what a group exchanges")) {
      free(block);
      return NULL;
    }
  }
  work->blocks[work->n_blocks++] = block;
  return block->bytes;
}

void nccl_give_back(struct collective *c, struct collective_work *work) {
  while (work->n_blocks) {
    struct nccl_block *block = work->blocks[--work->n_blocks];
    block->next = c->blocks;
    c->blocks = block;
  }
}

enum place { ON_DEVICE, PINNED, PAGEABLE };

static enum cudaMemoryType type_of(const void *memory) {
  struct cudaPointerAttributes attributes;
  if (cudaPointerGetAttributes(&attributes, memory) == cudaSuccess)
    return attributes.type;
  cudaGetLastError(); /* it is looked at after a launch */
  return cudaMemoryTypeUnregistered;
}

/* Memory of which only a part is pinned cannot be copied as if all of it were. */
static enum place place_of(const float *memory, size_t elems) {
  enum cudaMemoryType type = type_of(memory);
  if (type == cudaMemoryTypeDevice || type == cudaMemoryTypeManaged)
    return ON_DEVICE;
  return type == cudaMemoryTypeHost && type_of(memory + elems - 1) == type ? PINNED : PAGEABLE;
}

static bool floats_copy(struct collective *c, void *to, const void *from, size_t elems) {
  if (to == from || elems == 0)
    return true;
  return nccl_cuda_ok(c, cudaMemcpyAsync(to, from, elems * sizeof(float), cudaMemcpyDefault, c->stream),
                      "copy what a group exchanges");
}

static bool is_root_of_broadcast(const struct collective *c, const struct collective_call *call) {
  return call->kind == COLLECTIVE_BROADCAST && c->rank == call->root;
}

/* Root's own out of a broadcast is filled as well. */
static size_t out_elems_of(const struct collective *c, const struct collective_call *call) {
  return is_root_of_broadcast(c, call) && call->out ? call->elems
                                                    : collective_out_elems(call, c->rank, c->size);
}

/* What comes from pageable memory is read by this thread, and what goes there is written by it when a work is
   finished: the one waits for the other, in case it is the same memory. */
static bool must_wait(const struct collective *c, const struct collective_work *work) {
  size_t in_elems = collective_in_elems(&work->call, c->rank, c->size);
  return c->n_landing > 0 && in_elems && place_of(work->call.in, in_elems) == PAGEABLE;
}

/* Puts in and out where NCCL reaches them. */
static bool work_bring(struct collective *c, struct collective_work *work) {
  const struct collective_call *call = &work->call;
  size_t in_elems = collective_in_elems(call, c->rank, c->size), out_elems = out_elems_of(c, call);
  enum place in = in_elems ? place_of(call->in, in_elems) : ON_DEVICE,
             out = out_elems ? place_of(call->out, out_elems) : ON_DEVICE;
  const float *from = call->in;
  float *to;
  work->in = in_elems ? call->in : NULL;
  work->out = out_elems ? call->out : NULL;
  if (in == PAGEABLE) {
    if (!(work->pinned_in = buffer_borrow(c, work, in_elems, true)))
      return false;
    from = memcpy(work->pinned_in, call->in, in_elems * sizeof(float));
  }
  if (in != ON_DEVICE) { /* of a broadcast, straight to where root has it, too */
    bool is_at_out = is_root_of_broadcast(c, call) && out_elems && out == ON_DEVICE;
    work->in = to = is_at_out ? call->out : buffer_borrow(c, work, in_elems, false);
    if (!to || !floats_copy(c, to, from, in_elems))
      return false;
  }
  if (is_root_of_broadcast(c, call))
    work->out = (float *)work->in;
  else if (out != ON_DEVICE && !(work->out = buffer_borrow(c, work, out_elems, false)))
    return false;
  if (out == PAGEABLE && !(work->pinned_out = buffer_borrow(c, work, out_elems, true)))
    return false;
  c->n_landing += out == PAGEABLE;
  if (is_reduction(call->kind) && !c->is_fast) {
    size_t share = share_of(c, call, c->rank).elems;
    return share == 0 || (work->parts = buffer_borrow(c, work, share * (size_t)c->size, false)) != NULL;
  }
  return true;
}

static bool floats_send(struct collective *c, const float *from, size_t elems, int to) {
  return elems == 0 || nccl_ok(c, ncclSend(from, elems, ncclFloat32, to, c->comm, c->stream), "send");
}

static bool floats_receive(struct collective *c, float *to, size_t elems, int from) {
  return elems == 0 || nccl_ok(c, ncclRecv(to, elems, ncclFloat32, from, c->comm, c->stream), "receive");
}

/* Each gives each other member its share. */
static bool exchange_shares(struct collective *c, struct collective_work *work) {
  struct range mine = share_of(c, &work->call, c->rank);
  bool is_ok = true;
  for (int member = 0; member < c->size; member++)
    if (member != c->rank) {
      struct range theirs = share_of(c, &work->call, member);
      is_ok = is_ok && floats_send(c, work->in + theirs.begin, theirs.elems, member) &&
              floats_receive(c, work->parts + (size_t)member * mine.elems, mine.elems, member);
    }
  return is_ok;
}

/* The parts of all, and this member's own where it lies, into its place in out; at a member without out, into
   the parts, where what it overwrites is its own. */
static bool reduce_share(struct collective *c, struct collective_work *work) {
  struct range mine = share_of(c, &work->call, c->rank);
  struct cuda_reduction reduction = {.kind = (enum cuda_reduction_kind)work->call.reduction,
                                     .n_sources = c->size,
                                     .elems = (int64_t)mine.elems};
  float *own = work->parts + (size_t)c->rank * mine.elems;
  if (mine.elems == 0)
    return true;
  for (int member = 0; member < c->size; member++)
    reduction.sources[member] =
        member == c->rank ? work->in + mine.begin : work->parts + (size_t)member * mine.elems;
  reduction.out = work->call.kind == COLLECTIVE_REDUCE_SCATTER ? work->out
                  : work->out                                  ? work->out + mine.begin
                                                               : own;
  cuda_reduction_launch(&reduction, c->stream);
  return nccl_cuda_ok(c, cudaGetLastError(), "reduce what a group exchanged");
}

/* Of the reduced shares, to all or to root. */
static bool gather_shares(struct collective *c, struct collective_work *work) {
  bool is_for_all = work->call.kind == COLLECTIVE_ALL_REDUCE, is_ok = true;
  struct range mine = share_of(c, &work->call, c->rank);
  const float *reduced = work->out ? work->out + mine.begin : work->parts + (size_t)c->rank * mine.elems;
  for (int member = 0; member < c->size && is_ok; member++) {
    struct range theirs = share_of(c, &work->call, member);
    if (member != c->rank && (is_for_all || member == work->call.root))
      is_ok = floats_send(c, reduced, mine.elems, member);
    if (is_ok && member != c->rank && (is_for_all || c->rank == work->call.root))
      is_ok = floats_receive(c, work->out + theirs.begin, theirs.elems, member);
  }
  return is_ok;
}

static bool work_gather(struct collective *c, struct collective_work *work) {
  const struct collective_call *call = &work->call;
  bool is_ok = true;
  if (c->rank != call->root)
    return floats_send(c, work->in, call->elems, call->root);
  for (int member = 0; member < c->size && is_ok; member++)
    if (member != c->rank)
      is_ok = floats_receive(c, work->out + (size_t)member * call->elems, call->elems, member);
  return is_ok;
}

static bool work_scatter(struct collective *c, struct collective_work *work) {
  const struct collective_call *call = &work->call;
  bool is_ok = true;
  if (c->rank != call->root)
    return floats_receive(c, work->out, call->elems, call->root);
  for (int member = 0; member < c->size && is_ok; member++)
    if (member != c->rank)
      is_ok = floats_send(c, work->in + (size_t)member * call->elems, call->elems, member);
  return is_ok;
}

/* NCCL's own reductions. It wants out apart from in, or at its part of it. */
static bool reduce_fast(struct collective *c, struct collective_work *work) {
  static const ncclRedOp_t ops[] = {ncclSum, ncclProd, ncclMax, ncclMin};
  const struct collective_call *call = &work->call;
  ncclRedOp_t op = ops[call->reduction];
  size_t n = call->elems;
  if (call->kind == COLLECTIVE_ALL_REDUCE)
    return nccl_ok(c, ncclAllReduce(work->in, work->out, n, ncclFloat32, op, c->comm, c->stream), "reduce");
  if (call->kind == COLLECTIVE_REDUCE)
    return nccl_ok(c, ncclReduce(work->in, work->out, n, ncclFloat32, op, call->root, c->comm, c->stream),
                   "reduce");
  float *out = work->out;
  if (out == work->in && c->rank != 0 && !(out = buffer_borrow(c, work, n, false)))
    return false;
  work->parts = out != work->out ? out : NULL; /* copied to out in the last phase */
  return nccl_ok(c, ncclReduceScatter(work->in, out, n, ncclFloat32, op, c->comm, c->stream), "reduce");
}

/* The member's own part, where it does not come by NCCL. Before what may overwrite in. */
static bool copy_own(struct collective *c, struct collective_work *work) {
  const struct collective_call *call = &work->call;
  if (call->kind == COLLECTIVE_ALL_GATHER || (call->kind == COLLECTIVE_GATHER && c->rank == call->root))
    return floats_copy(c, work->out + (size_t)c->rank * call->elems, work->in, call->elems);
  return true;
}

static bool work_carry(struct collective *c, struct collective_work *work) {
  const struct collective_call *call = &work->call;
  float *own;
  switch (call->kind) {
  case COLLECTIVE_BROADCAST:
    return nccl_ok(
        c, ncclBroadcast(work->out, work->out, call->elems, ncclFloat32, call->root, c->comm, c->stream),
        "broadcast");
  case COLLECTIVE_ALL_GATHER:
    own = work->out + (size_t)c->rank * call->elems;
    return nccl_ok(c, ncclAllGather(own, work->out, call->elems, ncclFloat32, c->comm, c->stream), "gather");
  case COLLECTIVE_GATHER:
    return work_gather(c, work);
  case COLLECTIVE_SCATTER:
    return work_scatter(c, work);
  case COLLECTIVE_SEND:
    return floats_send(c, work->in, call->elems, call->root);
  case COLLECTIVE_RECEIVE:
    return floats_receive(c, work->out, call->elems, call->root);
  default:
    return c->is_fast ? reduce_fast(c, work) : exchange_shares(c, work);
  }
}

/* The calls of one phase are one group: they go on side by side. */
static bool in_group(struct collective *c, struct collective_work *work,
                     bool (*calls)(struct collective *c, struct collective_work *work)) {
  bool is_ok = nccl_ok(c, ncclGroupStart(), "begin a group of calls") && calls(c, work);
  return nccl_ok(c, ncclGroupEnd(), "start a group of calls") && is_ok;
}

/* To host memory, and what tells that all is done. */
static bool work_take(struct collective *c, struct collective_work *work) {
  const struct collective_call *call = &work->call;
  size_t out_elems = out_elems_of(c, call), own = (size_t)c->rank * call->elems;
  float *to = work->pinned_out ? work->pinned_out : call->out;
  if (c->is_fast && call->kind == COLLECTIVE_REDUCE_SCATTER && work->parts &&
      !floats_copy(c, work->out, work->parts, call->elems))
    return false;
  if (call->kind == COLLECTIVE_SCATTER && c->rank == call->root &&
      !floats_copy(c, work->out, work->in + own, call->elems))
    return false;
  if (out_elems && !floats_copy(c, to, work->out, out_elems))
    return false;
  return nccl_cuda_ok(c, cudaEventRecord(work->event, c->stream), "record an event");
}

void nccl_issue(struct collective *c, struct collective_work *work) {
  enum collective_kind kind = work->call.kind;
  bool is_exact = is_reduction(kind) && !c->is_fast;
  while (work->phase < NCCL_PHASES && nccl_is_ready(c) && !c->fault.code)
    switch (work->phase++) {
    case 0:
      if (!nccl_gate_is_open(work) || must_wait(c, work)) {
        work->phase = 0;
        return;
      }
      if (work_bring(c, work) && copy_own(c, work))
        in_group(c, work, work_carry);
      break;
    case 1:
      if (is_exact && reduce_share(c, work) && kind != COLLECTIVE_REDUCE_SCATTER)
        in_group(c, work, gather_shares);
      break;
    default:
      work_take(c, work);
    }
}

void nccl_finish(struct collective *c, struct collective_work *work) {
  if (work->pinned_out) {
    memcpy(work->call.out, work->pinned_out, out_elems_of(c, &work->call) * sizeof(float));
    c->n_landing--;
  }
  nccl_give_back(c, work);
}
