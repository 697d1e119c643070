/* Members of the cluster: servers and workers. */
#ifndef WEIR_SERVER_COORDINATOR_STATE_MEMBER_H
#define WEIR_SERVER_COORDINATOR_STATE_MEMBER_H

#include "cluster.pb-c.h"
#include "common/agree/labels.h"
#include "server/coordinator/state/assignment.h"
#include "server/coordinator/state/loaded.h"
#include "server/coordinator/state/speed.h"
#include "server/coordinator/state/teams.h"

struct coordinator;
struct run;

/* FOLLOWING: it has loaded the run and receives its versions, but computes nothing until it holds the newest.
   CUT_OFF: it has loaded the run, but does not reach servers that others reach: it computes nothing. */
enum worker_state {
  WORKER_IDLE,
  WORKER_LOADING,
  WORKER_FOLLOWING,
  WORKER_READY,
  WORKER_CUT_OFF,
  WORKER_REFUSED,
  WORKER_DRAINING,
  WORKER_QUARANTINED
};

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

/* A server or a worker. */
struct member {
  uint64_t key; /* the shell's */
  Weir__Role role;
  char *id;        /* "server-1", "worker-1" */
  uint32_t number; /* N of its id */
  char *host, *address, *device, *fingerprint;
  char *shm_host;       /* workers: equal for those that can share memory; empty: unknown */
  struct labels labels; /* workers */
  uint32_t pid, executors;
  uint64_t joined; /* grows from member to member */
  uint64_t joined_ms, heard_ms;
  bool is_fresh; /* its process was no member before */
  char *message; /* why it was refused or is in quarantine; servers: why runs go on without it; else empty */
  uint64_t left_out_ms; /* servers: since when, if there is a message */
  bool is_cut_off; /* servers: left out because workers did not reach it; after a while runs that load may
                      have it */

  uint64_t memory_bytes; /* servers: what runs may take of its memory; 0: no bound */
  bool is_draining;      /* servers: it is given no more blocks, and those that it has move to others */

  enum worker_state state;   /* workers: what follows */
  struct run *run;           /* loading, following, ready, cut off or draining; else NULL */
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
  int group_failures; /* of its groups, since the run's workers changed */
  uint64_t given_ms;  /* since when it has its run */
  bool is_back;       /* it had it already, and told us so when it joined */
  struct loaded loaded;
  const struct run *reserved_for; /* the run that it is about to be given */
  uint32_t sought;                /* by the newest settling: how many different requirements it meets */
};

/* The one place where a worker's state changes. It checks the change and logs it. */
void coordinator_worker_set_state(struct member *worker, enum worker_state state);
const char *coordinator_worker_state_name(enum worker_state state);
/* Whether it has some of the model's stages only. */
bool coordinator_is_staged(const struct member *worker);
/* Takes the worker from its run, which goes on without it. */
void coordinator_worker_leave_run(struct member *worker, enum worker_state state);
/* Forgets how far the worker had followed its run. */
void coordinator_follow_forget(struct member *worker);
/* Which workers of its team it does not reach, for people; NULL: it has not said so of this team. */
char *coordinator_missed_mates(const struct member *worker);
/* Forgets which servers and workers the worker said that it does not reach. */
void coordinator_reach_forget(struct member *worker);
void coordinator_member_free(struct member *member);

/* N of "server-N" or "worker-N"; 0 if it is no id of ours. */
uint32_t coordinator_id_number(const char *id, const char *prefix);
/* An id's number was used: fresh ids are above. */
void coordinator_id_seen(struct coordinator *coordinator, const char *id);
/* The same of the highest numbers. Ones that are absurd are ignored. */
void coordinator_ids_seen(struct coordinator *coordinator, uint32_t servers, uint32_t workers);

#endif
