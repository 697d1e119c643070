/* Which workers made groups in which views: of a part that a group pushed no one member can be told. The
   coordinator remembers it for a while. */
#ifndef WEIR_SERVER_COORDINATOR_STATE_GROUPS_PAST_H
#define WEIR_SERVER_COORDINATOR_STATE_GROUPS_PAST_H

#include <stdbool.h>
#include <stdint.h>

struct seat;
struct run;

enum { GROUPS_PAST_MAX = 256 }; /* older ones are forgotten */

/* A group with fixed members, in the views that had it. */
struct group_past {
  uint32_t number;
  uint64_t first_view, last_view;
  uint32_t *workers; /* numbers */
  int n_workers;
};

struct groups_past {
  uint64_t first_view;      /* what it knows begins there; 0: it knows nothing */
  struct group_past *items; /* [GROUPS_PAST_MAX], a ring; NULL: there was none */
  uint32_t count;           /* of all that there ever were */
};

/* Which workers make groups in the run's view, which is the newest. */
void coordinator_remember_groups(struct run *run, struct seat *const *seats, int n);
/* NULL: it was in none. *is_known: false if what is remembered does not go back to that view. */
const struct group_past *coordinator_group_in_view(const struct run *run, uint32_t worker, uint64_t view,
                                                   bool *is_known);
bool coordinator_were_in_group(const struct run *run, uint32_t worker, uint32_t other, uint64_t view);
void groups_past_fini(struct groups_past *past);

#endif
