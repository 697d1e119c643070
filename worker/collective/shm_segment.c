/* The shared segment: its layout, its states, and sleeping on its words. */
#include "worker/collective/shm_segment.h"

#include <errno.h>
#include <linux/futex.h>
#include <limits.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* A container's /dev/shm has 64 MB: boards and rings together stay far below, so that a group and the one
   that replaces it fit twice. */
enum {
  BOARDS_BYTES = 8 << 20,
  SLOT_BYTES_MAX = 1 << 20,
  RINGS_BYTES = 4 << 20,
  RING_BYTES_MAX = 256 << 10,
};

static const char magic[24] = "weir collective shm 4";

static size_t power_of_two_below(size_t x) {
  size_t power = 1;
  while (power * 2 <= x)
    power *= 2;
  return power;
}

static size_t bytes_least(size_t a, size_t b) {
  return a < b ? a : b;
}

struct shm_layout shm_layout_of(int size) {
  struct shm_layout layout;
  size_t members = (size_t)size, pairs = members * members;
  layout.slot_bytes = bytes_least(power_of_two_below(BOARDS_BYTES / SHM_SLOTS / members), SLOT_BYTES_MAX);
  layout.ring_bytes = bytes_least(power_of_two_below(RINGS_BYTES / members), RING_BYTES_MAX);
  layout.boards_at = SHM_HEADER_BYTES;
  layout.pairs_at = layout.boards_at + members * SHM_SLOTS * layout.slot_bytes;
  layout.rings_at = layout.pairs_at + pairs * sizeof(struct shm_pair);
  layout.total_bytes = layout.rings_at + members * layout.ring_bytes;
  layout.total_bytes = (layout.total_bytes + 4095) / 4096 * 4096;
  return layout;
}

int shm_segment_map(struct shm_segment *segment, int fd, int size, struct err *err) {
  struct shm_layout layout = shm_layout_of(size);
  void *memory = mmap(NULL, layout.total_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED)
    return err_set(err, ERR_NO_MEMORY, "mapping %zu bytes of shared memory: %s", layout.total_bytes,
                   strerror(errno));
  *segment = (struct shm_segment){memory, layout, size};
  return 0;
}

void shm_segment_unmap(struct shm_segment *segment) {
  if (segment->header)
    munmap(segment->header, segment->layout.total_bytes);
  segment->header = NULL;
}

void shm_segment_init(struct shm_segment *segment) {
  memcpy(segment->header->magic, magic, sizeof magic);
  segment->header->size = (uint32_t)segment->size;
}

bool shm_segment_is_ours(const struct shm_segment *segment) {
  return memcmp(segment->header->magic, magic, sizeof magic) == 0 &&
         segment->header->size == (uint32_t)segment->size;
}

float *shm_slot(const struct shm_segment *segment, int member, uint64_t chunk) {
  size_t slot = (size_t)member * SHM_SLOTS + chunk % SHM_SLOTS;
  return (float *)((char *)segment->header + segment->layout.boards_at + slot * segment->layout.slot_bytes);
}

struct shm_pair *shm_pair_of(const struct shm_segment *segment, int from, int to) {
  size_t pair = (size_t)from * (size_t)segment->size + (size_t)to;
  return (struct shm_pair *)((char *)segment->header + segment->layout.pairs_at) + pair;
}

char *shm_ring(const struct shm_segment *segment, int from) {
  return (char *)segment->header + segment->layout.rings_at + (size_t)from * segment->layout.ring_bytes;
}

bool shm_state_change(struct shm_segment *segment, enum shm_state from, enum shm_state to) {
  struct shm_header *header = segment->header;
  uint32_t expected = from;
  if (!__atomic_compare_exchange_n(&header->state, &expected, (uint32_t)to, false, __ATOMIC_SEQ_CST,
                                   __ATOMIC_SEQ_CST))
    return false;
  shm_wake(&header->state);
  for (int i = 0; i < segment->size && from == SHM_FORMED; i++) /* before that rings may have no memory */
    shm_notify_of(segment, i);
  return true;
}

enum shm_state shm_state_of(const struct shm_segment *segment) {
  return (enum shm_state)__atomic_load_n(&segment->header->state, __ATOMIC_ACQUIRE);
}

/* Pairs with shm_sleep's callers: they count themselves among the sleepers before they look at the count and
   the counters for the last time, this one changes the count before it looks at the sleepers. */
void shm_notify(struct shm_event *event) {
  __atomic_fetch_add(&event->count, 1, __ATOMIC_SEQ_CST);
  if (__atomic_load_n(&event->sleepers, __ATOMIC_SEQ_CST))
    shm_wake(&event->count);
}

void shm_notify_of(struct shm_segment *segment, int member) {
  shm_notify(&segment->header->members[member].event);
  for (int other = 0; other < segment->size; other++) {
    shm_notify(&shm_pair_of(segment, member, other)->event);
    shm_notify(&shm_pair_of(segment, other, member)->event);
  }
}

void shm_sleep(uint32_t *word, uint32_t seen, int timeout_ms) {
  struct timespec timeout = {timeout_ms / 1000, timeout_ms % 1000 * 1000000L};
  syscall(SYS_futex, word, FUTEX_WAIT, seen, &timeout, NULL, 0);
}

void shm_wake(uint32_t *word) {
  syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}
