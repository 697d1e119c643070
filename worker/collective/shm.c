/* Collectives through shared memory, among processes and threads of one host. */
#include "worker/collective/shm.h"

#include <stdlib.h>

#include "common/base/memory.h"
#include "common/machine/cores.h"
#include "worker/collective/shm_meeting.h"
#include "worker/collective/shm_rendezvous.h"

/* SPINS: about ten microseconds, where every member can have a processor to itself; SLEEP_MS bounds one
   sleep, for whoever has died between a change and its wake. */
enum { SPINS = 300, SLEEP_MS = 100 };

static int shm_open_group(const struct collective_options *options, struct collective **out,
                          struct err *err) {
  struct collective *c;
  if (collective_check_options(options, err))
    return err->code;
  c = mem_new(sizeof *c);
  c->rank = options->rank;
  c->size = options->size;
  c->spins = options->size <= cores_available("") ? SPINS : 0;
  c->end = &c->first;
  if (shm_rendezvous(options, &c->segment, err)) {
    free(c);
    return err->code;
  }
  *out = c;
  return 0;
}

static void free_all(struct collective_work *list) {
  while (list) {
    struct collective_work *next = list->next;
    free(list);
    list = next;
  }
}

static void shm_abort(struct collective *c) {
  shm_state_change(&c->segment, SHM_FORMED, SHM_ABORTED);
}

static bool shm_is_aborted(const struct collective *c) {
  return shm_state_of(&c->segment) == SHM_ABORTED;
}

void shm_say_done(struct collective *c, const uint32_t *done_with) {
  for (int to = 0; to < c->size; to++)
    shm_pair_of(&c->segment, c->rank, to)->done = done_with[to];
}

bool shm_has_left(const struct collective *c, int member, uint32_t *done) {
  if (!__atomic_load_n(&c->segment.header->members[member].has_left, __ATOMIC_ACQUIRE))
    return false;
  *done = shm_pair_of(&c->segment, member, c->rank)->done;
  return true;
}

static void agreement_decide(struct shm_header *header, enum shm_agreement agreement) {
  uint32_t undecided = SHM_UNDECIDED;
  __atomic_compare_exchange_n(&header->agreement, &undecided, (uint32_t)agreement, false, __ATOMIC_SEQ_CST,
                              __ATOMIC_SEQ_CST);
}

void shm_say_ready(struct collective *c) {
  struct shm_header *header = c->segment.header;
  if (__atomic_add_fetch(&header->n_ready, 1, __ATOMIC_SEQ_CST) == (uint32_t)c->size)
    agreement_decide(header, SHM_ALL_READY);
}

enum shm_agreement shm_agreement(struct collective *c, bool gives_up) {
  if (gives_up)
    agreement_decide(c->segment.header, SHM_NOT_ALL);
  return (enum shm_agreement)__atomic_load_n(&c->segment.header->agreement, __ATOMIC_SEQ_CST);
}

static void shm_close(struct collective *c) {
  if (!c)
    return;
  if (c->first)
    shm_abort(c);
  __atomic_store_n(&c->segment.header->members[c->rank].has_left, 1, __ATOMIC_SEQ_CST);
  shm_notify_of(&c->segment, c->rank);
  shm_segment_unmap(&c->segment);
  free_all(c->first);
  free_all(c->finished);
  free_all(c->free);
  free(c);
}

static bool work_step(struct collective *c, struct collective_work *work) {
  bool is_pair = work->call.kind == COLLECTIVE_SEND || work->call.kind == COLLECTIVE_RECEIVE;
  return is_pair ? shm_pair_step(c, work) : shm_board_step(c, work);
}

/* Goes on with the operations in their order, until one has to wait. */
static void collective_progress(struct collective *c) {
  struct collective_work *work;
  while ((work = c->first)) {
    work->is_cancelled = shm_is_aborted(c);
    if (!work->is_cancelled && !work_step(c, work))
      return;
    work->is_done = true;
    if (!(c->first = work->next))
      c->end = &c->first;
    if ((work->next = c->finished))
      work->next->previous = work;
    c->finished = work;
  }
}

static int shm_start(struct collective *c, const struct collective_call *call, struct collective_work **out,
                     struct err *err) {
  struct collective_work *work = c->free;
  if (collective_check_call(call, c->rank, c->size, err))
    return err->code;
  if (shm_is_aborted(c))
    return err_set(err, ERR_CANCELLED, "the collective group was aborted");
  if (work)
    c->free = work->next;
  else
    work = mem_new(sizeof *work);
  *work = (struct collective_work){.collective = c, .call = *call};
  *c->end = work;
  c->end = &work->next;
  collective_progress(c);
  *out = work;
  return 0;
}

static bool shm_is_done(struct collective_work *work) {
  if (!work->is_done)
    collective_progress(work->collective);
  return work->is_done;
}

static inline void spin_pause(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

/* Sleeps until what is waited for has come. A member that has left does nothing more: what it did before it
   left is looked at once more, then the group is over. */
static void wait_for(struct collective *c, struct collective_work *work) {
  struct shm_event *awaited = c->awaited;
  uint32_t count = __atomic_load_n(&awaited->count, __ATOMIC_SEQ_CST);
  bool has_left = __atomic_load_n(&c->segment.header->members[c->blocker].has_left, __ATOMIC_SEQ_CST);
  for (unsigned spin = 0; spin < c->spins; spin++) {
    if (__atomic_load_n(&awaited->count, __ATOMIC_ACQUIRE) != count)
      return;
    spin_pause();
  }
  __atomic_fetch_add(&awaited->sleepers, 1, __ATOMIC_SEQ_CST);
  collective_progress(c);
  if (!work->is_done && awaited == c->awaited) {
    if (has_left)
      shm_abort(c);
    else
      shm_sleep(&awaited->count, count, SLEEP_MS);
  }
  __atomic_fetch_sub(&awaited->sleepers, 1, __ATOMIC_SEQ_CST);
}

static void work_recycle(struct collective *c, struct collective_work *work) {
  if (work->next)
    work->next->previous = work->previous;
  *(work->previous ? &work->previous->next : &c->finished) = work->next;
  work->next = c->free;
  c->free = work;
}

static int shm_wait(struct collective_work *work, struct err *err) {
  struct collective *c = work->collective;
  bool is_cancelled;
  collective_progress(c);
  while (!work->is_done)
    wait_for(c, work);
  is_cancelled = work->is_cancelled;
  work_recycle(c, work);
  return is_cancelled ? err_set(err, ERR_CANCELLED, "the collective group was aborted") : 0;
}

const struct collective_def collective_shm = {
    .name = "shm",
    .is_exact = true,
    .open = shm_open_group,
    .close = shm_close,
    .start = shm_start,
    .is_done = shm_is_done,
    .wait = shm_wait,
    .abort = shm_abort,
    .is_aborted = shm_is_aborted,
};
