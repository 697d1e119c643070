/* Who computes what, and with whom.

   views.c   tells the workers of a run their shares and groups: a view
   shares.c  decides the shares, by measured speed; assign.c cuts the ranges
   stages.c  workers that have some of the model's stages only, and the teams that they make
   follow.c  gives workers no work before they hold the newest weights */
#ifndef WEIR_SERVER_COORDINATOR_SHARES_SHARES_H
#define WEIR_SERVER_COORDINATOR_SHARES_SHARES_H

#include "cluster.pb-c.h"
#include "common/base/memory.h"
#include "server/coordinator/shares/assign.h"
#include "server/coordinator/state/run.h"
#include "server/coordinator/state/seat.h"

/* views.c */
/* Who computes what, and with whom: one view for all that changed. */
void coordinator_send_view(struct coordinator *coordinator, struct run *run);
/* The seats that compute for the run, *n of them, in the order of their work; of the step's arena. Those
   that have some of the stages only are in teams, and are left out where there is none for them. */
struct seat **coordinator_ready_seats(const struct coordinator *coordinator, const struct run *run, int *n);
void coordinator_group_failed(struct coordinator *coordinator, struct member *worker,
                              const Weir__GroupFailed *failed);
/* Groups that failed are tried again after a while, too: what kept them from meeting may have passed. */
void coordinator_regroup_when_due(struct coordinator *coordinator, struct run *run);

/* stages.c */
/* Says which stages the worker is to load: all of them (an empty range), unless it has fewer executors.
   loaded: those that it has; empty: none. */
void coordinator_give_stages(struct seat *seat, struct range loaded);
/* How many workers make a team of the run, at the fewest; 1: some worker has executors for all stages. */
uint32_t coordinator_team_size(const struct coordinator *coordinator, const struct run *run);
/* The seat of a worker that would complete a team with other stages, and is not needed for its own; or NULL.
 */
struct seat *coordinator_find_misplaced(const struct run *run);
/* Puts seats that are ready into an order in which those of a team follow each other by their stages. A
   team that is whole stays. Returns how many they are; the others have no team. */
int coordinator_line_up(struct arena *arena, const struct run *run, struct seat **seats, int n);
/* Of seats in that order: where each team, or one that has all stages, ends. ends[n]; returns how many.
 */
int coordinator_entities(struct seat *const *seats, int n, int *ends);
/* [n_entities] in the arena. */
struct assign_worker *coordinator_entity_speeds(struct arena *arena, struct seat *const *seats, int n,
                                                const int *ends, int n_entities);
/* What a team lacks that cannot be made, for people; freed by the caller. NULL: nothing. */
char *coordinator_missing_stages(const struct run *run);

/* follow.c */
/* The worker has loaded the run, or reaches its servers again. It follows while others compute; else it
   computes at once. */
void coordinator_seat_follow(struct coordinator *coordinator, struct seat *seat);
void coordinator_ready(struct member *worker, const Weir__Ready *ready);
/* Those that have caught up compute from the next view on; all of them where nobody else does. Says who is
   late. */
void coordinator_admit_followers(struct coordinator *coordinator, struct run *run);
void coordinator_admit_follower(struct seat *seat);
/* Of workers that are ready: those that have no microbatches because they are slow, and may not have received
   a version of this incarnation yet, follow: others could wait for them once they are given some. Whether
   there are any. */
bool coordinator_spares_follow(struct coordinator *coordinator, struct seat *const *seats, int n);
/* The worker has no work, and no part in a group or team. */
void coordinator_take_work(struct seat *seat);
/* The worker, which was ready, computes nothing: others compute for it until it comes back. */
void coordinator_set_aside(struct coordinator *coordinator, struct seat *seat);

/* shares.c */
/* What a worker's heartbeat says of a run. */
void coordinator_count(const struct coordinator *coordinator, const struct member *worker,
                       const Weir__RunCounters *counters);
/* How fast the workers are, beside each other: those that were not measured, by the executor, as the others
   on average. [n] in the arena. */
struct assign_worker *coordinator_speeds(struct arena *arena, struct seat *const *seats, int n);
/* Gives the n seats, in their order, ranges by their speeds. */
void coordinator_share_work(struct coordinator *coordinator, struct run *run, struct seat *const *seats,
                            int n);
/* Other shares are due once they have promised much for some time. */
void coordinator_reshare_when_due(struct coordinator *coordinator, struct run *run);

#endif
