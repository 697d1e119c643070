/* A simulated cluster around the coordinator's core: processes that load, train, write, die and come back
   (world_processes.h), links that break, a store that loses only what was not yet written, and
   coordinators that succeed each other. One thread, no clock: dice drawn from world.seed say what happens
   next. Everything that the core orders is checked against what it promises; what breaks a promise fails
   the test. */
#ifndef WEIR_TESTS_SUPPORT_WORLD_WORLD_H
#define WEIR_TESTS_SUPPORT_WORLD_WORLD_H

#include "common/agree/plan.h"
#include "server/coordinator/core/core.h"

enum {
  SERVERS = 3,
  WORKERS = 3,
  PROCESSES = SERVERS + WORKERS,
  RUNS = 2,
  BLOCKS = 5,
  STEPS = 40,
  BATCH = 8,
  MICROBATCHES = 4,
  WORKERS_GIVEN = 64, /* whose links broke, too, until the core knows */
  SAMPLES = 100,
  INCARNATIONS = 1024,
  GROUPS = 8192,
  QUEUE = 8192,
  GRACE_MS = 3000,
  MISSING_MS = 5000,
  FOLLOW_MS = 4000
};

extern const uint32_t world_block_elems[BLOCKS];

/* Messages on a link's way, the oldest first. The queue owns them. */
struct queue {
  void *items[QUEUE];
  int count;
};

/* What a process has of a run. Workers: incarnation and share are those of their view, and a version is one
   that is there whole. */
struct hosted {
  bool is_hosted, is_loaded;
  bool is_evaluated; /* servers of runs without steps: and so complete */
  uint64_t incarnation, base, version;
  char manifest[128];
  uint64_t write_step; /* 0: none */
  uint64_t hold;       /* as servers were told, or the worker's view says; 0: none */
  uint64_t ordered;    /* workers: incarnation of the newest order to load */
  bool has_view;
  uint64_t view;
  uint32_t group; /* workers: of that view; 0: none */
  uint32_t begin, end;
  bool follows;           /* workers: what follows, too */
  bool has_version;       /* it has weights */
  bool is_ready_told;     /* since its view, that it has */
  uint64_t pulling;       /* the version that it receives */
  uint64_t pulled_ms;     /* for so long */
  uint64_t spent_ms;      /* on the microbatch that it is at */
  bool is_unreached_told; /* that it does not reach all servers */
};

struct process {
  Weir__Role role;
  int slot;
  uint32_t pid;
  bool is_alive, is_frozen; /* frozen: its link takes nothing and says nothing, unnoticed */
  bool is_unheard;          /* the same, and there is no other way to the coordinator; the process goes on */
  char id[32];
  uint64_t term, key; /* 0: no link */
  struct queue up, down;
  struct hosted hosted[RUNS];
  /* Workers. What they take for a microbatch, and to receive a version; what heartbeats tell. */
  uint64_t microbatch_ms, version_ms;
  bool is_hung; /* it computes nothing, and beats */
  uint64_t computed, busy_ms;
};

/* The parts of a step that servers have, as workers pushed them. */
struct sim_round {
  uint64_t incarnation, version;
  bool is_there[MICROBATCHES];
  uint64_t bits[MICROBATCHES];
};

/* The servers that were told to load an incarnation. */
struct server_set {
  int n;
  int slots[SERVERS];
  uint32_t pids[SERVERS];
  bool is_loaded[SERVERS];
};

struct stored_checkpoint {
  bool exists, is_damaged, is_dropped; /* dropped: the core wants it deleted */
  bool is_leftover;                    /* it was, but a coordinator died before it could be */
  uint64_t incarnation;
  Weir__CheckpointInfo *info;
};

/* What a group's number stands for, for good. */
struct group_meaning {
  uint64_t term;
  char members[WORKERS * 16];
  uint32_t begin, end;
};

/* What the views of a number gave to whom. */
struct given_view {
  uint64_t term, incarnation, number;
  struct {
    char worker[32];
    uint32_t begin, end;
    bool follows;
  } to[WORKERS_GIVEN];
  int n;
};

/* What the store has of a run. */
struct stored_run {
  char id[32];
  Weir__RunRecord *record; /* NULL: none */
  bool is_record_lost;     /* and not yet written again */
  struct stored_checkpoint checkpoints[STEPS + 1];
  Weir__RunEvent **events;
  int n_events, events_capacity;
  uint64_t next_event;              /* to be stored */
  uint64_t forked_in;               /* the term */
  uint64_t base_step, base_made_by; /* of a fork: its first version, the parent's incarnation; 0: none */
  bool is_base_to_come;             /* the store has not that version of the fork yet */
  struct sim_round round;

  /* What was ordered so far, for the checks. */
  bool is_submitted;
  uint64_t top, saved_top;
  struct given_view given, given_before; /* of the event, and the newest before it that gave work */
  struct group_meaning groups[GROUPS];   /* by number, of this term */
  uint64_t bases[INCARNATIONS];
  struct server_set sets[INCARNATIONS];
};

enum job_kind { JOB_SAVE, JOB_COMMIT, JOB_DROP, JOB_BASE };

/* What the core wants the store to do: an ACTION_SAVE, _COMMIT, _DROP or _BASE that is under way. */
struct job {
  enum job_kind kind;
  int run;
  Weir__RunRecord *record;
  Weir__Manifest *manifest;
  bool is_awaited, is_last;
  uint64_t step, until_event;
};

struct liars; /* world_liars.h */

struct world {
  uint64_t seed, dice; /* dice: how many were thrown */
  uint64_t now_ms, ticked_ms, term, keys;
  uint32_t pids;
  struct coordinator *core; /* NULL: dead */
  struct coordinator_actions actions;
  struct process processes[PROCESSES];
  uint64_t leaving[QUEUE]; /* keys of links that broke, unknown to the core */
  int n_leaving;
  bool is_store_away;
  struct stored_run runs[RUNS];
  struct job jobs[QUEUE];
  int n_jobs;
  Weir__RunSpec *spec;
  struct plan plan;
  bool is_cut[PROCESSES][SERVERS]; /* ways of workers to servers */
  bool is_calm;                    /* no accidents any more */
  int cut_off, given_up;           /* how often workers and servers were seen to be */
  struct liars *liars;
  int doubted, convicted, reissued; /* sums; how often workers were seen to be; orders */
  int following, late, set_aside;   /* how often workers were seen to be */
  int wishes;                       /* how often a successor knew that a run is to pause */
  int held, raised;                 /* how often runs were seen to be, and holds were raised */
  int ended_early;                  /* runs, as their spec's early_stopping says */
  int confirmed;                    /* how often a run went on with a server that is not heard of */
  int seated_beside;                /* workers told to compute the other run, too */
  int reoffered;                    /* the same by another coordinator than took the fork */
  int offered, adopted; /* how often a fork's server was told of its parent, and had the version */
  int awaited, based;   /* forks of versions to come: how many there were, and began */
  int inherited;        /* coordinators that found one in the store, which waits */
  int in_vain;          /* forks that waited for what did not come */
  int done, rolled_back, successions, paused, kept, too_late, lost_checkpoints;
};

/* A throw of the dice: 0 .. sides - 1. */
uint64_t world_roll(struct world *w, uint64_t sides);

/* The accuracy of a version, and the key of its block: they follow from the version alone, as training
   does. */
double accuracy_at(uint64_t version);
void block_key(uint32_t block, uint64_t version, char key[65]);

/* The bits of a microbatch's part of a step, whoever computes it. */
uint64_t part_bits(uint64_t version, uint32_t microbatch);

/* Copies the message. */
void queue_push(struct queue *queue, const void *message);

/* The oldest, which is then the caller's (message_free); NULL: none. */
void *queue_pop(struct queue *queue);

void queue_clear(struct queue *queue);

/* Index of the run in w->runs; an unknown id fails the test. */
int run_index(const struct world *w, const char *id);

/* Which server of the set this process is; -1: none. */
int set_index(const struct server_set *set, const struct process *process);

/* The servers of an incarnation of the run, empty until an order names them. */
struct server_set *set_of(struct world *w, int run, uint64_t incarnation);

/* The step of the newest checkpoint; 0: none. */
int newest_checkpoint(const struct stored_run *run);

/* The number of the worker's group in the view; 0: none. */
uint32_t group_in(const Weir__View *view, const char *worker);

/* The store takes the events of run `at` that it has not, those numbered below `until`. */
void store_events(struct world *w, int at, uint64_t until);

void checkpoint_clear(struct stored_checkpoint *checkpoint);

/* The store does the oldest job; a save waits while it is away. is_told: the coordinator that gave it is
   there to hear of it. */
void job_execute(struct world *w, bool is_told);

/* Forgets the jobs that are under way: nobody does them. */
void job_forget(struct world *w);

/* The core takes the event. What it orders is checked, then put on its way: orders to processes, jobs to
   the store. */
void world_step(struct world *w, const struct coordinator_event *event);

/* Some of the jobs may still be done; the others are lost, and every link breaks. */
void coordinator_dies(struct world *w);

/* A coordinator of the next term, which restores what the store has. The store must be there. */
void coordinator_begins(struct world *w);

#endif
