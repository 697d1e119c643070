/* The coordinator's core with made-up members, users and store, all in the test's thread: a function below
   says one thing to the core, as an event at f->now_ms, and what the core orders is noted in f->told[key]
   and in the fixture's counters. core_setup() and core_teardown() are a test's setup and teardown:
   server_joins(f, 1); worker_joins(f, 2, 1); user_submits(f, "a", 1, 0); worker_loads(f, 2, "a");
   On the way each order is checked: its term, that its member is there, that a view tells nobody what others
   compute but for its group, and that the views of an event together give each microbatch once. */
#ifndef WEIR_TESTS_SUPPORT_COORDINATOR_CORE_FIXTURE_H
#define WEIR_TESTS_SUPPORT_COORDINATOR_CORE_FIXTURE_H

#include "common/agree/labels.h"
#include "server/coordinator/core/core.h"
#include "server/coordinator/quotas/quota.h"
#include "tests/support/coordinator/told_seats.h"

enum {
  MEMBERS = 64,
  MISSING_MS = 5000,
  GRACE_MS = 3000,
  FOLLOW_MS = 30000,
  TERM = 1,
  BLOCKS = 5,
  MICROBATCHES = 8,
  SAMPLES = 1000,
  BATCH = 128,
  STEPS = 10,
  MICROBATCHES_GIVEN = 64 /* at most, of a run with f->microbatches */
};

extern const char *const sha256_of_weights; /* weights_sha256 of runs that finish */
extern const uint32_t fixture_block_elems[BLOCKS];

/* What a member was told: the newest order of each kind. is_member, is_closed: whether its stream began and
   ended. Counters count since the fixture began. */
struct told {
  bool is_member, is_closed;
  char id[32];
  char load[64], unload[64], keep[64]; /* run ids */
  uint32_t load_servers;
  bool load_has_plan, owns[BLOCKS];
  uint64_t load_incarnation, load_step, load_slots_step, keep_step;
  char from[64]; /* of LoadRun.from; empty: it had none */
  uint64_t from_incarnation, from_step;
  char manifest[128];
  char load_ticket[TICKET_TEXT_SIZE], view_ticket[TICKET_TEXT_SIZE], peer_ticket[TICKET_TEXT_SIZE];
  unsigned char key[TICKET_KEY_BYTES], peer_key[TICKET_KEY_BYTES]; /* of the newest LoadRun; zeros: none */
  uint64_t view;                                                   /* number, from 1 in each term */
  uint64_t view_incarnation;
  uint32_t begin, end; /* of its microbatches */
  bool follows;
  uint32_t view_workers;           /* whom it names */
  uint64_t view_number;            /* as it was told */
  uint32_t group, team, place;     /* place: in the order of its view */
  uint32_t stage_begin, stage_end; /* of the newest LoadRun */
  uint64_t write_step, writes, loads, beats, drains, no_others;
  uint64_t hold, holds,
      rests; /* of the newest order that has one; how many Hold, and UnloadRun that may return */
  uint64_t reissue_step, reissues;               /* of the newest Reissue; how many */
  uint32_t reissue_microbatches, reissue_chunks; /* masks */
  struct told_seat seats[TOLD_SEATS];            /* workers: of each run */
};

struct core_fixture {
  struct coordinator *coordinator;
  struct coordinator_actions actions;
  uint64_t now_ms;
  struct told told[MEMBERS]; /* by the member's key, which the test chooses: each stream has another */
  int commits, bases, saves, releases, publishes, members, doubts, deposed; /* actions of each kind so far */
  uint64_t commit_step;                                                     /* of the newest commit, */
  bool commit_is_last;                                                      /* with the hash of its weights */
  uint64_t dropped[16]; /* steps of checkpoints, the newest 16 of n_dropped */
  int n_dropped;
  Weir__CheckpointSpec *checkpoint;        /* of runs submitted; NULL: one that is never due */
  Weir__CheckpointSpec every;              /* where a test may keep that */
  Weir__EvalSpec *eval;                    /* likewise; NULL: none */
  Weir__EarlyStoppingSpec *early_stopping; /* likewise */
  bool trains_nothing;                     /* runs submitted have no steps */
  uint64_t steps;                          /* of runs submitted; 0: STEPS */
  uint64_t hold;                           /* likewise; 0: none */
  double hold_epochs;                      /* likewise */
  uint64_t memory_bytes;                   /* what a server says that joins; 0: no bound */
  uint64_t hosted_hold;                    /* what a server says that joins again; 0: none */
  const char *holder;                      /* of certificates of those that join; NULL: there is no TLS */
  bool evaluates;                     /* runs submitted have data to evaluate, of which workers find some */
  bool admits_any;                    /* runs submitted have deterministic: false */
  uint32_t staleness;                 /* of runs, in mode ssp; 0: in mode sync */
  Weir__LocalSpec *local;             /* of runs, in mode local; NULL: in another */
  Weir__CompressionSpec *compression; /* of runs; NULL: none */
  bool is_store_away;                 /* saves that are waited for are not answered */
  uint64_t incarnation;               /* in what members say */
  const char *collective;             /* of runs submitted; NULL: none */
  int64_t priority;                   /* likewise */
  struct labels required;             /* likewise */
  uint32_t stages;                    /* likewise; 0: one. Workers say then where they listen */
  uint32_t microbatches;              /* likewise; 0: MICROBATCHES */
  const uint32_t *block_elems;        /* [BLOCKS], likewise; NULL: fixture_block_elems */
  uint64_t received_bytes;            /* in heartbeats with counters */
  uint32_t given[MICROBATCHES_GIVEN]; /* how often each microbatch was, in the newest views of the event, */
  uint64_t given_view;                /* which have this number */
  char given_run[64];

  const char *tenant;       /* of runs submitted; NULL: the default one */
  const char *sweep;        /* of runs submitted, which are trials of it; NULL: none */
  struct run_origin origin; /* of the fork that is submitted; zeroed: none */
  const struct run_inheritance *inheritance;
};

/* The store has saved the run's record of this incarnation and state. A test says so only after
   is_store_away. */
void store_saves(struct core_fixture *f, const char *run, uint64_t incarnation, Weir__RunState run_state);

/* Takes the event and notes what comes of it. Saves that are waited for are answered at once, unless the
   store is away. */
void core_step(struct core_fixture *f, const struct coordinator_event *event);

/* The member joins with a hello of the test's making. */
void says_hello(struct core_fixture *f, uint64_t key, Weir__Hello *hello);

/* The member joins with the host "host" and, as a server, the address host:KEY. worker_joins() and
   server_joins() do so with the fingerprint "build-1". */
void member_joins(struct core_fixture *f, uint64_t key, Weir__Role role, uint32_t executors,
                  const char *fingerprint);

void worker_joins(struct core_fixture *f, uint64_t key, uint32_t executors);
void server_joins(struct core_fixture *f, uint64_t key);

/* The process that was member `from` joins again as member `key`, by its old id. It still has the run in
   incarnation 0: a server its blocks at this version. */
void worker_joins_again(struct core_fixture *f, uint64_t from, uint64_t key, const char *run);
void server_joins_again(struct core_fixture *f, uint64_t from, uint64_t key, const char *run,
                        uint64_t version);

/* Its stream breaks. */
void member_leaves(struct core_fixture *f, uint64_t key);

/* content: the message of that body, which stays the caller's. */
void member_says(struct core_fixture *f, uint64_t key, Weir__MemberMessage__BodyCase body, void *content);

void member_beats(struct core_fixture *f, uint64_t key);

/* A heartbeat with these counters of a run; NULL: of none. */
void member_tells(struct core_fixture *f, uint64_t key, Weir__RunCounters *counters);
/* With these alone, in f->incarnation. */
void member_counts(struct core_fixture *f, uint64_t key, const char *run, uint64_t computed,
                   double busy_seconds);

/* One tick, now. */
void core_ticks(struct core_fixture *f);

/* Time goes by in ticks of 100 ms at most. Nobody beats meanwhile. */
void time_passes(struct core_fixture *f, uint64_t ms);

/* The member has loaded the run (RunLoaded), in f->incarnation. dataset, probe: its hashes. Without such a
   parameter there are SAMPLES samples, the dataset is "data" and the probe "probe"; a server loads no
   samples. */
void loads_and_probes(struct core_fixture *f, uint64_t key, const char *run, const char *dataset,
                      const char *probe);
void member_loads(struct core_fixture *f, uint64_t key, const char *run, const char *dataset,
                  uint64_t samples);
/* A worker that is to follow then has caught up. */
void worker_loads(struct core_fixture *f, uint64_t key, const char *run);
/* The worker holds the version (Ready). */
void worker_catches_up(struct core_fixture *f, uint64_t key, const char *run, uint64_t version);
void server_loads(struct core_fixture *f, uint64_t key, const char *run);

/* The member answers LoadRun with RunRefused. */
void member_refuses(struct core_fixture *f, uint64_t key, const char *run, const char *message,
                    bool bad_input);

/* The server reports a step, or the steps of [begin, end), or the evaluation of a version. */
void reports_step(struct core_fixture *f, uint64_t key, const char *run, uint64_t number);
void reports_steps(struct core_fixture *f, uint64_t key, const char *run, uint64_t begin, uint64_t end);
void reports_eval(struct core_fixture *f, uint64_t key, const char *run, uint64_t version);

/* All blocks of the server are at this version, at which the run is held (RunHeld). */
void reports_held(struct core_fixture *f, uint64_t key, const char *run, uint64_t version);

/* The server has computed all steps of the run (RunComplete). */
void member_completes(struct core_fixture *f, uint64_t key, const char *run);

/* The server has written these blocks of the version that it was last told to write, all or, unless
   is_last, some. */
void writes_blocks(struct core_fixture *f, uint64_t key, const char *run, const bool which[BLOCKS],
                   bool is_last);

/* The same with all blocks that it owns. */
void member_writes(struct core_fixture *f, uint64_t key, const char *run);

/* The server answers WriteBlocks with an error; is_too_late: that version is gone. */
void cannot_write(struct core_fixture *f, uint64_t key, const char *run, const char *error, bool is_too_late);

/* The member asks to leave (Leaving). */
void member_drains(struct core_fixture *f, uint64_t key);

/* weights_sha256 of runs that have no steps. */
#define FIXTURE_SHA256 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

/* core_users.c */
/* A run with this id: STEPS steps of BATCH samples in MICROBATCHES, on min to max workers (max 0: any
   number), with the fields of the fixture that are for runs submitted. Cancelling, pausing and resuming
   name the run; `at` is the step of a committed checkpoint, or 0: from the beginning. */
void user_submits(struct core_fixture *f, const char *id, uint32_t min, uint32_t max);
/* What an operator has written, which must be right. */
struct quotas quotas_from(const char *const *texts, int n);
/* A run of one worker, of a user of the tenant. */
void tenant_submits(struct core_fixture *f, const char *id, const char *tenant);
/* The same, of a fork that begins there, with its parent's data. */
void user_forks_at(struct core_fixture *f, const char *id, const struct run_origin *origin, uint32_t min,
                   uint32_t max);
void user_cancels(struct core_fixture *f, const char *run);
void user_sets(struct core_fixture *f, const char *run, const char *setting); /* as of spec_set_live */
void user_raises(struct core_fixture *f, const char *run, uint64_t hold);     /* 0: no hold any more */
void user_stops(struct core_fixture *f, const char *run);
void user_drains(struct core_fixture *f, const char *worker);
void user_pauses(struct core_fixture *f, const char *run);
void user_resumes(struct core_fixture *f, const char *run, uint64_t at);

/* The store's answer to the newest commit; error NULL: it is committed. */
void store_commits(struct core_fixture *f, const char *run, const char *error);

/* What GetRun says; the run must be known. Strings hold until the next step. */
Weir__RunInfo info_of_run(struct core_fixture *f, const char *run);

void assert_state(struct core_fixture *f, const char *run, Weir__RunState expected);

/* The worker's row in ListWorkers, empty if it has none. Strings hold until the next step. */
Weir__WorkerInfo worker_row(struct core_fixture *f, uint64_t key);

int core_setup(void **state);
int core_teardown(void **state);

#endif
