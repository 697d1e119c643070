/* Operations of all members, by way of their boards. */
#include <string.h>

#include "worker/collective/reduction.h"
#include "worker/collective/shm.h"

/* DIRECT_BYTES: up to here a reduction is done by each who needs it, which saves one wait for the others.
   SHARE_ELEMS: shares begin on a cache line. */
enum { DIRECT_BYTES = 8 << 10, SHARE_ELEMS = SHM_LINE / sizeof(float) };

struct range {
  size_t begin, end;
};

static bool is_parted(enum collective_kind kind) {
  return kind == COLLECTIVE_SCATTER || kind == COLLECTIVE_REDUCE_SCATTER;
}

static bool is_reduction(enum collective_kind kind) {
  return kind == COLLECTIVE_ALL_REDUCE || kind == COLLECTIVE_REDUCE || kind == COLLECTIVE_REDUCE_SCATTER;
}

static bool is_from_root(enum collective_kind kind) {
  return kind == COLLECTIVE_BROADCAST || kind == COLLECTIVE_SCATTER;
}

static bool is_writer(const struct collective_work *work, int member) {
  return !is_from_root(work->call.kind) || member == work->call.root;
}

static bool is_reader(const struct collective_work *work, int member) {
  switch (work->call.kind) {
  case COLLECTIVE_REDUCE:
  case COLLECTIVE_GATHER:
    return member == work->call.root;
  case COLLECTIVE_BROADCAST:
  case COLLECTIVE_SCATTER:
    return member != work->call.root;
  default:
    return true;
  }
}

static void work_begin(struct collective *c, struct collective_work *work) {
  size_t slot_elems = c->segment.layout.slot_bytes / sizeof(float), elems = work->call.elems;
  enum collective_kind kind = work->call.kind;
  work->chunk_elems = is_parted(kind) ? slot_elems / (size_t)c->size : slot_elems;
  work->is_sliced =
      (kind == COLLECTIVE_ALL_REDUCE || kind == COLLECTIVE_REDUCE) && elems * sizeof(float) > DIRECT_BYTES;
  work->n_chunks = elems / work->chunk_elems + (elems % work->chunk_elems != 0);
  work->base = c->chunks;
  c->chunks += work->n_chunks;
  work->is_begun = true;
}

/* The elements of out (or of each part) that chunk c holds. */
static struct range chunk_of(const struct collective_work *work, uint64_t chunk) {
  size_t begins = chunk * work->chunk_elems, left = work->call.elems - begins;
  return (struct range){begins, begins + (left < work->chunk_elems ? left : work->chunk_elems)};
}

/* Member's share of a chunk, as places in its slots. */
static struct range share_of(const struct collective *c, struct range chunk, int member) {
  size_t elems = chunk.end - chunk.begin, size = (size_t)c->size;
  size_t share = ((elems + size - 1) / size + SHARE_ELEMS - 1) / SHARE_ELEMS * SHARE_ELEMS;
  size_t begins = share * (size_t)member, ends = begins + share;
  return (struct range){begins < elems ? begins : elems, ends < elems ? ends : elems};
}

static void elems_copy(float *to, const float *from, size_t elems) {
  if (to != from)
    memmove(to, from, elems * sizeof *to);
}

/* What the member gives goes on its board. Its own part goes straight to where it is wanted, at the end: it
   may overwrite what `in` holds of this chunk. */
static void write_chunk(struct collective *c, struct collective_work *work, uint64_t chunk) {
  const struct collective_call *call = &work->call;
  struct range range = chunk_of(work, chunk), mine = share_of(c, range, c->rank);
  size_t elems = range.end - range.begin, own = (size_t)c->rank * call->elems + range.begin;
  float *slot = shm_slot(&c->segment, c->rank, work->base + chunk);
  if (is_parted(call->kind)) {
    for (int part = 0; part < c->size; part++)
      if (part != c->rank)
        elems_copy(slot + (size_t)part * work->chunk_elems,
                   call->in + (size_t)part * call->elems + range.begin, elems);
  } else if (work->is_sliced) {
    elems_copy(slot, call->in + range.begin, mine.begin);
    elems_copy(slot + mine.end, call->in + range.begin + mine.end, elems - mine.end);
  } else
    elems_copy(slot, call->in + range.begin, elems);
  if (call->kind == COLLECTIVE_SCATTER)
    elems_copy(call->out + range.begin, call->in + own, elems);
  if (call->kind == COLLECTIVE_BROADCAST && call->out) /* root's own may be NULL */
    elems_copy(call->out + range.begin, call->in + range.begin, elems);
  if (call->kind == COLLECTIVE_ALL_GATHER || (call->kind == COLLECTIVE_GATHER && c->rank == call->root))
    elems_copy(call->out + own, call->in + range.begin, elems);
}

/* Which places of all members' slots are reduced, and where to. Of this member it is `in` itself, from the
   same places on. */
struct reduced {
  struct range places;
  const float *in;
  float *out;
};

static void slots_reduce(struct collective *c, const struct collective_work *work, uint64_t chunk,
                         const struct reduced *reduced) {
  const float *sources[COLLECTIVE_SIZE_MAX];
  for (int member = 0; member < c->size; member++)
    sources[member] = (member == c->rank ? reduced->in : shm_slot(&c->segment, member, work->base + chunk)) +
                      reduced->places.begin;
  reduction_of(work->call.reduction, sources, c->size, reduced->places.end - reduced->places.begin,
               reduced->out);
}

/* The member's share, into its place on its own board, which nobody has written: there the others find it. */
static void reduce_chunk(struct collective *c, struct collective_work *work, uint64_t chunk) {
  struct range range = chunk_of(work, chunk), mine = share_of(c, range, c->rank);
  float *slot = shm_slot(&c->segment, c->rank, work->base + chunk);
  slots_reduce(c, work, chunk, &(struct reduced){mine, work->call.in + range.begin, slot + mine.begin});
}

static void read_reduced(struct collective *c, struct collective_work *work, uint64_t chunk) {
  const struct collective_call *call = &work->call;
  struct range range = chunk_of(work, chunk);
  size_t elems = range.end - range.begin;
  if (work->is_sliced)
    for (int member = 0; member < c->size; member++) {
      struct range share = share_of(c, range, member);
      elems_copy(call->out + range.begin + share.begin,
                 shm_slot(&c->segment, member, work->base + chunk) + share.begin, share.end - share.begin);
    }
  else if (call->kind == COLLECTIVE_REDUCE_SCATTER) {
    /* Places of the slots; in holds this member's part elsewhere. */
    struct range places = {(size_t)c->rank * work->chunk_elems, (size_t)c->rank * work->chunk_elems + elems};
    const float *in = call->in + (size_t)c->rank * call->elems + range.begin;
    slots_reduce(c, work, chunk, &(struct reduced){places, in - places.begin, call->out + range.begin});
  } else
    slots_reduce(c, work, chunk,
                 &(struct reduced){{0, elems}, call->in + range.begin, call->out + range.begin});
}

static void read_chunk(struct collective *c, struct collective_work *work, uint64_t chunk) {
  const struct collective_call *call = &work->call;
  struct range range = chunk_of(work, chunk);
  size_t elems = range.end - range.begin, part = (size_t)c->rank * work->chunk_elems;
  if (is_reduction(call->kind))
    read_reduced(c, work, chunk);
  else if (is_from_root(call->kind))
    elems_copy(call->out + range.begin,
               shm_slot(&c->segment, call->root, work->base + chunk) + (is_parted(call->kind) ? part : 0),
               elems);
  else
    for (int member = 0; member < c->size; member++)
      if (member != c->rank)
        elems_copy(call->out + (size_t)member * call->elems + range.begin,
                   shm_slot(&c->segment, member, work->base + chunk), elems);
}

enum counter { WRITTEN, REDUCED, DONE };

/* True if the counter of every member (or of root alone) has come to `chunk`; else blocker is one whose has
 * not. */
static bool have_come(struct collective *c, enum counter counter, uint64_t chunk, int only) {
  for (int i = 0; i < c->size; i++) {
    int member = (c->rank + i) % c->size; /* not all at the same one */
    struct shm_member *of = &c->segment.header->members[member];
    uint64_t *at = counter == WRITTEN ? &of->written : counter == REDUCED ? &of->reduced : &of->done;
    if ((only < 0 || member == only) && __atomic_load_n(at, __ATOMIC_ACQUIRE) < chunk) {
      c->blocker = member;
      c->awaited = &of->event;
      return false;
    }
  }
  return true;
}

static void counter_publish(struct collective *c, uint64_t *counter, uint64_t chunks) {
  __atomic_store_n(counter, chunks, __ATOMIC_RELEASE);
  shm_notify(&c->segment.header->members[c->rank].event);
}

static bool step_write(struct collective *c, struct collective_work *work, struct shm_member *me) {
  uint64_t chunk = work->base + work->written;
  bool writes = is_writer(work, c->rank);
  if (work->written == work->n_chunks ||
      (writes && chunk >= SHM_SLOTS && !have_come(c, DONE, chunk + 1 - SHM_SLOTS, -1)))
    return false;
  if (writes)
    write_chunk(c, work, work->written);
  work->written++;
  counter_publish(c, &me->written, chunk + 1);
  return true;
}

static bool step_reduce(struct collective *c, struct collective_work *work, struct shm_member *me) {
  uint64_t chunk = work->base + work->reduced;
  if (work->reduced == work->written || (work->is_sliced && !have_come(c, WRITTEN, chunk + 1, -1)))
    return false;
  if (work->is_sliced) {
    reduce_chunk(c, work, work->reduced);
    counter_publish(c, &me->reduced, chunk + 1);
  }
  work->reduced++;
  return true;
}

static bool step_read(struct collective *c, struct collective_work *work, struct shm_member *me) {
  uint64_t chunk = work->base + work->done;
  bool reads = is_reader(work, c->rank);
  int only = is_from_root(work->call.kind) ? work->call.root : -1;
  if (work->done == work->reduced ||
      (reads && !have_come(c, work->is_sliced ? REDUCED : WRITTEN, chunk + 1, only)))
    return false;
  if (reads)
    read_chunk(c, work, work->done);
  work->done++;
  counter_publish(c, &me->done, chunk + 1);
  return true;
}

bool shm_board_step(struct collective *c, struct collective_work *work) {
  struct shm_member *me = &c->segment.header->members[c->rank];
  if (!work->is_begun)
    work_begin(c, work);
  /* What lets the others go on comes first. */
  while (step_write(c, work, me) || step_reduce(c, work, me) || step_read(c, work, me))
    ;
  return work->done == work->n_chunks;
}
