/* Seats: a worker's part in one run. */
#ifndef WEIR_SERVER_COORDINATOR_STATE_SEAT_H
#define WEIR_SERVER_COORDINATOR_STATE_SEAT_H

#include "server/coordinator/state/assignment.h"
#include "server/coordinator/state/member.h"
#include "server/coordinator/state/speed.h"
#include "server/coordinator/state/teams.h"

struct run;

/* FOLLOWING: the worker has loaded the run and receives its versions, but computes nothing until it holds the
   newest. CUT_OFF: it has loaded the run, but does not reach servers that others reach: it computes nothing.
   LEAVING: it is given no more work, and is told to unload the run when others have what it had. */
enum seat_state { SEAT_LOADING, SEAT_FOLLOWING, SEAT_READY, SEAT_CUT_OFF, SEAT_LEAVING };

/* How a worker has done with what it was given beside the view: `number` of the struct reissue. */
struct helping {
  uint64_t slow;       /* of the newest in which it was too slow */
  uint64_t asked;      /* of the newest in which it computed doubted microbatches anew */
  uint64_t overflowed; /* of the newest in which it alone computed a doubted sum anew, which overflowed */
  uint64_t given_ms;   /* when it was last given something */
};

/* What is known of a worker that follows its run. */
struct following {
  uint64_t since_ms;
  uint64_t said_ms;  /* when `text` was written */
  uint64_t bytes;    /* of weights that it had received before */
  bool is_view_due;  /* it does not know yet that it is to follow */
  bool is_caught_up; /* it holds the newest version */
  bool is_stuck;     /* it follows because it computed nothing */
  char *text;        /* why it is not ready for long, for people; NULL: nothing to say */
};

/* The workers beside a worker in its team to which it says that its messages do not get. */
struct missed_mates {
  uint32_t team; /* the number of that team; when the worker has left it, this says nothing any more */
  bool is_below, is_above;
  char *text; /* for people; NULL: it reaches them */
};

/* Since they are of one run, ranges, groups, counters and what is not reached are the seat's. */
struct seat {
  struct member *worker;
  struct run *run;
  enum seat_state state;
  uint32_t executors; /* of the worker's, that may compute for the run; 0: it has yet to be dealt some */
  uint64_t load_incarnation; /* of the order to load it */
  struct range stages;       /* of the model, that it has or loads; empty: all of them */
  struct range microbatches, eval_chunks;
  struct grouping group;
  struct helping help;
  struct speed *speed;     /* apart: what settling looks at is near each other */
  struct teams *teams;     /* by its newest heartbeat; NULL: its executors work alone, or it has not said */
  uint64_t received_bytes; /* of weights, by its newest heartbeat */
  struct following following;
  uint64_t ready_incarnation; /* the newest of which it said that it holds a version; UINT64_MAX: none */
  uint64_t idle_ms;           /* since when it has no microbatches although it is ready; 0: it has */
  uint64_t idle_pause_ms;     /* how long the newest wait was until it was tried again */
  bool is_spare;              /* it has none because it is slow: it receives the versions all the same */
  uint64_t *unreached;        /* keys of the run's servers that it says it does not reach; NULL: none */
  int n_unreached;
  char *unreached_text;  /* for people; NULL: none */
  uint64_t unreached_ms; /* since when it says so */
  struct missed_mates missed_mates;
  char *ticket;                /* of the views that it gets; NULL: none was signed yet */
  char *peer_ticket;           /* likewise, for the workers of its team */
  uint64_t ticket_incarnation; /* of the run, for which these are */
  int group_failures;          /* of its groups, since the run's workers changed */
  uint64_t given_ms;           /* since when it has its run */
  bool is_lent;                /* while claims are weighed: the worker is to be another run's own */
  bool is_back;                /* it had it already, and told us so when it joined */
};

/* The worker, which has no seat of the run, has one from now on, LOADING. */
struct seat *coordinator_seat_new(struct run *run, struct member *worker);
/* The one place where a seat's state changes. It checks the change and logs it. */
void coordinator_seat_set_state(struct seat *seat, enum seat_state state);
const char *coordinator_seat_state_name(enum seat_state state);
/* Ends the seat; the run goes on without it. */
void coordinator_seat_end(struct seat *seat);
void coordinator_seat_free(struct seat *seat); /* for member.c and seat.c */
/* The worker's seat of that run; NULL: it has none. */
struct seat *coordinator_seat(const struct member *worker, const char *run);
struct seat *coordinator_seat_of(const struct member *worker, const struct run *run);
/* Whether it has some of the model's stages only. */
bool coordinator_is_staged(const struct seat *seat);
/* It computes for the run, or loads or follows it to do so. */
bool coordinator_is_seated(const struct seat *seat);
/* Forgets how far the worker had followed its run. */
void coordinator_follow_forget(struct seat *seat);
/* Which workers of its team it does not reach, for people; NULL: it has not said so of this team. */
char *coordinator_missed_mates(const struct seat *seat);
/* Forgets which servers and workers the worker said that it does not reach. */
void coordinator_reach_forget(struct seat *seat);

#endif
