/* Cuts of a forward part into segments, of which each is run again by itself: what is read across a cut is
   kept. */
#ifndef WEIR_WORKER_BACKEND_REPLAY_CUTS_H
#define WEIR_WORKER_BACKEND_REPLAY_CUTS_H

#include "worker/backend/replay/contents.h"

/* How much a way of cutting takes is estimated from what is kept and what one segment needs at a time. */
struct cuts {
  const struct contents *contents;
  int n_contexts;
  int n;        /* places where it may be cut, and the end of the forward part */
  int *at;      /* [n + 1] steps before which they are; at[0]: 0 */
  size_t *kept; /* [n * (n + 2)] row i, column j: what a segment from i to j adds to what is kept behind it */
  size_t *whole; /* likewise: what it needs while the backward part is in it, besides what was kept before */
  size_t least_bytes, most_bytes; /* of the smallest way to cut, and of none */

  size_t *kept_until; /* [n + 1] */
  int *before;        /* [n + 1] the place where the segment that ends there begins */
};

/* n_contexts: at least 1; so often is there what is kept. The arrays are the arena's. */
void cuts_find(const struct contents *contents, int n_contexts, struct arena *arena, struct cuts *out);

/* Which contents are kept when it is cut so that no segment takes more than that, and as little as can be is
   kept across cuts. With one context the last segment is kept whole: running it again would free nothing.
   False: there is no such way. */
bool cuts_choose(struct cuts *cuts, size_t most_bytes, bool *is_kept);

#endif
