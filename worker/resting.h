/* Runs that the worker has loaded and does not compute: the coordinator has given it another one. They wait
   for their next turn, and hold memory meanwhile. Any thread. */
#ifndef WEIR_WORKER_RESTING_H
#define WEIR_WORKER_RESTING_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct run;

enum { RESTING_MAX = 4 };

struct resting {
  pthread_mutex_t lock;
  struct run *runs[RESTING_MAX]; /* the one that has rested the longest first */
  int n;
};

void resting_init(struct resting *resting);
void resting_fini(struct resting *resting); /* nobody rests any more */

/* Returns the one that has rested the longest if there is no room for all of them; else NULL. */
struct run *resting_add(struct resting *resting, struct run *run);

/* The one with that id, which rests no more; NULL: there is none. */
struct run *resting_take(struct resting *resting, const char *id);

/* The one that has rested the longest; NULL: there is none. */
struct run *resting_take_oldest(struct resting *resting);

/* Whether memory is too scarce for all of them: while none computes, this process has more than a quarter of
   what it could have. own_bytes, available_bytes: as of common/base/memory_available.h. */
bool resting_takes_much(uint64_t own_bytes, uint64_t available_bytes);

#endif
