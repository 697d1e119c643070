/* The coordinator's core under test: a cluster of made-up members, and what they were told. */
#ifndef WEIR_TESTS_COORDINATOR_FIXTURE_H
#define WEIR_TESTS_COORDINATOR_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/agree/placement.h"
#include "common/base/log.h"
#include "common/base/message.h"
#include "server/coordinator/core/core.h"

enum {
  MEMBERS = 64,
  MISSING_MS = 5000,
  GRACE_MS = 3000,
  TERM = 1,
  BLOCKS = 5,
  MICROBATCHES = 8,
  SAMPLES = 1000,
  BATCH = 128,
  STEPS = 10
};

extern const char *const sha256_of_weights; /* of a finished run */

/* What a member was told: the newest order of each kind. */
struct told {
  bool is_member, is_closed;
  char id[32];
  char load[64], unload[64], keep[64]; /* run ids */
  uint32_t load_servers;
  bool load_has_plan, owns[BLOCKS];
  uint64_t load_incarnation, load_step, keep_step;
  char manifest[128];
  uint64_t view; /* number, from 1 in each term */
  uint64_t view_incarnation;
  uint32_t begin, end; /* of its microbatches */
  uint32_t view_workers;
  uint64_t view_number; /* as it was told */
  uint32_t group;
  uint64_t write_step, writes, loads, beats;
};

struct fixture {
  struct coordinator *coordinator;
  struct coordinator_actions actions;
  uint64_t now_ms;
  struct told told[MEMBERS];
  int commits, saves, releases, publishes, members, doubts, deposed;
  uint64_t commit_step, dropped[16];
  int n_dropped;
  Weir__CheckpointSpec *checkpoint; /* of runs submitted; NULL: one that is never due */
  Weir__CheckpointSpec every;       /* where a test may keep that */
  Weir__EvalSpec *eval;             /* likewise; NULL: none */
  bool trains_nothing;              /* runs submitted have no steps */
  bool admits_any;                  /* runs submitted have deterministic: false */
  bool is_store_away;               /* saves that are waited for are not answered */
  uint64_t incarnation;             /* in what members say */
  const char *collective;           /* of runs submitted; NULL: none */
  uint32_t covered;                 /* microbatches of the newest view, in all its workers' ranges */
};

void store_saves(struct fixture *f, const char *run, uint64_t incarnation);

/* Saves that are waited for are answered at once, unless the store is away. */
void core_step(struct fixture *f, const struct coordinator_event *event);

/* With a hello of the caller's making. */
void says_hello(struct fixture *f, uint64_t key, Weir__Hello *hello);

void member_joins(struct fixture *f, uint64_t key, Weir__Role role, uint32_t executors,
                  const char *fingerprint);

/* The process of member `from` joins again on a new link, with what it has of a run (NULL: nothing). */
void joins_again(struct fixture *f, uint64_t from, uint64_t key, Weir__Role role, const char *run,
                 uint64_t incarnation, uint64_t version);

void worker_joins(struct fixture *f, uint64_t key, uint32_t executors);

void server_joins(struct fixture *f, uint64_t key);

void member_leaves(struct fixture *f, uint64_t key);

void member_says(struct fixture *f, uint64_t key, Weir__MemberMessage__BodyCase body, void *content);

void member_beats(struct fixture *f, uint64_t key);

void core_ticks(struct fixture *f);

/* Time goes by, ticking. */
void time_passes(struct fixture *f, uint64_t ms);

void loads_and_probes(struct fixture *f, uint64_t key, const char *run, const char *dataset, uint64_t samples,
                      const char *probe);

void member_loads(struct fixture *f, uint64_t key, const char *run, const char *dataset, uint64_t samples);

void worker_loads(struct fixture *f, uint64_t key, const char *run);

void server_loads(struct fixture *f, uint64_t key, const char *run);

void member_refuses(struct fixture *f, uint64_t key, const char *run, const char *message, bool bad_input);

void reports_step(struct fixture *f, uint64_t key, const char *run, uint64_t number);

void reports_steps(struct fixture *f, uint64_t key, const char *run, uint64_t begin, uint64_t end);

void reports_eval(struct fixture *f, uint64_t key, const char *run, uint64_t version);

void member_completes(struct fixture *f, uint64_t key, const char *run);

/* Blocks by mask, in a message that is the last one or not. */
void writes_blocks(struct fixture *f, uint64_t key, const char *run, const bool which[BLOCKS], bool is_last);

/* All that it owns, of the version that it was last told to write. */
void member_writes(struct fixture *f, uint64_t key, const char *run);

void cannot_write(struct fixture *f, uint64_t key, const char *run, const char *error, bool is_too_late);

void member_drains(struct fixture *f, uint64_t key);

#define FIXTURE_SHA256 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

void user_submits(struct fixture *f, const char *id, uint32_t min, uint32_t max);

void user_cancels(struct fixture *f, const char *run);

void user_pauses(struct fixture *f, const char *run);

void user_resumes(struct fixture *f, const char *run, uint64_t at);

/* The store's answer to the newest commit. */
void store_commits(struct fixture *f, const char *run, const char *error);

Weir__RunInfo info_of_run(struct fixture *f, const char *run);

void assert_state(struct fixture *f, const char *run, Weir__RunState expected);

/* The worker's row in ListWorkers; its strings hold until the next step. */
Weir__WorkerInfo worker_row(struct fixture *f, uint64_t key);

int core_setup(void **state);

int core_teardown(void **state);

#endif
