/* Send and receive: a ring of bytes for each ordered pair. */
#include <string.h>

#include "worker/collective/shm.h"

static size_t least(size_t a, size_t b) {
  return a < b ? a : b;
}

/* Copies `bytes` between the ring, from place `at` on, and `memory`; the ring's end may be in between. */
static void copy(char *ring, size_t ring_bytes, uint64_t at, char *memory, size_t bytes, bool is_send) {
  while (bytes) {
    size_t place = at % ring_bytes, run = least(bytes, ring_bytes - place);
    memcpy(is_send ? ring + place : memory, is_send ? memory : ring + place, run);
    at += run, memory += run, bytes -= run;
  }
}

bool shm_pair_step(struct collective *c, struct collective_work *work) {
  bool is_send = work->call.kind == COLLECTIVE_SEND;
  int from = is_send ? c->rank : work->call.root, to = is_send ? work->call.root : c->rank;
  size_t ring_bytes = c->segment.layout.ring_bytes, total = work->call.elems * sizeof(float);
  struct shm_ring *ring = shm_ring_of(&c->segment, from, to);
  char *memory = is_send ? (char *)work->call.in : (char *)work->call.out;
  work->is_begun = true;
  while (work->moved_bytes < total) {
    uint64_t head = __atomic_load_n(&ring->head, __ATOMIC_ACQUIRE);
    uint64_t tail = __atomic_load_n(&ring->tail, __ATOMIC_ACQUIRE);
    size_t can = is_send ? ring_bytes - (size_t)(head - tail) : (size_t)(head - tail);
    /* In halves, so that both sides copy at the same time. */
    size_t bytes = least(least(can, ring_bytes / 2), total - work->moved_bytes);
    if (!bytes) {
      c->blocker = work->call.root;
      c->awaited = &ring->event;
      return false;
    }
    copy(shm_ring_bytes(&c->segment, from, to), ring_bytes, is_send ? head : tail, memory + work->moved_bytes,
         bytes, is_send);
    work->moved_bytes += bytes;
    __atomic_store_n(is_send ? &ring->head : &ring->tail, (is_send ? head : tail) + bytes, __ATOMIC_RELEASE);
    shm_notify(&ring->event);
  }
  return true;
}
