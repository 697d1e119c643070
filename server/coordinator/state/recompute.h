/* What is computed elsewhere, beside the view: microbatches and eval chunks that come late, and microbatches
   whose parts are doubted, because their sum overflows although each of them is finite. Shares, groups and
   views do not change by it. All of it is of one step, the oldest that is not complete.

   recompute.c  which microbatch is with whom; late ones
   doubts.c     doubted parts: who computes them anew
   verdict.c    whose part was wrong; which group a worker was in */
#ifndef WEIR_SERVER_COORDINATOR_STATE_RECOMPUTE_H
#define WEIR_SERVER_COORDINATOR_STATE_RECOMPUTE_H

#include "server/coordinator/state/core.h"
#include "server/coordinator/state/quarantine.h"

struct coordinator;
struct member;
struct run;

/* SENDERS_MAX: more are not told apart from others. GROUPS_PAST_MAX: older ones are forgotten. */
enum { SENDERS_MAX = 256, GROUPS_PAST_MAX = 256 };

/* A microbatch or an eval chunk of the step. */
struct duty {
  uint64_t worker;                /* key of the one that has it as a duplicate; 0: nobody */
  uint64_t given_ms, patience_ms; /* what it is given for; who misses it for longer gives it to another */
  uint64_t missed_ms;             /* when a server last missed it; 0: never */
  bool is_doubted;
};

/* Of one worker that is ready; good while a step of the coordinator lasts. */
struct helper {
  struct member *worker;
  double weight; /* its speed, beside the others' */
  double load;   /* duties that it has, by its weight */
  int rank;      /* the lower, the rather it is asked */
  bool is_order_due;
};

/* Who pushed a doubted part. */
struct sender {
  uint32_t worker;
  uint64_t view;
};

struct doubts {
  bool *is_open; /* [n_blocks] doubted, and not yet judged */
  uint32_t n_open;
  struct sender senders[SENDERS_MAX];
  int n_senders;
  uint64_t due_ms; /* blocks are doubted one after the other: what is given then is given at once */
  int rounds;      /* how often it was given to somebody */
};

/* NULL in a run: nothing was late or doubted. */
struct recompute {
  uint64_t number; /* of all that there were: never used twice */
  uint64_t incarnation, step;
  bool is_proven;     /* every step before it is complete on every server */
  uint64_t told_ms;   /* of the newest report that the step is late */
  uint64_t waited_ms; /* what it said */
  uint32_t n_microbatches, n_chunks;
  struct duty *microbatches, *chunks;
  struct doubts doubts;
};

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

/* recompute.c */
void coordinator_late(struct coordinator *coordinator, struct member *server, const Weir__Late *late);
/* What the run has, of this step or, where it had none or an older one, begun; NULL: the message is of a step
   that is over. is_proven: it shows that the steps before are complete. */
struct recompute *coordinator_recompute_at(struct coordinator *coordinator, struct run *run, uint64_t step,
                                           bool is_proven);
/* Those that are ready, with what they have; of the step's arena. */
struct helper *coordinator_helpers(struct coordinator *coordinator, const struct run *run, int *n);
void coordinator_give(const struct coordinator *coordinator, struct duty *duty, struct helper *helper,
                      uint64_t patience_ms);
/* Sends each helper whose order is due all that it has. */
void coordinator_order_helpers(struct coordinator *coordinator, struct run *run, struct helper *helpers,
                               int n);
bool coordinator_duty_is_held(const struct coordinator *coordinator, const struct run *run,
                              const struct duty *duty); /* by a worker that may yet be in time */
void coordinator_recompute_free(struct run *run);       /* nothing is late or doubted any more */

/* doubts.c */
void coordinator_doubted(struct coordinator *coordinator, struct member *server,
                         const Weir__Doubted *doubted);
void coordinator_judged(struct coordinator *coordinator, struct member *server, const Weir__Judged *judged);
/* Gives doubted microbatches to who is to compute them, also anew where a worker has gone or is slow. */
void coordinator_doubts_when_due(struct coordinator *coordinator, struct run *run);

/* verdict.c */
/* The sum is finite now: who pushed a part that has changed is put into quarantine, or named where it may be
   another that is wrong. */
void coordinator_convict(struct coordinator *coordinator, struct run *run, const Weir__Judged *judged);
/* Which workers make groups in the run's view, which is the newest. */
void coordinator_remember_groups(struct run *run, struct member *const *workers, int n);
bool coordinator_were_in_group(const struct run *run, uint32_t worker, uint32_t other, uint64_t view);
void groups_past_fini(struct groups_past *past);

#endif
