/* The meeting of device collectives: their members find each other by a shm group. */
#ifndef WEIR_WORKER_COLLECTIVE_SHM_MEETING_H
#define WEIR_WORKER_COLLECTIVE_SHM_MEETING_H

#include "worker/collective/collective.h"

extern const struct collective_def collective_shm;

/* Whether all members were ready before one gave up. Once it is decided it stays so, and each is told the
   same, whatever becomes of the group. */
enum shm_agreement { SHM_UNDECIDED, SHM_ALL_READY, SHM_NOT_ALL };

/* Each member says so at most once. Never blocks. */
void shm_say_ready(struct collective *meeting);
/* What was decided; gives_up: decides against it if nothing was. Never blocks. */
enum shm_agreement shm_agreement(struct collective *meeting, bool gives_up);

/* Before the handle is closed: how many operations with each member were done here, modulo 2^32. done_with:
   u32[size]. */
void shm_say_done(struct collective *meeting, const uint32_t *done_with);
/* True if that member has closed its handle; *done: how many operations with us it had done. Any thread. */
bool shm_has_left(const struct collective *meeting, int member, uint32_t *done);

#endif
