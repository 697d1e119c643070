/* The runs that a worker has loaded and does not compute, as far as is known: it may have forgotten some, to
   have memory for others. */
#ifndef WEIR_SERVER_COORDINATOR_STATE_LOADED_H
#define WEIR_SERVER_COORDINATOR_STATE_LOADED_H

#include <stdbool.h>

struct run;

enum { LOADED_MAX = 4 }; /* a worker keeps no more */

/* Zeroed before first use. The runs are pointed to, never looked into. */
struct loaded {
  const struct run *runs[LOADED_MAX]; /* the newest first */
  int n;
};

/* The run is the newest; the oldest one goes, where there are too many. */
void loaded_add(struct loaded *loaded, const struct run *run);
/* One that is not there is ignored. */
void loaded_remove(struct loaded *loaded, const struct run *run);
bool loaded_has(const struct loaded *loaded, const struct run *run);

#endif
