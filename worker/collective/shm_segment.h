/* What the members of a shm group share: one mapped segment of /dev/shm.

   header | boards: a member's SLOTS slots each | pairs: one for each ordered pair | rings: one a member

   A member writes what it gives to all on its board, and what it sends into its ring. What is for one member
   lies together in the ring, and behind it what is for the next. All counters only grow. Each counter is
   written by one member alone, except `state` and `joined`. */
#ifndef WEIR_WORKER_COLLECTIVE_SHM_SEGMENT_H
#define WEIR_WORKER_COLLECTIVE_SHM_SEGMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "worker/collective/collective.h"

enum { SHM_LINE = 64, SHM_SLOTS = 4 };

/* GIVEN_UP: it was never formed. ABORTED: it was, even if a member has not seen it yet. */
enum shm_state { SHM_FORMING, SHM_FORMED, SHM_ABORTED, SHM_GIVEN_UP };

/* Who waits for something sleeps on the count, which changes with it. */
struct shm_event {
  uint32_t count, sleepers;
};

struct shm_member {
  /* Chunks of board operations since the group began: laid on the board, reduced, and no longer needed of
     anybody's board. */
  _Alignas(SHM_LINE) uint64_t written, reduced, done;
  _Alignas(SHM_LINE) struct shm_event event; /* with each change of those */
  uint32_t has_joined, has_left;
};

/* An event of its own: the many that send to one member are not all woken with each of its reads. */
struct shm_pair {
  _Alignas(SHM_LINE) uint64_t head; /* bytes that the sender has put in */
  uint64_t base;                    /* where they are: byte b is at place base + b of the ring, for all
                                       that are not taken yet */
  uint32_t done;                    /* operations of both, as the sender told when it left: shm_say_done */
  _Alignas(SHM_LINE) uint64_t tail; /* bytes that the receiver has taken out */
  _Alignas(SHM_LINE) struct shm_event event; /* with each change of either */
};

struct shm_header {
  char magic[24];
  uint32_t size;
  _Alignas(SHM_LINE) uint32_t state;
  uint32_t n_joined;
  uint32_t n_ready, agreement; /* shm_meeting.h */
  struct shm_member members[COLLECTIVE_SIZE_MAX];
};

enum { SHM_HEADER_BYTES = (sizeof(struct shm_header) + 4095) / 4096 * 4096 };

/* Where things lie: follows from the group's size alone, so that nothing that the file says is relied on. */
struct shm_layout {
  size_t slot_bytes, ring_bytes;
  size_t boards_at, pairs_at, rings_at, total_bytes;
};

struct shm_segment {
  struct shm_header *header; /* NULL: not mapped */
  struct shm_layout layout;
  int size;
};

struct shm_layout shm_layout_of(int size);

/* Maps layout.total_bytes of the open file. What it is shorter by is not to be touched before it has grown: a
   group's file has SHM_HEADER_BYTES while the group forms, and all once it is formed. */
int shm_segment_map(struct shm_segment *segment, int fd, int size, struct err *err);
void shm_segment_unmap(struct shm_segment *segment);
void shm_segment_init(struct shm_segment *segment); /* of a new, zeroed file */
bool shm_segment_is_ours(const struct shm_segment *segment);

float *shm_slot(const struct shm_segment *segment, int member, uint64_t chunk);
struct shm_pair *shm_pair_of(const struct shm_segment *segment, int from, int to);
char *shm_ring(const struct shm_segment *segment, int from);

/* From one state to another; false, with nothing changed, if it is not in the first. Wakes who waits. */
bool shm_state_change(struct shm_segment *segment, enum shm_state from, enum shm_state to);
enum shm_state shm_state_of(const struct shm_segment *segment);

/* Tells who sleeps that something has happened, after it was stored. */
void shm_notify(struct shm_event *event);
void shm_notify_of(struct shm_segment *segment, int member); /* who waits for the member in any way */

/* Futex on a shared word: sleeps while it holds `seen`, for at most timeout_ms. */
void shm_sleep(uint32_t *word, uint32_t seen, int timeout_ms);
void shm_wake(uint32_t *word);

#endif
