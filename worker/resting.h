/* Runs that the worker has loaded and does not compute. Some wait for their next turn, because the
   coordinator has given the worker another one meanwhile. Others are over, and are kept for a minute: a run
   that would load the same takes the place of one of them. Any thread. */
#ifndef WEIR_WORKER_RESTING_H
#define WEIR_WORKER_RESTING_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "cluster.pb-c.h"
#include "worker/data/data_root.h"

struct arena;
struct run;
struct rpc_channel;

enum { RESTING_MAX = 4 };

struct rest {
  struct run *run;
  bool is_over; /* else it waits for its turn */
  uint64_t since_ns;
};

struct resting {
  pthread_mutex_t lock;
  struct rest rests[RESTING_MAX]; /* the one that has rested the longest first */
  int n;
};

void resting_init(struct resting *resting);
void resting_fini(struct resting *resting); /* nobody rests any more */

/* now_ns: since when it rests. If there is no room for all of them, returns one that rests no more: the first
   that is over, or the one that has rested the longest; else NULL. */
struct run *resting_add(struct resting *resting, struct run *run, bool is_over, uint64_t now_ns);

/* The run with that id, which rests no more; NULL: none waits for its turn. */
struct run *resting_take(struct resting *resting, const char *id);

/* The ids of those that wait for their turn, the newest first. Returns how many. */
int resting_ids(struct resting *resting, struct arena *arena, char *ids[RESTING_MAX]);

/* A run that is over and fits the order (run_fits), which rests no more; NULL: there is none. */
struct run *resting_take_fitting(struct resting *resting, const Weir__LoadRun *load,
                                 const struct data_root *data_root);

/* The one that resting_add would return; NULL: none rests. */
struct run *resting_take_any(struct resting *resting);

/* One that was kept for long enough, which rests no more; NULL: there is none. */
struct run *resting_take_old(struct resting *resting, uint64_t now_ns);

/* When there will be one; 0: never. */
uint64_t resting_due_ns(struct resting *resting);

/* Whether memory is too scarce for all of them beside another run that is to be loaded: this process has more
   than a quarter of what it could have. own_bytes, available_bytes: as of common/machine/memory_available.h.
 */
bool resting_takes_much(uint64_t own_bytes, uint64_t available_bytes);

#endif
