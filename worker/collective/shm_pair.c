/* Send and receive: through the sender's ring of bytes. */
#include <string.h>

#include "worker/collective/shm.h"

static size_t bytes_least(size_t a, size_t b) {
  return a < b ? a : b;
}

struct ring {
  char *data;
  size_t size_bytes;
};

/* Copies `bytes` between the ring, from place `at` on, and `memory`; the ring's end may be in between. */
static void ring_copy(struct ring ring, uint64_t at, char *memory, size_t bytes, bool is_send) {
  while (bytes) {
    size_t place = at % ring.size_bytes, run = bytes_least(bytes, ring.size_bytes - place);
    memcpy(is_send ? ring.data + place : memory, is_send ? memory : ring.data + place, run);
    at += run, memory += run, bytes -= run;
  }
}

/* The pair whose bytes are the first in this member's ring; NULL: it is empty. */
static struct shm_pair *first_pair(struct collective *c, int *to) {
  struct shm_pair *first = NULL;
  uint64_t least_place = UINT64_MAX;
  for (int member = 0; member < c->size; member++) {
    struct shm_pair *pair = shm_pair_of(&c->segment, c->rank, member);
    uint64_t tail = __atomic_load_n(&pair->tail, __ATOMIC_ACQUIRE);
    if (tail == pair->head || pair->base + tail >= least_place)
      continue;
    first = pair;
    least_place = pair->base + tail;
    *to = member;
  }
  return first;
}

/* How many bytes can be put into the ring for the member; 0: blocker and awaited are set. */
static size_t room_for(struct collective *c, int to) {
  struct shm_pair *pair = shm_pair_of(&c->segment, c->rank, to), *first;
  uint64_t tail = __atomic_load_n(&pair->tail, __ATOMIC_ACQUIRE);
  size_t used;
  int blocker = to;
  if (tail != pair->head && pair->base + pair->head != c->placed) { /* others' bytes are behind its */
    c->blocker = to;
    c->awaited = &pair->event;
    return 0;
  }
  if (tail == pair->head)
    pair->base = c->placed - pair->head;
  first = first_pair(c, &blocker);
  used = first ? (size_t)(c->placed - first->base - __atomic_load_n(&first->tail, __ATOMIC_ACQUIRE)) : 0;
  c->blocker = blocker;
  c->awaited = first ? &first->event : &pair->event;
  return c->segment.layout.ring_bytes - used;
}

/* How many bytes of the member's can be taken out of its ring; likewise. */
static size_t there_from(struct collective *c, int from) {
  struct shm_pair *pair = shm_pair_of(&c->segment, from, c->rank);
  c->blocker = from;
  c->awaited = &pair->event;
  return (size_t)(__atomic_load_n(&pair->head, __ATOMIC_ACQUIRE) - pair->tail);
}

bool shm_pair_step(struct collective *c, struct collective_work *work) {
  bool is_send = work->call.kind == COLLECTIVE_SEND;
  int peer = work->call.root, from = is_send ? c->rank : peer, to = is_send ? peer : c->rank;
  struct ring ring = {shm_ring(&c->segment, from), c->segment.layout.ring_bytes};
  size_t total = work->call.elems * sizeof(float);
  struct shm_pair *pair = shm_pair_of(&c->segment, from, to);
  uint64_t *counter = is_send ? &pair->head : &pair->tail;
  char *memory = is_send ? (char *)work->call.in : (char *)work->call.out;
  work->is_begun = true;
  while (work->moved_bytes < total) {
    size_t can = is_send ? room_for(c, peer) : there_from(c, peer);
    /* In halves, so that both sides copy at the same time. */
    size_t bytes = bytes_least(bytes_least(can, ring.size_bytes / 2), total - work->moved_bytes);
    if (!bytes)
      return false;
    ring_copy(ring, pair->base + *counter, memory + work->moved_bytes, bytes, is_send);
    work->moved_bytes += bytes;
    c->placed += is_send ? bytes : 0;
    __atomic_store_n(counter, *counter + bytes, __ATOMIC_RELEASE);
    shm_notify(&pair->event);
  }
  return true;
}
